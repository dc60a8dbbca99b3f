/* A tile of an integer convolution for any registers: n windows by two registers of filters, 4 values of a run at a
 * time, as in gemm_s8 of the same set, but each window is read in place. Included after the definitions of
 *
 *   VALUE, MR, NR                 type of the values of a row: uint8_t or int16_t
 *   vector, start, load_b         a sum's first value from init; half h of 4 values of all filters
 *   broadcast, dot, put           4 values of a window in all lanes; sum + x b; the two sums of a window into c
 *   put_half                      the first sum of a window into c. If it holds the first NR / 2 filters,
 *                                 HC_DIRECT_S8_HALVES defines tiles of up to NR / 2 filters, which take half the time
 */
#ifndef HC_DIRECT_S8_H
#define HC_DIRECT_S8_H

#include <string.h>

INLINE void tile(const int n, const int halves, int64_t taps, const int64_t *tap, int64_t run, const void *const *rows,
                 const int8_t *panel, const int32_t *init, int32_t *c, int64_t ldc) {
    vector sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) {
        sum[i][0] = start(init, 0);
        sum[i][1] = halves == 2 ? start(init, 1) : sum[i][0];
    }
    for (int64_t t = 0; t < taps; t++) {
        const VALUE *x[MR];
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            x[i] = (const VALUE *)rows[i] + tap[t];
        for (int64_t v = 0; v < run; v += 4, panel += 4 * NR) {
            const vector low = load_b(panel, 0), high = halves == 2 ? load_b(panel, 1) : low;
#pragma GCC unroll 16
            for (int i = 0; i < n; i++) {
                const vector values = broadcast(x[i] + v);
                sum[i][0] = dot(sum[i][0], values, low);
                if (halves == 2)
                    sum[i][1] = dot(sum[i][1], values, high);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        if (halves == 2)
            put(c + i * ldc, init, sum[i][0], sum[i][1]);
        else
            put_half(c + i * ldc, init, sum[i][0]);
}

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, halves, taps, tap, run, rows, panel, init, c, ldc);                                                    \
        break;
#define HC_TILES(name, number, cases)                                                                                  \
    static void name(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows, const int8_t *panel,      \
                     const int32_t *init, int n_rows, int32_t *c, int64_t ldc) {                                       \
        enum { halves = number };                                                                                      \
        switch (n_rows) { cases }                                                                                      \
    }
#define HC_DIRECT_S8(isa, cases)                                                                                       \
    HC_TILES(tiles, 2, cases)                                                                                          \
    void hc_direct_s8_##isa(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows,                    \
                            const int8_t *panel, const int32_t *init, int n_rows, int columns, int32_t *c,             \
                            int64_t ldc) {                                                                             \
        (void)columns;                                                                                                 \
        tiles(taps, tap, run, rows, panel, init, n_rows, c, ldc);                                                      \
    }
#define HC_DIRECT_S8_HALVES(isa, cases)                                                                                \
    HC_TILES(tiles, 2, cases)                                                                                          \
    HC_TILES(half_tiles, 1, cases)                                                                                     \
    void hc_direct_s8_##isa(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows,                    \
                            const int8_t *panel, const int32_t *init, int n_rows, int columns, int32_t *c,             \
                            int64_t ldc) {                                                                             \
        if (columns > NR / 2)                                                                                          \
            tiles(taps, tap, run, rows, panel, init, n_rows, c, ldc);                                                  \
        else                                                                                                           \
            half_tiles(taps, tap, run, rows, panel, init, n_rows, c, ldc);                                             \
    }
#define HC_CASES_6 HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6)
#define HC_CASES_12 HC_CASES_6 HC_CASE(7) HC_CASE(8) HC_CASE(9) HC_CASE(10) HC_CASE(11) HC_CASE(12)

#endif
