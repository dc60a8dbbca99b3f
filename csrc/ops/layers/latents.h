/* The steps of a layer with attention over latents (hc_layers.h) before and after the attention itself. */
#ifndef HC_LATENTS_H
#define HC_LATENTS_H

#include "hc_layers.h"

/* Values of a row of keys. */
static inline int64_t hc_latent_width(const hc_latents *latents) { return latents->keys + latents->rotary; }

/* From rows y (rows, width): queries q (rows, heads, keys + rotary), and the halves of the new keys, (rows, half) each. */
hc_status hc_project_latents(const hc_run *run, const hc_llm_layer *layer, const float *y, float *q, float *first,
                             float *second, hc_error *error);
/* answer (rows, heads, value) from the result of attention (rows, heads, keys + rotary) */
hc_status hc_map_latents(const hc_run *run, const hc_llm_layer *layer, const float *from, float *answer,
                         hc_error *error);

#endif
