/* The body of attention over a tile of keys: kernels/layers/layers.h. One file per instruction set compiles it.
 * Included after the definitions of
 *
 *   HC_FLOATS       float32 values per register
 *   HC_ROWS         most rows of queries that share the loads of a register of keys, if they see the same keys
 *   hc_fold         sums of HC_FLOATS keys, one register each: adds lanes i and i + HC_FLOATS / 2, ..., i and i + 1
 *   hc_code_floats  converts 16 codes to float32, for attend_codes
 */
#include "kernels/layers/sums.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    PARTS = HC_SUMS / HC_FLOATS, /* registers per 16 values */
    MOST_KEYS = 4,               /* keys at once for a single row; for more rows, half as many */
    WIDE = 2                     /* blocks of 16 values of the answer at once */
};

/* Replaces the scores s of row r by the weights of its values. Returns the factor of the answer so far. */
static __attribute__((noinline)) float hc_attend_weights(const hc_attend *some, int64_t r, float *s) {
    const int64_t low = some->low[r], high = some->high[r];
    for (int64_t j = 0; j < low; j++)
        s[j] = -INFINITY; /* keys that this row does not see */
    for (int64_t j = high; j < HC_KEYS; j++)
        s[j] = -INFINITY;
    for (int64_t j = low; j < high; j++)
        s[j] *= some->scale;
    if (some->cap > 0)
        hc_cap(high - low, some->cap, s + low);
    const float largest = hc_largest(HC_KEYS, s, some->largest[r]);
    hc_exp_below(HC_KEYS, s, largest, s);
    for (int64_t j = 0; j < low; j++)
        s[j] = 0;
    for (int64_t j = high; j < HC_KEYS; j++)
        s[j] = 0;
    float factor = some->largest[r];
    hc_exp_below(1, &factor, largest, &factor);
    some->sum[r] = some->sum[r] * factor + hc_sum_16(HC_KEYS, s);
    some->largest[r] = largest;
    return factor;
}

/* A key as it is stored: floats, or codes and their scales. */
typedef struct {
    const float *data;
    const int8_t *codes;
    const uint8_t *scales;
} hc_key;
INLINE hc_key key_of(const hc_attend_keys *keys, const bool coded, int64_t key) {
    return coded ? (hc_key){.codes = keys->codes + key * keys->ld, .scales = keys->scales + key * keys->scales_ld}
                 : (hc_key){.data = keys->data + key * keys->ld};
}

INLINE float scale_of(hc_key key, int64_t group) {
    float scale;
    memcpy(&scale, key.scales + 4 * group, sizeof scale);
    return scale;
}

/* 16 values of a key from value i on; their scale is that of group `group`. */
INLINE void load_key(hc_key key, const bool coded, int64_t i, int64_t group, hc_floats *values) {
    if (coded) {
        const float scale = scale_of(key, group);
        hc_code_floats(key.codes + i, values);
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            values[part] *= scale;
    } else {
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            values[part] = *(const hc_floats *)(key.data + i + part * HC_FLOATS);
    }
}

INLINE float one_value(hc_key key, const bool coded, int64_t i, int64_t group) {
    return coded ? (float)key.codes[i] * scale_of(key, group) : key.data[i];
}

/* Prefetches the cache line of value i of the same key of the next tile. Keys are `ld` values apart. */
INLINE void fetch(hc_key key, const bool coded, int64_t i, int64_t ld) {
    if (!coded)
        __builtin_prefetch(key.data + HC_KEYS * ld + i, 0, 3);
    else if (i % HC_CACHE_LINE == 0)
        __builtin_prefetch(key.codes + HC_KEYS * ld + i, 0, 3);
}

/* Products of `rows` rows of queries and `n` keys, summed in one register per row and key. */
INLINE void multiply_keys(const hc_attend *some, const int rows, const int n, const bool coded, const float *q,
                          const hc_key *key, bool fetches, hc_floats (*sums)[HC_FLOATS]) {
    const int64_t whole = some->width / HC_SUMS * HC_SUMS, left = some->width - whole;
    hc_floats acc[HC_ROWS][MOST_KEYS][PARTS] = {{{{0}}}};
    for (int64_t i = 0; i < whole && fetches; i += HC_SUMS)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++)
            fetch(key[j], coded, i, some->k.ld);
    int64_t group = 0, group_end = some->k.group;
    for (int64_t i = 0; i < whole; i += HC_SUMS) {
        if (coded && i == group_end)
            group++, group_end += some->k.group;
        if (!coded) { /* one register of keys at a time */
#pragma GCC unroll 4
            for (int part = 0; part < PARTS; part++)
#pragma GCC unroll 4
                for (int j = 0; j < n; j++) {
                    const hc_floats k = hc_load(key[j].data + i + part * HC_FLOATS);
#pragma GCC unroll 3
                    for (int row = 0; row < rows; row++)
                        acc[row][j][part] =
                            hc_fma(hc_load(q + row * some->q_ld + i + part * HC_FLOATS), k, acc[row][j][part]);
                }
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            hc_floats k[PARTS];
            load_key(key[j], coded, i, group, k);
#pragma GCC unroll 3
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
                for (int part = 0; part < PARTS; part++)
                    acc[row][j][part] =
                        hc_fma(hc_load(q + row * some->q_ld + i + part * HC_FLOATS), k[part], acc[row][j][part]);
        }
    }
    if (left > 0)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            float k[HC_SUMS] = {0};
            for (int64_t i = 0; i < left; i++)
                k[i] = one_value(key[j], coded, whole + i, coded ? (whole + i) / some->k.group : 0);
#pragma GCC unroll 3
            for (int row = 0; row < rows; row++) {
                float a[HC_SUMS] = {0};
                memcpy(a, q + row * some->q_ld + whole, (size_t)left * sizeof *a);
#pragma GCC unroll 4
                for (int part = 0; part < PARTS; part++)
                    acc[row][j][part] =
                        hc_fma(hc_load(a + part * HC_FLOATS), hc_load(k + part * HC_FLOATS), acc[row][j][part]);
            }
        }
#pragma GCC unroll 3
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
#pragma GCC unroll 2
            for (int half = PARTS / 2; half > 0; half /= 2)
#pragma GCC unroll 2
                for (int part = 0; part < half; part++)
                    acc[row][j][part] += acc[row][j][part + half];
            sums[row][j] = acc[row][j][0];
        }
}

INLINE void add_scores(const hc_attend *some, const int rows, const bool coded, int64_t r, int64_t ahead,
                       float (*s)[HC_KEYS + HC_FLOATS]) {
    const int64_t low = some->low[r], high = some->high[r];
    const int n = rows == 1 ? MOST_KEYS : MOST_KEYS / 2;
    for (int64_t first = low; first < high; first += HC_FLOATS) {
        hc_floats sums[HC_ROWS][HC_FLOATS];
        for (int64_t at = 0; at < HC_FLOATS; at += n) {
            hc_key key[MOST_KEYS];
            hc_floats some_sums[HC_ROWS][HC_FLOATS];
#pragma GCC unroll 4
            for (int j = 0; j < n; j++)
                key[j] = key_of(&some->k, coded, hc_min(first + at + j, high - 1));
            multiply_keys(some, rows, n, coded, some->q + r * some->q_ld, key, first + at < ahead, some_sums);
#pragma GCC unroll 3
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
                for (int j = 0; j < n; j++)
                    sums[row][at + j] = some_sums[row][j];
        }
#pragma GCC unroll 3
        for (int row = 0; row < rows; row++)
            *(hc_floats *)(s[row] + first) = hc_fold(sums[row]);
    }
}

/* answer = answer * factor + sum_j p_j v_j, j ascending, for n blocks of 16 values from `first` on. The sums stay in
 * registers during the loop over keys. */
INLINE void add_values(const hc_attend *some, const int rows, const int n, const bool coded, int64_t r, int64_t first,
                       int64_t ahead, const float *factor, float (*p)[HC_KEYS + HC_FLOATS]) {
    const int64_t low = some->low[r], high = some->high[r];
    float *answer = some->answer + r * some->width + first;
    hc_floats acc[HC_ROWS][WIDE][PARTS];
    int64_t group[WIDE];
#pragma GCC unroll 2
    for (int i = 0; i < n; i++)
        group[i] = coded ? (first + HC_SUMS * i) / some->v.group : 0;
#pragma GCC unroll 3
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int part = 0; part < PARTS; part++)
                acc[row][i][part] =
                    *(const hc_floats *)(answer + row * some->width + HC_SUMS * i + HC_FLOATS * part) * factor[row];
    for (int64_t j = low; j < high; j++) {
        const hc_key key = key_of(&some->v, coded, j);
        if (j < ahead)
#pragma GCC unroll 2
            for (int i = 0; i < n; i++)
                fetch(key, coded, first + HC_SUMS * i, some->v.ld);
#pragma GCC unroll 2
        for (int i = 0; i < n; i++) {
            hc_floats v[PARTS];
            load_key(key, coded, first + HC_SUMS * i, group[i], v);
#pragma GCC unroll 3
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
                for (int part = 0; part < PARTS; part++)
                    acc[row][i][part] = hc_fma(hc_of(p[row][j]), v[part], acc[row][i][part]);
        }
    }
#pragma GCC unroll 3
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int part = 0; part < PARTS; part++)
                *(hc_floats *)(answer + row * some->width + HC_SUMS * i + HC_FLOATS * part) = acc[row][i][part];
}

INLINE void add_all_values(const hc_attend *some, const int rows, const bool coded, int64_t r, int64_t ahead,
                           const float *factor, float (*s)[HC_KEYS + HC_FLOATS]) {
    int64_t i = 0;
    for (; i + WIDE * HC_SUMS <= some->width; i += WIDE * HC_SUMS)
        add_values(some, rows, WIDE, coded, r, i, ahead, factor, s);
    for (; i + HC_SUMS <= some->width; i += HC_SUMS)
        add_values(some, rows, 1, coded, r, i, ahead, factor, s);
    for (; i < some->width; i++)
        for (int row = 0; row < rows; row++) {
            float *answer = some->answer + (r + row) * some->width + i;
            *answer *= factor[row];
            for (int64_t j = some->low[r]; j < some->high[r]; j++)
                *answer = fmaf(s[row][j],
                               one_value(key_of(&some->v, coded, j), coded, i, coded ? i / some->v.group : 0), *answer);
        }
}

/* Calls a function for constant `rows` and `coded`. */
#if HC_ROWS == 3
#define OF_ROWS(call, coded, ...)                                                                                      \
    (rows == 3   ? call(some, 3, coded, __VA_ARGS__)                                                                   \
     : rows == 2 ? call(some, 2, coded, __VA_ARGS__)                                                                   \
                 : call(some, 1, coded, __VA_ARGS__))
#else
#define OF_ROWS(call, coded, ...) ((void)rows, call(some, 1, coded, __VA_ARGS__))
#endif

static __attribute__((noinline)) void scores_of(const hc_attend *some, int rows, bool coded, int64_t r, int64_t ahead,
                                                float (*s)[HC_KEYS + HC_FLOATS]) {
    coded ? OF_ROWS(add_scores, true, r, ahead, s) : OF_ROWS(add_scores, false, r, ahead, s);
}

static __attribute__((noinline)) void values_of(const hc_attend *some, int rows, bool coded, int64_t r, int64_t ahead,
                                                const float *factor, float (*s)[HC_KEYS + HC_FLOATS]) {
    coded ? OF_ROWS(add_all_values, true, r, ahead, factor, s) : OF_ROWS(add_all_values, false, r, ahead, factor, s);
}

INLINE void hc_attend_body(const hc_attend *some, bool k_coded, bool v_coded) {
    int64_t ahead = some->ahead;
    for (int64_t r = 0, rows; r < some->rows; r += rows) {
        const int64_t low = some->low[r], high = some->high[r];
        float s[HC_ROWS][HC_KEYS + HC_FLOATS], factor[HC_ROWS];
        rows = 1;
        if (low >= high)
            continue;
        while (rows < HC_ROWS && r + rows < some->rows && some->low[r + rows] == low && some->high[r + rows] == high)
            rows++;
        scores_of(some, (int)rows, k_coded, r, ahead, s);
        for (int row = 0; row < rows; row++)
            factor[row] = hc_attend_weights(some, r + row, s[row]);
        values_of(some, (int)rows, v_coded, r, ahead, factor, s);
        ahead = 0; /* the first rows have prefetched the next tile */
    }
}
