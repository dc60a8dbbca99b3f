/* Definition of nonzero weights times a panel of activations; kernels/sparse/nm.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { NR = 32 };

void hc_gemm_nm_f32_scalar(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                           int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to, const char *next,
                           int64_t next_bytes) {
    (void)next, (void)next_bytes;
    for (int64_t i = 0; i < rows; i++, values += count, at += count, to += ld_to) {
        float sum[NR];
        for (int j = 0; j < lanes; j++)
            sum[j] = from ? from[i * ld_from + j] : 0.0f;
        for (int64_t t = 0; t < count; t++)
            for (int j = 0; j < lanes; j++)
                sum[j] = fmaf(values[t], panel[at[t] * lanes + j], sum[j]);
        for (int j = 0; j < lanes; j++)
            to[j] = sum[j];
    }
}
