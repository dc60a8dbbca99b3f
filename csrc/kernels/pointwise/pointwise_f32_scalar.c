/* Operations of one value at a time: hc_pointwise_f32_scalar; kernels/pointwise/pointwise.h. */
#include "base/lanes/scalar.h"

#include "kernels/pointwise/pointwise_f32.h"

void hc_pointwise_f32_scalar(int64_t n, const hc_pointwise_part *part) { pointwise_part(n, part); }
