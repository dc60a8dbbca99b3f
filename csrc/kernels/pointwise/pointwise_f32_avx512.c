/* Operations of 16 values at a time: hc_pointwise_f32_avx512; kernels/pointwise/pointwise.h. */
#include "base/lanes/avx512.h"

#include "kernels/pointwise/pointwise_f32.h"

void hc_pointwise_f32_avx512(int64_t n, const hc_pointwise_part *part) { pointwise_part(n, part); }
