/* Panels of the right side of an integer matmul, packed once and kept. */
#ifndef HC_PREPACK_H
#define HC_PREPACK_H

#include "ops/product/pack.h"

/* Whether these panels are the ones that a product of this kind with `a` and this kernel would pack, in `KC blocks` KC
 * blocks. */
bool hc_prepacked_fits(const hc_prepacked *prepacked, hc_order kind, const hc_source *a, const hc_kernel *kernel,
                       int64_t kc_count);

/* Makes `side` use the panels from `first` on. */
void hc_prepacked_panels(const hc_prepacked *prepacked, int64_t first, hc_panels *side);

#endif
