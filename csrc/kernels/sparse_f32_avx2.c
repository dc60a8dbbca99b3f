/* The product of kept weights with a panel of activations: a weight's row keeps its sums in up to 8 registers, each
 * kept value is broadcast and meets the panel row of its position, a memory operand. */
#include "kernels/kernel.h"

#include <immintrin.h>

hc_sparse_f32_fn hc_sparse_f32_avx2;

enum { LANES = 8 };

static inline __attribute__((always_inline)) void walk(const int registers, int64_t rows, int64_t count,
                                                       const float *values, const uint16_t *at, const float *panel,
                                                       const float *from, int64_t ld_from, float *to, int64_t ld_to,
                                                       const char *next, int64_t next_bytes) {
    const int64_t share = (next_bytes + rows - 1) / rows;
    for (; rows > 0; rows--, to += ld_to, next += share) {
        for (int64_t byte = 0; byte < share; byte += 64)
            _mm_prefetch(next + byte, _MM_HINT_T1);
        __m256 sum[8];
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            sum[r] = from ? _mm256_loadu_ps(from + r * LANES) : _mm256_setzero_ps();
        for (int64_t t = 0; t < count; t++) {
            const float *x = panel + (int64_t)at[t] * registers * LANES;
            const __m256 w = _mm256_set1_ps(values[t]);
#pragma GCC unroll 8
            for (int r = 0; r < registers; r++)
                sum[r] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + r * LANES), sum[r]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            _mm256_storeu_ps(to + r * LANES, sum[r]);
        values += count;
        at += count;
        from = from ? from + ld_from : NULL;
    }
}

void hc_sparse_f32_avx2(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                        int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to, const char *next,
                        int64_t next_bytes) {
    if (lanes == 8 * LANES)
        walk(8, rows, count, values, at, panel, from, ld_from, to, ld_to, next, next_bytes);
    else if (lanes == 4 * LANES)
        walk(4, rows, count, values, at, panel, from, ld_from, to, ld_to, next, next_bytes);
    else if (lanes == 2 * LANES)
        walk(2, rows, count, values, at, panel, from, ld_from, to, ld_to, next, next_bytes);
    else
        walk(1, rows, count, values, at, panel, from, ld_from, to, ld_to, next, next_bytes);
}
