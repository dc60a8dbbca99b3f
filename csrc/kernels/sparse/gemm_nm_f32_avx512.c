/* The product of kept weights with a panel of activations: a weight's row keeps its sums in up to 4 registers, each
 * kept value is broadcast and meets the panel row of its position, a memory operand. Rows go together, so that no sum
 * waits for the one before. Loads are what it waits for: values are broadcast from registers, positions come by four. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

enum { LANES = 16 };

static inline __attribute__((always_inline)) void meet(const int registers, __m512 w, const float *x, __m512 *sum) {
#pragma GCC unroll 4
    for (int r = 0; r < registers; r++)
        sum[r] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x + r * LANES), sum[r]);
}

/* `together` rows at a time, `registers` sums each; returns how many rows that were. */
static inline __attribute__((always_inline)) int64_t walk(const int registers, const int together, int64_t rows,
                                                          int64_t count, const float *values, const uint16_t *at,
                                                          const float *panel, const float *from, int64_t ld_from,
                                                          float *to, int64_t ld_to, const char *next, int64_t share) {
    const __m512i one = _mm512_set1_epi32(1);
    int64_t row = 0;
    for (; row + together <= rows; row += together, to += together * ld_to, next += together * share) {
        for (int64_t byte = 0; byte < together * share; byte += 64)
            _mm_prefetch(next + byte, _MM_HINT_T0);
        __m512 sum[8];
#pragma GCC unroll 8
        for (int i = 0; i < together * registers; i++)
            sum[i] =
                from ? _mm512_loadu_ps(from + i / registers * ld_from + i % registers * LANES) : _mm512_setzero_ps();
        for (int64_t t = 0; t < count; t += LANES) {
            const int64_t end = t + LANES < count ? t + LANES : count;
            const __mmask16 some = (__mmask16)(0xffff >> (LANES - (end - t)));
            __m512i lane = _mm512_setzero_si512();
            __m512 kept[4];
#pragma GCC unroll 4
            for (int i = 0; i < together; i++)
                kept[i] = _mm512_maskz_loadu_ps(some, values + i * count + t);
            int64_t k = t;
            for (; k + 4 <= end; k += 4) {
                uint64_t four[4];
#pragma GCC unroll 4
                for (int i = 0; i < together; i++)
                    memcpy(&four[i], at + i * count + k, sizeof four[i]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
                    for (int i = 0; i < together; i++) {
                        const float *x = panel + (four[i] >> 16 * j & 0xffff) * (uint64_t)(registers * LANES);
                        meet(registers, _mm512_permutexvar_ps(lane, kept[i]), x, sum + i * registers);
                    }
                    lane = _mm512_add_epi32(lane, one);
                }
            }
            for (; k < end; k++) {
#pragma GCC unroll 4
                for (int i = 0; i < together; i++) {
                    const float *x = panel + (int64_t)at[i * count + k] * registers * LANES;
                    meet(registers, _mm512_permutexvar_ps(lane, kept[i]), x, sum + i * registers);
                }
                lane = _mm512_add_epi32(lane, one);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < together * registers; i++)
            _mm512_storeu_ps(to + i / registers * ld_to + i % registers * LANES, sum[i]);
        values += together * count;
        at += together * count;
        from = from ? from + together * ld_from : NULL;
    }
    return row;
}

void hc_gemm_nm_f32_avx512(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
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
    }
#undef CASE
#undef WALK
}
