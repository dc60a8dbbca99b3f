/* Inside ops: how arrays become packed. */
#ifndef HC_ENCODER_H
#define HC_ENCODER_H

#include "ops/codec/encoding.h"

/* Prepares a job over x, which hc_check_encoding has accepted with this format and these axes. Reads no values.
 * Thresholds are absmax and all values have equal weight, unless the caller sets clip and importance. x must outlive
 * the encoder, and the encoder must not be moved. */
void hc_encoder_init(hc_encoder *encoder, const hc_run *run, const char *name, const char *argument, const hc_view *x,
                     const hc_format *format, const hc_geometry *geometry, int n_axes, const int *axes);
/* Fails with HC_VALUE if the run requires that a row does not depend on other rows, and all rows of the format share a
 * scale or a codebook. */
hc_status hc_encoder_check_rows(const hc_encoder *encoder, const hc_run *run, hc_error *error);
/* The passes over the whole array: find the components that all rows share, learn a codebook for all of them. */
hc_status hc_encoder_observe(hc_encoder *encoder, const hc_run *run, hc_error *error);
/* Whether hc_encoder_observe failed or not. */
void hc_encoder_free(hc_encoder *encoder);
/* Encodes rows [first_row, first_row + rows) into rows [0, rows) of `out` (shared parts whole), threaded. */
hc_status hc_encoder_rows(const hc_encoder *encoder, const hc_run *run, int64_t first_row, int64_t rows,
                          hc_components *out, hc_error *error);
/* Writes the parts of `out` that all rows share, once for all rows. */
void hc_encoder_share(const hc_encoder *encoder, const hc_components *out);
/* Encodes loaded rows by the best kernel that accepts them. Returns as hc_encode_fn, but never HC_DECLINED. weights:
 * NULL, or those of the same rows. */
int64_t hc_encode_block(const hc_encoder *encoder, uint32_t isa, const hc_float_rows *x, const float *thresholds,
                        const hc_float_rows *weights, const hc_components *out);

/* Allocates the components of `rows` rows; hc_components_free frees them. */
hc_status hc_components_alloc(const hc_format *format, const hc_geometry *geometry, int64_t rows,
                              hc_components *components, hc_error *error);
void hc_components_free(hc_components *components);

#endif
