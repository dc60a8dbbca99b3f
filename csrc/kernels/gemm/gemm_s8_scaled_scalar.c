/* Definition of the int8 matmul with float32 group scales; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { MR = 4, NR = 8, KR = 4 };

void hc_gemm_s8_scaled_scalar(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                              bool accumulate) {
    const int16_t *words = a;
    (void)init;
    for (int i = 0; i < MR * NR && !accumulate; i++)
        c[i] = 0.0f;
    for (int64_t s = 0; s < n_segments; s++, scale_a += MR, scale_b += NR) {
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) {
                uint32_t sum = 0;
                for (int32_t step = 0; step < steps[s]; step++)
                    for (int k = 0; k < KR; k++)
                        sum += (uint32_t)(words[(step * MR + i) * KR + k] * b[(step * NR + j) * KR + k]);
                const float scale = scale_a[i] * scale_b[j];
                c[i * NR + j] = fmaf(scale, (float)(int32_t)sum, c[i * NR + j]);
            }
        words += (int64_t)steps[s] * MR * KR;
        b += (int64_t)steps[s] * NR * KR;
    }
}
