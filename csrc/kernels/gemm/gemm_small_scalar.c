/* Definition of products of small weights, with float32 group scales and with integer ones; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { MR = 4, NR = 8, KR = 4 };

void hc_gemm_small_scaled_scalar(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                 const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                                 bool accumulate) {
    const uint8_t *bytes = a;
    for (int i = 0; i < MR * NR && !accumulate; i++)
        c[i] = 0.0f;
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_a += MR, scale_b += NR) {
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) {
                uint32_t sum = (uint32_t)init[j];
                for (int32_t step = 0; step < steps[s]; step++)
                    for (int k = 0; k < KR; k++)
                        sum += (uint32_t)(bytes[(step * MR + i) * KR + k] * b[(step * NR + j) * KR + k]);
                const float scale = scale_a[i] * scale_b[j];
                c[i * NR + j] = fmaf(scale, (float)(int32_t)sum, c[i * NR + j]);
            }
        bytes += (int64_t)steps[s] * MR * KR;
        b += (int64_t)steps[s] * NR * KR;
    }
}

void hc_gemm_small_split_scalar(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                const int32_t *init, const float *scale_b, int32_t *c) {
    const uint8_t *bytes = a;
    for (int i = 0; i < MR * NR; i++)
        c[i] = 0;
    for (int64_t s = 0; s < n_segments; s++, init += NR, scale_b += NR) {
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) {
                uint32_t sum = (uint32_t)init[j];
                for (int32_t step = 0; step < steps[s]; step++)
                    for (int k = 0; k < KR; k++)
                        sum += (uint32_t)(bytes[(step * MR + i) * KR + k] * b[(step * NR + j) * KR + k]);
                c[i * NR + j] = (int32_t)((uint32_t)c[i * NR + j] + (uint32_t)(int32_t)scale_b[j] * sum);
            }
        bytes += (int64_t)steps[s] * MR * KR;
        b += (int64_t)steps[s] * NR * KR;
    }
}
