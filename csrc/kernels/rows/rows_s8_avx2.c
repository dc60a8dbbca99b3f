/* Dot products of rows by vpmaddwd, exact where vpmaddubsw saturates: both sides are widened to int16 when they are
 * loaded. */
#include "kernels/rows/rows_s8_avx2.h"
#include "kernels/dots/avx2.h"

enum { STEP = 16, ADDED = 0 };

INLINE vector load_w(const int8_t *w) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w)); }
INLINE vector load_x(const int8_t *x) { return load_w(x); }
INLINE vector load_w_tail(const int8_t *w, int n) {
    int8_t bytes[STEP] = {0};
    memcpy(bytes, w, (size_t)n);
    return load_w(bytes);
}

#include "kernels/rows/rows_s8.h"

/* |w| <= 8: 2 (w + 8) |x| <= 2 * 16 * 128, and int16 holds seven such sums of vpmaddubsw. */
enum { SMALL_STEP = 32, SMALL_STEPS = 7, SMALL_ADDED = 8 };

/* Like dot, with x in memory: 12 sums and two rows of w leave one register. */
INLINE vector dot_small(vector sum, vector w, const int8_t *x) {
    vector products;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(w), "m"(*(const vector *)(const void *)x));
    return sum;
}

INLINE vector load_small(const int8_t *w) {
    return _mm256_add_epi8(_mm256_loadu_si256((const vector *)(const void *)w), _mm256_set1_epi8(SMALL_ADDED));
}

INLINE vector load_small_tail(const int8_t *w, int64_t n) {
    int8_t bytes[SMALL_STEP] = {0};
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (int8_t)(w[i] + SMALL_ADDED);
    return _mm256_loadu_si256((const vector *)(const void *)bytes);
}

INLINE void multiply_small(const hc_rows_s8_args *args, const int n_x, const int n_w) {
    const vector ones = _mm256_set1_epi16(1);
    for (int64_t j = 0; j < args->n_w; j += n_w) {
        const int rows = (int)hc_min(n_w, args->n_w - j);
        vector sum[HC_ROWS_X][4];
#pragma GCC unroll 8
        for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++)
                sum[i][b] = (vector){0};
        for (int64_t k = 0; k < args->columns;) {
            const int64_t until = hc_min(args->columns, k + SMALL_STEPS * SMALL_STEP);
            vector part[HC_ROWS_X][4], codes[4];
#pragma GCC unroll 8
            for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    part[i][b] = (vector){0};
            for (; k < until; k += SMALL_STEP) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++) {
                    const int8_t *w = args->w + (j + hc_min(b, rows - 1)) * args->ld_w + k;
                    codes[b] = until - k < SMALL_STEP ? load_small_tail(w, until - k) : load_small(w);
                }
#pragma GCC unroll 8
                for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
                    for (int b = 0; b < n_w; b++)
                        part[i][b] = dot_small(part[i][b], codes[b], args->x + i * args->ld_x + k);
            }
#pragma GCC unroll 8
            for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    sum[i][b] = _mm256_add_epi32(sum[i][b], _mm256_madd_epi16(part[i][b], ones));
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_x; i++) {
            const uint32_t shift = (uint32_t)args->x_sums[i] * SMALL_ADDED;
            put(args->c + i * args->ldc + j, rows, fold(sum[i]), (int32_t)shift, args->accumulate);
        }
    }
}

#define HC_ROWS_SMALL(n, n_w)                                                                                          \
    case n:                                                                                                            \
        multiply_small(args, n, n_w);                                                                                  \
        break;

void hc_rows_s8_avx2(const hc_rows_s8_args *args) {
    if (!args->is_small) {
        switch (args->n_x) { HC_ROWS_CASES }
        return;
    }
    switch (args->n_x) {
        HC_ROWS_SMALL(1, 4)
        HC_ROWS_SMALL(2, 4)
        HC_ROWS_SMALL(3, 3)
        HC_ROWS_SMALL(4, 3)
        HC_ROWS_SMALL(5, 2)
        HC_ROWS_SMALL(6, 2)
    }
}
