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

/* Rows of x are widened once for all rows of w, a piece at a time, which stays in L1. */
enum { PIECE = 1024, LD_WIDE = PIECE + 32 /* rows start in different sets of L1 */, LEAST_WIDE = 12 /* rows of w */ };

/* The last n < STEP columns of a row, 0 instead of the others; `before` columns before them can be read. */
INLINE __m128i load_bytes(const int8_t *w, int n, int64_t before) {
    static const int8_t places[2 * STEP] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (before < STEP) {
        int8_t bytes[STEP] = {0};
        memcpy(bytes, w, (size_t)n);
        return _mm_loadu_si128((const __m128i *)(const void *)bytes);
    }
    const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(w + n - STEP));
    return _mm_shuffle_epi8(codes, _mm_loadu_si128((const __m128i *)(const void *)(places + STEP - n)));
}

/* Like dot, with x in memory: 12 sums and three rows of w leave one register. */
INLINE vector dot_wide(vector sum, vector w, const int16_t *x) {
    vector products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(w), "m"(*(const vector *)(const void *)x));
    return sum;
}

INLINE void add_wide(int n_x, int n_w, const vector *codes, int64_t k, int16_t x[][LD_WIDE], vector sum[][4]) {
#pragma GCC unroll 8
    for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            sum[i][b] = dot_wide(sum[i][b], codes[b], x[i] + k);
}

/* Writes the sums of a tile without `added` times those of x, two rows of x at a time if there are two of w. */
INLINE void put_all(int32_t *c, int64_t ldc, int n_x, int n_w, int rows, vector sum[][4], const int32_t *x_sums,
                    int added, bool accumulate) {
    const bool pairs = n_w == 2 && rows == 2;
#pragma GCC unroll 8
    for (int i = 0; i < n_x; i++) {
        const int32_t shift = (int32_t)((uint32_t)x_sums[i] * (uint32_t)added);
        if (pairs && i % 2 == 1) {
            const vector four[4] = {sum[i - 1][0], sum[i - 1][1], sum[i][0], sum[i][1]};
            const int32_t shift_before = (int32_t)((uint32_t)x_sums[i - 1] * (uint32_t)added);
            int32_t *const first = c + (i - 1) * ldc, *const second = first + ldc;
            __m128i sums = fold(four);
            if (added)
                sums = _mm_sub_epi32(sums, _mm_setr_epi32(shift_before, shift_before, shift, shift));
            if (accumulate)
                sums = _mm_add_epi32(sums, _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)first),
                                                              _mm_loadl_epi64((const __m128i *)(const void *)second)));
            _mm_storel_epi64((__m128i *)(void *)first, sums);
            _mm_storel_epi64((__m128i *)(void *)second, _mm_unpackhi_epi64(sums, sums));
        } else if (!pairs || i == n_x - 1) {
            put(c + i * ldc, rows, fold(sum[i]), shift, accumulate);
        }
    }
}

INLINE void multiply_wide(const hc_rows_s8_args *args, const int n_x, const int n_w) {
    _Alignas(64) int16_t wide[HC_ROWS_X][LD_WIDE];
    int until = args->part; /* as in rows_s8.h */
    for (int64_t first = 0; first < args->columns; first += PIECE) {
        const int64_t columns = hc_min(PIECE, args->columns - first), whole = columns / STEP * STEP;
        const bool accumulate = args->accumulate || first > 0;
        for (int i = 0; i < n_x; i++)
            for (int64_t k = 0; k < columns; k += STEP)
                _mm256_store_si256((vector *)(void *)(wide[i] + k), load_x(args->x + i * args->ld_x + first + k));
        for (int64_t j = 0; j < args->n_w; j += n_w) {
            const int rows = (int)hc_min(n_w, args->n_w - j);
            const int8_t *w[4];
            vector sum[HC_ROWS_X][4], codes[4];
            uintptr_t next = 0;
            if (args->next && until-- == 0) {
                next = (uintptr_t)args->next + (uintptr_t)(j * args->ld_w + first);
                until = args->parts - 1;
            }
#pragma GCC unroll 4
            for (int b = 0; b < n_w; b++)
                w[b] = args->w + (j + hc_min(b, rows - 1)) * args->ld_w + first;
#pragma GCC unroll 8
            for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
                for (int b = 0; b < 4; b++)
                    sum[i][b] = (vector){0};
            for (int64_t k = 0; next && k < columns; k += HC_CACHE_LINE)
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    _mm_prefetch((const char *)(next + (uintptr_t)(b * args->ld_w + k)), _MM_HINT_T1);
            for (int64_t k = 0; k < whole; k += STEP) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    codes[b] = load_w(w[b] + k);
                add_wide(n_x, n_w, codes, k, wide, sum);
            }
            if (whole < columns) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    codes[b] = _mm256_cvtepi8_epi16(load_bytes(w[b] + whole, (int)(columns - whole), first + whole));
                add_wide(n_x, n_w, codes, whole, wide, sum);
            }
            put_all(args->c + j, args->ldc, n_x, n_w, rows, sum, args->x_sums, 0, accumulate);
        }
    }
}

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

INLINE vector load_small_tail(const int8_t *w, int n, int64_t before) {
    const __m128i low = n < STEP ? load_bytes(w, n, before) : _mm_loadu_si128((const __m128i *)(const void *)w);
    const __m128i high = n > STEP ? load_bytes(w + STEP, n - STEP, before + STEP) : _mm_setzero_si128();
    return _mm256_add_epi8(_mm256_set_m128i(high, low), _mm256_set1_epi8(SMALL_ADDED));
}

INLINE void add_small(int n_x, int n_w, const vector *codes, const int8_t *x, int64_t ld_x, vector part[][4]) {
#pragma GCC unroll 8
    for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            part[i][b] = dot_small(part[i][b], codes[b], x + i * ld_x);
}

INLINE void multiply_small(const hc_rows_s8_args *args, const int n_x, const int n_w) {
    const vector ones = _mm256_set1_epi16(1);
    for (int64_t j = 0; j < args->n_w; j += n_w) {
        const int rows = (int)hc_min(n_w, args->n_w - j);
        const int8_t *w[4];
        vector sum[HC_ROWS_X][4];
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            w[b] = args->w + (j + hc_min(b, rows - 1)) * args->ld_w;
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
            for (; k + SMALL_STEP <= until; k += SMALL_STEP) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    codes[b] = load_small(w[b] + k);
                add_small(n_x, n_w, codes, args->x + k, args->ld_x, part);
            }
            if (k < until) {
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    codes[b] = load_small_tail(w[b] + k, (int)(until - k), k);
                add_small(n_x, n_w, codes, args->x + k, args->ld_x, part);
                k = until;
            }
#pragma GCC unroll 8
            for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    sum[i][b] = _mm256_add_epi32(sum[i][b], _mm256_madd_epi16(part[i][b], ones));
        }
        put_all(args->c + j, args->ldc, n_x, n_w, rows, sum, args->x_sums, SMALL_ADDED, args->accumulate);
    }
}

#define HC_ROWS_WIDE(n, n_w)                                                                                           \
    case n:                                                                                                            \
        multiply_wide(args, n, n_w);                                                                                   \
        break;
#define HC_ROWS_SMALL(n, n_w)                                                                                          \
    case n:                                                                                                            \
        multiply_small(args, n, n_w);                                                                                  \
        break;

void hc_rows_s8_avx2(const hc_rows_s8_args *args) {
    if (!args->is_small && args->n_x > 2 && args->n_w >= LEAST_WIDE) {
        switch (args->n_x) {
            HC_ROWS_WIDE(3, 3)
            HC_ROWS_WIDE(4, 3)
            HC_ROWS_WIDE(5, 2)
            HC_ROWS_WIDE(6, 2)
        }
        return;
    }
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
