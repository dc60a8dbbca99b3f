/* Dot products of rows with 4-bit codes: 64 bytes of codes are unpacked in registers to u = code + 8, for all rows of
 * x. With scales, one or two rows of x are multiplied by u, and the sum of each word by its scale: |sum| <= 2^14, so
 * vpdpwssd multiplies its lower half by the scale and its upper half by 0. More rows are multiplied by scale * code +
 * 128: two u of one group are a 16-bit number, low + 256 high, and the bytes of its product with the scale are the two
 * products.
 */
#include "kernels/dots/avx512vnni.h"
#include "kernels/rows/rows_s4_avx512.h"

/* The scales of up to 64 bytes of codes, each in its words. */
INLINE vector load_scales(const uint8_t *scales, int64_t n, const int words) {
    const vector lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const vector shifts = _mm512_slli_epi32(_mm512_srli_epi32(lane, words == 2 ? 1 : words == 4 ? 2 : 3), 2);
    const int count = n < 64 ? (int)((n + 8 * words - 1) / (8 * words)) : 8 / words; /* bytes of two scales each */
    const vector packed = _mm512_broadcastd_epi32(_mm_maskz_loadu_epi8((__mmask16)((1 << count) - 1), scales));
    return _mm512_and_si512(_mm512_srlv_epi32(packed, shifts), _mm512_set1_epi32(15));
}

INLINE vector scaled_sum(vector sum, vector dots, vector scales) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(dots), "v"(scales));
    return sum;
}

/* Adds n bytes of codes of n_w rows whose words have scales. */
INLINE void add_words(const hc_rows_s8_args *args, const int n_x, const int n_w, const int words,
                      const uint8_t *const *w, const uint8_t *const *scales, int64_t k, int64_t n, vector sum[][4]) {
    vector even[2], odd[2], start[2];
#pragma GCC unroll 2
    for (int i = 0; i < n_x; i++) {
        even[i] = _mm512_loadu_si512(args->x + i * args->ld_x + 2 * k);
        odd[i] = _mm512_loadu_si512(args->x + i * args->ld_x + 2 * k + 64);
        start[i] = _mm512_loadu_si512(args->start + i * args->ld_start + k / 4);
    }
#pragma GCC unroll 4
    for (int b = 0; b < n_w; b++) {
        vector codes[2];
        load_codes(w[b] + k, n, NULL, 0, PLAIN, codes);
        const vector scale = load_scales(scales[b] + k / (8 * words), n, words);
#pragma GCC unroll 2
        for (int i = 0; i < n_x; i++)
            sum[i][b] = scaled_sum(sum[i][b], dot(dot(start[i], codes[0], even[i]), codes[1], odd[i]), scale);
    }
}

INLINE void add_step(const int n_x, const int n_w, vector codes[][2], const int8_t *x, int64_t ld_x, vector sum[][4]) {
#pragma GCC unroll 8
    for (int i = 0; i < n_x; i++) {
        const vector even = _mm512_loadu_si512(x + i * ld_x), odd = _mm512_loadu_si512(x + i * ld_x + 64);
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            sum[i][b] = dot(sum[i][b], codes[b][0], even);
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++)
            sum[i][b] = dot(sum[i][b], codes[b][1], odd);
    }
}

/* Stores the sums of n_w rows of w, of which `rows` are needed, to c; two rows at once with those of two rows of x. */
INLINE void store(const hc_rows_s8_args *args, const int n_x, const int n_w, int rows, int added, int64_t j,
                  vector sum[][4]) {
    if (n_w == 2) {
#pragma GCC unroll 4
        for (int i = 0; i + 1 < n_x; i += 2) {
            const vector both[4] = {sum[i][0], sum[i][1], sum[i + 1][0], sum[i + 1][1]};
            const __m128i folded = fold(both);
            int32_t *c = args->c + i * args->ldc + j;
            put(c, rows, folded, args->x_sums[i] * added, args->accumulate);
            put(c + args->ldc, rows, _mm_unpackhi_epi64(folded, folded), args->x_sums[i + 1] * added, args->accumulate);
        }
    }
#pragma GCC unroll 8
    for (int i = n_w == 2 ? n_x / 2 * 2 : 0; i < n_x; i++)
        put(args->c + i * args->ldc + j, rows, fold(sum[i]), args->x_sums[i] * added, args->accumulate);
}

/* Prefetches n cache lines that are `ld` bytes apart: one line of each of n rows, or n adjacent lines. */
INLINE void prefetch(uintptr_t from, int64_t ld, const int n) {
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        _mm_prefetch((const char *)(from + (uintptr_t)(i * ld)), _MM_HINT_T0);
}

INLINE void multiply(const hc_rows_s8_args *args, const int n_x, const int n_w, const int words, const bool by_words) {
    const int64_t bytes = (args->columns + 1) / 2, whole = bytes / 64 * 64, tail = bytes - whole, ld_w = args->ld_w;
    const bool expands = words != PLAIN && !by_words, is_dense = ld_w == bytes;
    const int added = by_words ? 0 : words == PLAIN ? 8 : 128;
    hc_scales expanded[4];
    int until = args->part; /* blocks of rows until the next block that prefetches */
    for (int64_t j = 0; j < args->n_w; j += n_w) {
        const int rows = (int)hc_min(n_w, args->n_w - j);
        const uint8_t *w[4], *scales[4];
        vector sum[HC_ROWS_X][4], codes[4][2];
        uintptr_t next = 0;
        if (args->next && until-- == 0) {
            /* possibly after the last row, which a prefetch ignores */
            next = (uintptr_t)args->next + (uintptr_t)(j * ld_w);
            until = args->parts - 1;
            if (words != PLAIN && args->next_scales)
                for (int64_t at = 0; at < n_w * args->ld_scales; at += HC_CACHE_LINE)
                    _mm_prefetch((const char *)((uintptr_t)args->next_scales + (uintptr_t)(j * args->ld_scales + at)),
                                 _MM_HINT_T1);
        }
#pragma GCC unroll 4
        for (int b = 0; b < n_w; b++) {
            const int64_t row = j + hc_min(b, rows - 1);
            w[b] = (const uint8_t *)args->w + row * ld_w;
            scales[b] = words == PLAIN ? NULL : args->scales + row * args->ld_scales;
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_x; i++)
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++)
                sum[i][b] = (vector){0};
        int64_t k = 0, first = 0;
        do {
            const int64_t last = expands ? hc_min(whole, first + SPAN) : whole;
            if (expands)
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    expand(scales[b] + first / (8 * words), words, hc_min(bytes - first, SPAN), expanded + b);
            for (; k < last; k += 64) {
                if (next)
                    prefetch(next + (uintptr_t)(is_dense ? n_w * k : k), is_dense ? 64 : ld_w, n_w);
                if (by_words) {
                    add_words(args, n_x, n_w, words, w, scales, k, 64, sum);
                    continue;
                }
#pragma GCC unroll 4
                for (int b = 0; b < n_w; b++)
                    load_codes(w[b] + k, 64, expanded + b, expands ? (k - first) / (4 * words) : 0, words, codes[b]);
                add_step(n_x, n_w, codes, args->x + 2 * k, args->ld_x, sum);
            }
            first += SPAN;
        } while (expands && first < bytes);
        if (tail && next) /* otherwise one line of each row of 288 bytes would not be prefetched */
            prefetch(next + (uintptr_t)(is_dense ? n_w * whole : whole), is_dense ? 64 : ld_w, n_w);
        if (tail && by_words) {
            add_words(args, n_x, n_w, words, w, scales, k, tail, sum);
        } else if (tail) {
#pragma GCC unroll 4
            for (int b = 0; b < n_w; b++)
                load_codes(w[b] + k, tail, expanded + b, expands ? k % SPAN / (4 * words) : 0, words, codes[b]);
            add_step(n_x, n_w, codes, args->x + 2 * k, args->ld_x, sum);
        }
        store(args, n_x, n_w, rows, added, j, sum);
    }
}

/* As many rows of w as there are registers for their codes. Each case is a function of its own: the time of a compiler
 * grows faster than the length of a function. */
#define ROWS(words, n_x, n_w)                                                                                          \
    static __attribute__((noinline)) void of_##words##_##n_x(const hc_rows_s8_args *args) {                            \
        multiply(args, n_x, n_w, words, false);                                                                        \
    }
#define BY_WORDS(words, n_x)                                                                                           \
    static __attribute__((noinline)) void by_##words##_##n_x(const hc_rows_s8_args *args) {                            \
        multiply(args, n_x, 4, words, true);                                                                           \
    }
#define OF_WORDS(words)                                                                                                \
    ROWS(words, 1, 4)                                                                                                  \
    ROWS(words, 2, 4)                                                                                                  \
    ROWS(words, 3, 4)                                                                                                  \
    ROWS(words, 4, 4)                                                                                                  \
    ROWS(words, 5, 3)                                                                                                  \
    ROWS(words, 6, 3)                                                                                                  \
    ROWS(words, 7, 2)                                                                                                  \
    ROWS(words, 8, 2)
#define FUNCTIONS(words)                                                                                               \
    {of_##words##_1, of_##words##_2, of_##words##_3, of_##words##_4,                                                   \
     of_##words##_5, of_##words##_6, of_##words##_7, of_##words##_8}
OF_WORDS(PLAIN)
OF_WORDS(2)
OF_WORDS(4)
OF_WORDS(8)
BY_WORDS(2, 1)
BY_WORDS(2, 2)
BY_WORDS(4, 1)
BY_WORDS(4, 2)
BY_WORDS(8, 1)
BY_WORDS(8, 2)

void hc_rows_s4_avx512vnni(const hc_rows_s8_args *args) {
    typedef void function(const hc_rows_s8_args *args);
    static function *const BY_SCALED_CODES[4][8] = {FUNCTIONS(PLAIN), FUNCTIONS(2), FUNCTIONS(4), FUNCTIONS(8)};
    static function *const BY_SCALED_WORDS[3][2] = {{by_2_1, by_2_2}, {by_4_1, by_4_2}, {by_8_1, by_8_2}};
    const int which = args->words == PLAIN ? 0 : args->words == 2 ? 1 : args->words == 4 ? 2 : 3;
    const int n_x = args->n_x >= 1 && args->n_x < 8 ? args->n_x : 8;
    if (which > 0 && args->start && n_x <= 2)
        BY_SCALED_WORDS[which - 1][n_x - 1](args);
    else
        BY_SCALED_CODES[which][n_x - 1](args);
}
