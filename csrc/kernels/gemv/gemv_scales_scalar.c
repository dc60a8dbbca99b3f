/* gemv_scales, the definition. */
#include "kernels/gemv/gemv_tail.h"

void hc_gemv_scales_scalar(const uint8_t *stored, int kind, float factor, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = factor * hc_gemv_scale(stored, kind, i);
}
