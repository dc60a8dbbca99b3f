/* hc_attend_avx512 and hc_attend_codes_avx512: kernels/layers/layers.h. Up to ROWS rows of queries that see the same
 * keys share each register of keys, so that codes are converted once for all of them.
 */
#define HC_FLOATS 16
#include "kernels/kernel.h"
#include "kernels/layers/sums.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* ROWS rows of queries times BLOCK keys at once are 24 sums in registers. WIDE: registers of an answer. */
enum { ROWS = 3, BLOCK = 8, WIDE = 4 };

#define QUARTERS(a, b, low, high) _mm512_add_ps(_mm512_shuffle_f32x4(a, b, low), _mm512_shuffle_f32x4(a, b, high))
#define INSIDE(a, b, low, high) _mm512_add_ps(_mm512_shuffle_ps(a, b, low), _mm512_shuffle_ps(a, b, high))

/* Adds lanes i and i + 8, + 4 and + 2 of the sums of 8 keys: two lanes per key remain, in the order 0 2 4 6 1 3 5 7. */
INLINE __m512 fold_most(const __m512 *sums) {
    __m512 half[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        half[j] = QUARTERS(sums[j], sums[j + 4], 0x44, 0xee);
    return INSIDE(QUARTERS(half[0], half[1], 0x88, 0xdd), QUARTERS(half[2], half[3], 0x88, 0xdd), 0x44, 0xee);
}

/* The sums of 8 keys for each of two rows of queries. */
INLINE __m512 fold(const __m512 *one, const __m512 *other) {
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13, 2, 10, 3, 11, 6, 14, 7, 15);
    return _mm512_permutexvar_ps(order, INSIDE(fold_most(one), fold_most(other), 0x88, 0xdd));
}

INLINE __mmask16 mask_of(int64_t left) {
    return left >= 16 ? (__mmask16)0xffff : left <= 0 ? (__mmask16)0 : (__mmask16)((1u << left) - 1);
}

/* A key as it is stored: values and scales. */
typedef struct {
    const char *values;
    const uint8_t *scales;
} hc_key;
INLINE hc_key key_of(const hc_attend_keys *keys, const bool coded, int64_t key) {
    return coded ? (hc_key){(const char *)keys->codes + key * keys->ld, keys->scales + key * keys->scales_ld}
                 : (hc_key){(const char *)(keys->data + key * keys->ld), NULL};
}

/* 16 values of a key from value i on; their scale is at byte `group` of its scales. tail: only the values of the
 * mask. */
INLINE __m512 load_key(hc_key key, const bool coded, int64_t i, int64_t group, const bool tail, __mmask16 there) {
    if (!coded)
        return tail ? _mm512_maskz_loadu_ps(there, (const float *)(const void *)key.values + i)
                    : _mm512_loadu_ps((const float *)(const void *)key.values + i);
    float scale;
    memcpy(&scale, key.scales + group, sizeof scale);
    const __m128i codes = tail ? _mm_maskz_loadu_epi8(there, key.values + i)
                               : _mm_loadu_si128((const __m128i *)(const void *)(key.values + i));
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    return tail ? _mm512_maskz_mul_ps(there, values,
                                      _mm512_set1_ps(scale)) /* masked: 0 times an infinite scale would be NaN */
                : _mm512_mul_ps(values, _mm512_set1_ps(scale));
}

INLINE __m512 load_floats(const float *from, const bool tail, __mmask16 there) {
    return tail ? _mm512_maskz_loadu_ps(there, from) : _mm512_loadu_ps(from);
}

/* Prefetches the cache line of value i of a key, once per line. */
INLINE void fetch(hc_key key, const bool coded, int64_t i) {
    if (!coded || i % 64 == 0)
        _mm_prefetch(key.values + (coded ? i : 4 * i), _MM_HINT_T0);
}

INLINE void add_scores(const hc_attend *some, const int rows, const bool coded, const bool tail, int64_t r, int64_t low,
                       int64_t high, int64_t ahead, float (*s)[HC_KEYS]) {
    const float *q = some->q + r * some->q_ld;
    const int64_t ld = some->k.ld * (coded ? 1 : 4) * HC_KEYS; /* to the next tile */
    for (int64_t first = low; first < high; first += BLOCK) {
        __m512 sums[ROWS][BLOCK];
        hc_key key[BLOCK];
#pragma GCC unroll 8
        for (int j = 0; j < BLOCK; j++)
            key[j] = key_of(&some->k, coded, hc_min(first + j, high - 1));
#pragma GCC unroll 3
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
            for (int j = 0; j < BLOCK; j++)
                sums[row][j] = _mm512_setzero_ps();
        int64_t group = 0, group_end = some->k.group;
        for (int64_t i = 0; i < some->width; i += 16) {
            const __mmask16 there = mask_of(some->width - i);
            __m512 a[ROWS];
            if (coded && i == group_end)
                group += 4, group_end += some->k.group;
#pragma GCC unroll 3
            for (int row = 0; row < rows; row++)
                a[row] = load_floats(q + row * some->q_ld + i, tail, there);
            if (first < ahead)
#pragma GCC unroll 8
                for (int j = 0; j < BLOCK; j++)
                    fetch((hc_key){key[j].values + ld, NULL}, coded, i);
#pragma GCC unroll 8
            for (int j = 0; j < BLOCK; j++) {
                const __m512 values = load_key(key[j], coded, i, group, tail, there);
#pragma GCC unroll 3
                for (int row = 0; row < rows; row++)
                    sums[row][j] = _mm512_fmadd_ps(a[row], values, sums[row][j]);
            }
        }
        const __mmask16 seen = mask_of(hc_min(high - first, BLOCK));
#pragma GCC unroll 2
        for (int row = 0; row < rows; row += 2) {
            const __m512 both = fold(sums[row], sums[row + 1 < rows ? row + 1 : row]);
            _mm512_mask_storeu_ps(s[row] + first, seen, both);
            if (row + 1 < rows)
                _mm512_mask_storeu_ps(s[row + 1] + first, seen, _mm512_shuffle_f32x4(both, both, 0xee));
        }
    }
}

/* The sum of all lanes: i and i + 8, then + 4, + 2 and + 1. */
INLINE float sum_lanes(__m512 sums) {
    sums = _mm512_add_ps(sums, _mm512_shuffle_f32x4(sums, sums, 0x4e));
    sums = _mm512_add_ps(sums, _mm512_shuffle_f32x4(sums, sums, 0xb1));
    sums = _mm512_add_ps(sums, _mm512_shuffle_ps(sums, sums, 0x4e));
    return _mm512_cvtss_f32(_mm512_add_ps(sums, _mm512_shuffle_ps(sums, sums, 0xb1)));
}

/* Replaces the scores s of row r by the weights of its values. Returns the factor of the answer so far. */
static __attribute__((noinline)) float weigh(const hc_attend *some, int64_t r, float *s) {
    enum { PARTS = HC_KEYS / 16 };
    const int64_t low = some->low[r], high = some->high[r];
    const __m512 nothing = _mm512_set1_ps(-INFINITY), before = _mm512_set1_ps(some->largest[r]);
    __m512 part[PARTS], largest = before, sums = _mm512_setzero_ps();
    __mmask16 seen[PARTS];
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) {
        seen[i] = (__mmask16)(mask_of(high - 16 * i) & ~mask_of(low - 16 * i));
        part[i] = _mm512_mask_mul_ps(nothing, seen[i], _mm512_maskz_loadu_ps(seen[i], s + 16 * i),
                                     _mm512_set1_ps(some->scale));
        if (some->cap > 0) {
            float capped[16];
            _mm512_storeu_ps(capped, part[i]);
            hc_cap(16, some->cap, capped);
            part[i] = _mm512_mask_loadu_ps(nothing, seen[i], capped);
        }
        largest = _mm512_max_ps(part[i], largest); /* ignores NaN in part[i] */
    }
    largest = _mm512_max_ps(largest, _mm512_shuffle_f32x4(largest, largest, 0x4e));
    largest = _mm512_max_ps(largest, _mm512_shuffle_f32x4(largest, largest, 0xb1));
    largest = _mm512_max_ps(largest, _mm512_shuffle_ps(largest, largest, 0x4e));
    largest = _mm512_max_ps(largest, _mm512_shuffle_ps(largest, largest, 0xb1));
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) {
        part[i] = (__m512)hc_exp_of_less((hc_floats)_mm512_sub_ps(part[i], largest));
        part[i] = _mm512_maskz_mov_ps(seen[i], part[i]);
        _mm512_storeu_ps(s + 16 * i, part[i]);
        sums = _mm512_add_ps(sums, part[i]);
    }
    const float factor = _mm512_cvtss_f32((__m512)hc_exp_of_less((hc_floats)_mm512_sub_ps(before, largest)));
    some->sum[r] = some->sum[r] * factor + sum_lanes(sums);
    some->largest[r] = _mm512_cvtss_f32(largest);
    return factor;
}

INLINE void add_values(const hc_attend *some, const int rows, const bool coded, const bool tail, int64_t r, int64_t low,
                       int64_t high, int64_t ahead, const float *factor, float (*s)[HC_KEYS]) {
    const int64_t ld = some->v.ld * (coded ? 1 : 4) * HC_KEYS; /* to the next tile */
    for (int64_t first = 0; first < some->width; first += 16 * WIDE) {
        float *answer = some->answer + r * some->width + first;
        __m512 sums[ROWS][WIDE];
        __mmask16 there[WIDE];
        int64_t group[WIDE];
#pragma GCC unroll 4
        for (int i = 0; i < WIDE; i++) {
            there[i] = mask_of(some->width - first - 16 * i);
            group[i] = coded && there[i] ? (first + 16 * i) / some->v.group * 4 : 0;
        }
#pragma GCC unroll 3
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
            for (int i = 0; i < WIDE; i++)
                sums[row][i] = _mm512_mul_ps(load_floats(answer + row * some->width + 16 * i, tail, there[i]),
                                             _mm512_set1_ps(factor[row]));
        for (int64_t j = low; j < high; j++) {
            const hc_key key = key_of(&some->v, coded, j);
            if (j < ahead)
#pragma GCC unroll 4
                for (int i = 0; i < WIDE; i++)
                    fetch((hc_key){key.values + ld, NULL}, coded, first + 16 * i);
#pragma GCC unroll 4
            for (int i = 0; i < WIDE; i++) {
                const __m512 value = load_key(key, coded, first + 16 * i, group[i], tail, there[i]);
#pragma GCC unroll 3
                for (int row = 0; row < rows; row++)
                    sums[row][i] = _mm512_fmadd_ps(_mm512_set1_ps(s[row][j]), value, sums[row][i]);
            }
        }
#pragma GCC unroll 3
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
            for (int i = 0; i < WIDE; i++)
                _mm512_mask_storeu_ps(answer + row * some->width + 16 * i, there[i], sums[row][i]);
    }
}

/* Calls a function for constant `rows`, `coded` and `tail`. */
#define OF_ROWS(call, coded, tail, ...)                                                                                \
    (rows == 3   ? call(some, 3, coded, tail, __VA_ARGS__)                                                             \
     : rows == 2 ? call(some, 2, coded, tail, __VA_ARGS__)                                                             \
                 : call(some, 1, coded, tail, __VA_ARGS__))
#define OF_CODES(call, coded, ...)                                                                                     \
    (some->width % (16 * WIDE) == 0 ? OF_ROWS(call, coded, false, __VA_ARGS__)                                         \
                                    : OF_ROWS(call, coded, true, __VA_ARGS__))

static __attribute__((noinline)) void scores_of(const hc_attend *some, int rows, bool coded, int64_t r, int64_t ahead,
                                                float (*s)[HC_KEYS]) {
    const int64_t low = some->low[r], high = some->high[r];
    coded ? OF_CODES(add_scores, true, r, low, high, ahead, s) : OF_CODES(add_scores, false, r, low, high, ahead, s);
}

static __attribute__((noinline)) void values_of(const hc_attend *some, int rows, bool coded, int64_t r, int64_t ahead,
                                                const float *factor, float (*s)[HC_KEYS]) {
    const int64_t low = some->low[r], high = some->high[r];
    coded ? OF_CODES(add_values, true, r, low, high, ahead, factor, s)
          : OF_CODES(add_values, false, r, low, high, ahead, factor, s);
}

static void attend(const hc_attend *some, bool k_coded, bool v_coded) {
    int64_t ahead = some->ahead;
    for (int64_t r = 0, rows; r < some->rows; r += rows) {
        const int64_t low = some->low[r], high = some->high[r];
        float s[ROWS][HC_KEYS], factor[ROWS];
        rows = 1;
        if (low >= high)
            continue;
        while (rows < ROWS && r + rows < some->rows && some->low[r + rows] == low && some->high[r + rows] == high)
            rows++;
        scores_of(some, (int)rows, k_coded, r, ahead, s);
        for (int row = 0; row < rows; row++)
            factor[row] = weigh(some, r + row, s[row]);
        values_of(some, (int)rows, v_coded, r, ahead, factor, s);
        ahead = 0; /* the first rows have prefetched the next tile */
    }
}

void hc_attend_avx512(const hc_attend *some) { attend(some, false, false); }

void hc_attend_codes_avx512(const hc_attend *some) { attend(some, some->k.codes != NULL, some->v.codes != NULL); }
