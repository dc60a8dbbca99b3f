/* gemv_sum, the definition. */
#include "kernels/kernel.h"

int64_t hc_gemv_sum_scalar(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (int64_t)(int32_t)integers[i] * (int32_t)((uint32_t)dots[i] - (uint32_t)corrections[i]);
    return sum;
}
