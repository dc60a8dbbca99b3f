/* Operations of 8 values at a time: hc_pointwise_f32_avx2; kernels/pointwise/pointwise.h. */
#include "base/lanes/avx2.h"

#include "kernels/pointwise/pointwise_f32.h"

void hc_pointwise_f32_avx2(int64_t n, const hc_pointwise_part *part) { pointwise_part(n, part); }
