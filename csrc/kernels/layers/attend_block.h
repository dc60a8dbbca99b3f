/* The body of attention of a block of queries over a tile of keys, with one query per lane: kernels/layers/layers.h.
 * One file per instruction set compiles it. Included after the definitions of
 *
 *   HC_FLOATS   float32 values per register
 *   HC_TALL     keys whose sums are in registers at once, each with the queries of a block
 *   HC_COLUMNS  columns of an answer that are in registers at once, likewise
 *
 * A key's value is read once and multiplied with every query of the block. No sum runs across lanes.
 */
#include "kernels/kernel.h"
#include "kernels/layers/sums.h"

#define INLINE static inline __attribute__((always_inline))

enum { LEVELS = 4 /* of the tree of 8 sums */, MOST_PARTS = HC_QUERIES / HC_FLOATS };

/* Scores of a tile, then weights of its values: a register of queries per key. */
typedef struct {
    float of[HC_KEYS + HC_SUMS][HC_QUERIES];
} hc_tile_scores;

/* The keys that the queries of a block see: some, [low, high); all, [all_low, all_high), empty if all_low >= all_high. */
typedef struct {
    int64_t low, high, all_low, all_high;
} hc_seen;

static hc_seen hc_seen_by(const hc_attend *some, int64_t queries) {
    hc_seen seen = {HC_KEYS, 0, 0, HC_KEYS};
    for (int64_t i = 0; i < queries; i++) {
        const int64_t low = some->low[i], high = some->high[i];
        seen.all_low = hc_max(seen.all_low, low);
        seen.all_high = hc_min(seen.all_high, high);
        if (low < high) {
            seen.low = hc_min(seen.low, low);
            seen.high = hc_max(seen.high, high);
        }
    }
    return seen;
}

/* acc = fma(q_i, k_i, acc), or q_i k_i if it is the first: a score of -0 has the weight of 0. */
INLINE void hc_add_products(const hc_attend *some, const int parts, const float *const *key, int64_t i,
                            const bool is_first, hc_floats (*acc)[MOST_PARTS]) {
    hc_floats q[MOST_PARTS];
#pragma GCC unroll 4
    for (int part = 0; part < parts; part++)
        q[part] = hc_load(some->q + i * HC_QUERIES + part * HC_FLOATS);
#pragma GCC unroll 16
    for (int j = 0; j < HC_TALL; j++) {
        const hc_floats k = hc_of(key[j][i]);
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            if (is_first)
                acc[j][part] = q[part] * k;
            else
                acc[j][part] = hc_fma(q[part], k, acc[j][part]);
    }
}

/* Scores of HC_TALL keys from `first` on. Lanes l and l + 8 of 16 are summed at once. The pairs follow each other so that
 * those whose sums are added are neighbours: 0 and 4, 2 and 6, then these two, and so on. */
INLINE void hc_block_scores(const hc_attend *some, const int parts, int64_t first, int64_t high, bool fetches,
                            hc_tile_scores *s) {
    static const int8_t order[HC_SUMS / 2] = {0, 4, 2, 6, 1, 5, 3, 7};
    const float *key[HC_TALL];
    hc_floats sums[LEVELS][HC_TALL][MOST_PARTS];
#pragma GCC unroll 16
    for (int j = 0; j < HC_TALL; j++)
        key[j] = some->k.data + hc_min(first + j, high - 1) * some->k.ld;
    if (fetches)
        for (int64_t i = 0; i < some->width; i += 16)
            for (int j = 0; j < HC_TALL; j++)
                __builtin_prefetch(key[j] + HC_KEYS * some->k.ld + i, 0, 3);
    for (int turn = 0; turn < HC_SUMS / 2; turn++) {
        hc_floats acc[HC_TALL][MOST_PARTS] = {{{0}}}, other[HC_TALL][MOST_PARTS] = {{{0}}};
        int64_t i = order[turn];
        if (i + HC_SUMS / 2 < some->width) {
            hc_add_products(some, parts, key, i, true, acc);
            hc_add_products(some, parts, key, i + HC_SUMS / 2, true, other);
            for (i += HC_SUMS; i + HC_SUMS / 2 < some->width; i += HC_SUMS) {
                hc_add_products(some, parts, key, i, false, acc);
                hc_add_products(some, parts, key, i + HC_SUMS / 2, false, other);
            }
        }
        if (i < some->width)
            hc_add_products(some, parts, key, i, false, acc);
        int level = 0;
#pragma GCC unroll 16
        for (int j = 0; j < HC_TALL; j++)
#pragma GCC unroll 4
            for (int part = 0; part < parts; part++)
                acc[j][part] += other[j][part];
        for (; turn >> level & 1; level++)
#pragma GCC unroll 16
            for (int j = 0; j < HC_TALL; j++)
#pragma GCC unroll 4
                for (int part = 0; part < parts; part++)
                    acc[j][part] = sums[level][j][part] + acc[j][part];
#pragma GCC unroll 16
        for (int j = 0; j < HC_TALL; j++)
#pragma GCC unroll 4
            for (int part = 0; part < parts; part++)
                sums[level][j][part] = acc[j][part];
    }
#pragma GCC unroll 16
    for (int j = 0; j < HC_TALL; j++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            *(hc_floats *)(s->of[first + j] + part * HC_FLOATS) = sums[LEVELS - 1][j][part];
}

/* The lanes of queries that see key j. */
INLINE hc_ints hc_sees(const hc_attend *some, int part, int64_t j) {
    const hc_ints low = *(const hc_ints *)(some->low + part * HC_FLOATS);
    const hc_ints high = *(const hc_ints *)(some->high + part * HC_FLOATS);
    const hc_ints key = (hc_ints){0} + (int32_t)j;
    return (low <= key) & (key < high);
}

/* Replaces scores by what decides weights, scaled and within the cap, and returns the largest, `most` among them. */
INLINE hc_floats hc_block_largest(const hc_attend *some, int part, int64_t low, int64_t high, const bool seen_by_all,
                                  float (*row)[HC_QUERIES], hc_floats most) {
    for (int64_t j = low; j < high; j++) {
        hc_floats score = hc_load(row[j]) * some->scale;
        if (some->cap > 0)
            score = some->cap * (1.0f - 2.0f / (hc_exp(2.0f * (score / hc_of(some->cap))) + 1.0f));
        if (!seen_by_all)
            score = hc_select(hc_sees(some, part, j), score, hc_of(-INFINITY));
        *(hc_floats *)row[j] = score;
        most = hc_larger(most, score);
    }
    return most;
}

/* Replaces scores by weights and returns their sum, in accumulators j mod 16. */
INLINE hc_floats hc_block_exp(const hc_attend *some, int part, hc_seen seen, const bool seen_by_all,
                              float (*row)[HC_QUERIES], hc_floats most) {
    hc_floats sums[HC_SUMS];
    for (int64_t l = 0; l < HC_SUMS; l++) {
        hc_floats sum = {0};
#pragma GCC unroll 4
        for (int64_t j = l; j < HC_KEYS; j += HC_SUMS) {
            if (!seen_by_all && (j < seen.low || j >= seen.high))
                continue;
            hc_floats p = hc_exp_of_less(hc_load(row[j]) - most);
            if (!seen_by_all)
                p = hc_select(hc_sees(some, part, j), p, hc_of(0));
            *(hc_floats *)row[j] = p;
            sum += p;
        }
        sums[l] = sum;
    }
    for (int half = HC_SUMS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sums[l] += sums[l + half];
    return sums[0];
}

/* Replaces scores by the weights of values and returns the factors of the answers so far, for one register of queries. */
INLINE hc_floats hc_block_weights(const hc_attend *some, int part, hc_seen seen, hc_tile_scores *s) {
    float (*row)[HC_QUERIES] = (float (*)[HC_QUERIES])(s->of[0] + part * HC_FLOATS);
    const bool whole = seen.all_low == 0 && seen.all_high == HC_KEYS;
    const hc_floats before = hc_load(some->largest + part * HC_FLOATS);
    hc_floats most, sum;
    if (whole) {
        most = hc_block_largest(some, part, 0, HC_KEYS, true, row, before);
        sum = hc_block_exp(some, part, seen, true, row, most);
    } else {
        most = hc_block_largest(some, part, seen.low, seen.high, false, row, before);
        sum = hc_block_exp(some, part, seen, false, row, most);
    }
    const hc_ints low = *(const hc_ints *)(some->low + part * HC_FLOATS);
    const hc_ints high = *(const hc_ints *)(some->high + part * HC_FLOATS);
    const hc_floats factor = hc_select(low < high, hc_exp_of_less(before - most), hc_of(1.0f));
    *(hc_floats *)(some->sum + part * HC_FLOATS) = hc_load(some->sum + part * HC_FLOATS) * factor + sum;
    *(hc_floats *)(some->largest + part * HC_FLOATS) = most;
    return factor;
}

/* acc_i = fma(p_j, v_ji, acc_i) for the n columns from v on and keys [low, high), in the lanes that see the key. */
INLINE void hc_add_values(const hc_attend *some, const int parts, const int n, int64_t first, int64_t low, int64_t high,
                          const bool seen_by_all, const hc_tile_scores *s, hc_floats (*acc)[MOST_PARTS]) {
    const float *v = some->v.data + low * some->v.ld + first;
    for (int64_t j = low; j < high; j++, v += some->v.ld) {
        hc_floats p[MOST_PARTS];
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            p[part] = hc_load(s->of[j] + part * HC_FLOATS);
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) {
            const hc_floats value = hc_of(v[i]);
#pragma GCC unroll 4
            for (int part = 0; part < parts; part++) {
                const hc_floats sum = hc_fma(p[part], value, acc[i][part]);
                acc[i][part] = seen_by_all ? sum : hc_select(hc_sees(some, part, j), sum, acc[i][part]);
            }
        }
    }
}

/* answer = answer * factor + sum_j p_j v_j, j ascending, for n columns from `first` on. */
INLINE void hc_block_values(const hc_attend *some, const int parts, const int n, int64_t first, hc_seen seen,
                            const hc_floats *factor, const hc_tile_scores *s) {
    float *answer = some->answer + first * HC_QUERIES;
    hc_floats acc[HC_COLUMNS][MOST_PARTS];
    const int64_t all_low = hc_min(seen.all_low, seen.high), all_high = hc_max(all_low, seen.all_high);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            acc[i][part] = hc_load(answer + i * HC_QUERIES + part * HC_FLOATS) * factor[part];
    hc_add_values(some, parts, n, first, seen.low, all_low, false, s, acc);
    hc_add_values(some, parts, n, first, all_low, all_high, true, s, acc);
    hc_add_values(some, parts, n, first, all_high, seen.high, false, s, acc);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            *(hc_floats *)(answer + i * HC_QUERIES + part * HC_FLOATS) = acc[i][part];
}

INLINE void hc_block_body(const hc_attend *some, const int parts) {
    const hc_seen seen = hc_seen_by(some, some->rows);
    hc_tile_scores s;
    hc_floats factor[MOST_PARTS];
    if (seen.low >= seen.high)
        return;
    for (int64_t j = seen.low; j < seen.high; j += HC_TALL)
        hc_block_scores(some, parts, j, seen.high, j < some->ahead, &s);
    for (int part = 0; part < parts; part++)
        factor[part] = hc_block_weights(some, part, seen, &s);
    int64_t i = 0;
    for (; i + HC_COLUMNS <= some->width; i += HC_COLUMNS)
        hc_block_values(some, parts, HC_COLUMNS, i, seen, factor, &s);
    for (; i + 4 <= some->width; i += 4)
        hc_block_values(some, parts, 4, i, seen, factor, &s);
    for (; i < some->width; i++)
        hc_block_values(some, parts, 1, i, seen, factor, &s);
}

/* Few queries fill half of the registers of a block. */
#define HC_ATTEND_BLOCK(isa)                                                                                           \
    static __attribute__((noinline)) void half_block(const hc_attend *some) { hc_block_body(some, MOST_PARTS / 2); }   \
    static __attribute__((noinline)) void whole_block(const hc_attend *some) { hc_block_body(some, MOST_PARTS); }      \
    void hc_attend_block_##isa(const hc_attend *some) {                                                                \
        if (MOST_PARTS > 1 && some->rows <= HC_QUERIES / 2)                                                            \
            half_block(some);                                                                                          \
        else                                                                                                           \
            whole_block(some);                                                                                         \
    }
