/* Operations of 4 values at a time: hc_pointwise_f32_neon; kernels/pointwise/pointwise.h. */
#include "base/lanes/neon.h"

#include "kernels/pointwise/pointwise_f32.h"

void hc_pointwise_f32_neon(int64_t n, const hc_pointwise_part *part) { pointwise_part(n, part); }
