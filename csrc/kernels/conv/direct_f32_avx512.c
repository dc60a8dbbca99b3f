/* A tile of a convolution: 14 windows by 2 registers of filters are 28 accumulators, as in gemm_f32. Windows are read
 * in place, each through its own pointer, so nothing is gathered or transposed. Few filters use fewer registers, and
 * the last 8 filters use half a register, which takes half the time if a unit has 256 bits (Zen 4). */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 14, NR = 32, HALF = 8 };

/* Sums of halves of registers: whole registers first, then the rest. */
typedef struct {
    __m512 whole[2];
    __m256 half;
} sums;

INLINE void put(float *c, int columns, const int halves, const sums *sum) {
    const int wholes = halves / 2;
    const bool full = columns == halves * HALF;
    const __mmask16 last = (__mmask16)(0xffffu >> (halves * HALF - columns));
#pragma GCC unroll 2
    for (int h = 0; h < wholes; h++)
        if (full || halves % 2 || h + 1 < wholes)
            _mm512_storeu_ps(c + 16 * h, sum->whole[h]);
        else
            _mm512_mask_storeu_ps(c + 16 * h, last, sum->whole[h]);
    if (halves % 2 && full)
        _mm256_storeu_ps(c + 16 * wholes, sum->half);
    else if (halves % 2)
        _mm256_mask_storeu_ps(c + 16 * wholes, (__mmask8)(last >> HALF), sum->half);
}

INLINE void tile(const int n, const int halves, int64_t taps, int64_t run, const float *const *rows, const float *panel,
                 int64_t tap_step, int64_t step, int columns, float *c, int64_t ldc) {
    const int wholes = halves / 2;
    sums sum[MR];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) {
        sum[i].whole[0] = sum[i].whole[1] = _mm512_setzero_ps();
        sum[i].half = _mm256_setzero_ps();
    }
    for (int64_t t = 0; t < taps; t++, rows += MR, panel += tap_step) {
        const float *filter = panel;
        for (int64_t v = 0; v < run; v++, filter += step) {
            __m512 filters[2] = {{0}};
            __m256 few = _mm256_setzero_ps();
#pragma GCC unroll 2
            for (int h = 0; h < wholes; h++)
                filters[h] = _mm512_loadu_ps(filter + 16 * h);
            if (halves % 2)
                few = _mm256_loadu_ps(filter + 16 * wholes);
#pragma GCC unroll 16
            for (int i = 0; i < n; i++) {
                const __m512 x =
                    halves > 1 ? _mm512_set1_ps(rows[i][v]) : _mm512_castps256_ps512(_mm256_set1_ps(rows[i][v]));
#pragma GCC unroll 2
                for (int h = 0; h < wholes; h++)
                    sum[i].whole[h] = _mm512_fmadd_ps(x, filters[h], sum[i].whole[h]);
                if (halves % 2)
                    sum[i].half = _mm256_fmadd_ps(_mm512_castps512_ps256(x), few, sum[i].half);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++, c += ldc)
        put(c, columns, halves, &sum[i]);
}

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, halves, taps, run, rows, panel, tap_step, step, columns, c, ldc);                                      \
        break;
#define HC_CASES_7 HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6) HC_CASE(7)
#define HC_CASES HC_CASES_7 HC_CASE(8) HC_CASE(9) HC_CASE(10) HC_CASE(11) HC_CASE(12) HC_CASE(13) HC_CASE(14)
#define HC_HALVES(number)                                                                                              \
    static void halves_##number(int64_t taps, int64_t run, const float *const *rows, const float *panel,               \
                                int64_t tap_step, int64_t step, int n_rows, int columns, float *c, int64_t ldc) {      \
        enum { halves = number };                                                                                      \
        switch (n_rows) { HC_CASES }                                                                                   \
    }
HC_HALVES(1)
HC_HALVES(2)
HC_HALVES(3)
HC_HALVES(4)

void hc_direct_f32_avx512(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,
                          int64_t step, int n_rows, int columns, float *c, int64_t ldc) {
    if (columns > 24)
        halves_4(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
    else if (columns > 16)
        halves_3(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
    else if (columns > 8)
        halves_2(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
    else
        halves_1(taps, run, rows, panel, tap_step, step, n_rows, columns, c, ldc);
}
