/* The product of kept weights with a panel of activations: a weight's row keeps its sums in up to 8 registers, each
 * kept value is broadcast and meets the panel row of its position, a memory operand. Rows with few sums go together, so
 * that no sum waits for the one before. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 8 };

/* `together` rows at a time, `registers` sums each; returns how many rows that were. */
static inline __attribute__((always_inline)) int64_t walk(const int registers, const int together, int64_t rows,
                                                          int64_t count, const float *values, const uint16_t *at,
                                                          const float *panel, const float *from, int64_t ld_from,
                                                          float *to, int64_t ld_to, const char *next, int64_t share) {
    int64_t row = 0;
    for (; row + together <= rows; row += together, to += together * ld_to, next += together * share) {
        for (int64_t byte = 0; byte < together * share; byte += 64)
            _mm_prefetch(next + byte, _MM_HINT_T1);
        __m256 sum[8];
#pragma GCC unroll 8
        for (int i = 0; i < together * registers; i++)
            sum[i] =
                from ? _mm256_loadu_ps(from + i / registers * ld_from + i % registers * LANES) : _mm256_setzero_ps();
        for (int64_t t = 0; t < count; t++) {
#pragma GCC unroll 4
            for (int i = 0; i < together; i++) {
                const float *x = panel + (int64_t)at[i * count + t] * registers * LANES;
                const __m256 w = _mm256_set1_ps(values[i * count + t]);
#pragma GCC unroll 8
                for (int r = 0; r < registers; r++)
                    sum[i * registers + r] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + r * LANES), sum[i * registers + r]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < together * registers; i++)
            _mm256_storeu_ps(to + i / registers * ld_to + i % registers * LANES, sum[i]);
        values += together * count;
        at += together * count;
        from = from ? from + together * ld_from : NULL;
    }
    return row;
}

void hc_gemm_nm_f32_avx2(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                         int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to, const char *next,
                         int64_t next_bytes) {
    const int64_t share = (next_bytes + rows - 1) / rows;
    const int registers = lanes / LANES;
    int64_t row = 0;
#define WALK(registers, together)                                                                                      \
    walk(registers, together, rows - row, count, values + row * count, at + row * count, panel,                        \
         from ? from + row * ld_from : NULL, ld_from, to + row * ld_to, ld_to, next + row * share, share)
#define CASE(registers, together)                                                                                      \
    case registers:                                                                                                    \
        row += WALK(registers, together);                                                                              \
        if (together > 1)                                                                                              \
            WALK(registers, 1);                                                                                        \
        break;
    switch (registers) {
        CASE(1, 4)
        CASE(2, 4)
        CASE(3, 2)
        CASE(4, 2)
        CASE(5, 1)
        CASE(6, 1)
        CASE(7, 1)
        CASE(8, 1)
    }
#undef CASE
#undef WALK
}
