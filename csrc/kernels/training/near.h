/* Data of stochastic rounding in float32 for a row and a group, before they become vectors (rows_avx2.c,
 * rows_avx512.c). A vector of values is rounded in float32. Values whose random number is too close to the decision are
 * rounded again in float64. Errors: relative 2^-23 of t (1 / scale, and x times that), 2^-24 of a random number, and as
 * much again of their difference. `limit` leaves more than twice that.
 */
#include "kernels/training/rows.h"

#define HC_GOLDEN 0x9e3779b97f4a7c15u

/* Equally spaced levels; levels that are equally spaced within a binade; a table of up to 16 levels. */
typedef enum { HC_EVEN, HC_BINADES, HC_FEW } hc_kind_of_levels;

typedef struct {
    float units, back, least; /* 2^m, 2^-m and 2^e; EVEN: back is a step */
    float unit;               /* EVEN: a step, otherwise 1 */
    float table[16], widths[16];
    int32_t last; /* index of the last but one level */
    int32_t ends; /* a random number this close to 0 or 1 may belong to the neighbouring levels */
} hc_near_row;

typedef struct {
    float low, high, reciprocal, scale; /* EVEN: in steps, scale of a step */
    /* FEW: smallest distance of a safe random number; otherwise its distance from the middle of two steps */
    float limit;
} hc_near_group;

static inline hc_near_row hc_near_row_of(hc_kind_of_levels kind, const hc_chance_levels *levels) {
    const float step = (float)(levels->least / levels->fraction); /* a power of two */
    hc_near_row row = {.units = (float)levels->fraction, .least = (float)levels->least};
    row.back = kind == HC_EVEN ? step : (float)(1 / levels->fraction);
    row.unit = kind == HC_EVEN ? step : 1;
    if (kind != HC_FEW)
        return row;
    float narrowest = INFINITY;
    for (int i = 0; i < 16; i++)
        row.table[i] = (float)levels->table[i];
    for (int i = 0; i + 1 < levels->n; i++) {
        row.widths[i] = (float)(levels->table[i + 1] - levels->table[i]);
        narrowest = fminf(narrowest, row.widths[i]);
    }
    const float most = fmaxf(-row.table[0], row.table[levels->n - 1]), end = most * 0x1p-20f / narrowest;
    row.last = levels->n - 2;
    row.ends = end < 0.25f ? (int32_t)(end * 0x1p32f) : INT32_MAX;
    return row;
}

static inline hc_near_group hc_near_group_of(hc_kind_of_levels kind, const hc_chance_levels *levels,
                                             const hc_near_row *row, const hc_chance_run *run, int64_t g) {
    const float scale = (float)run->scale[g], per_unit = 1 / row->unit;
    hc_near_group group = {.reciprocal = scale == 0 ? 0 : per_unit / scale};
    group.low = (float)(kind == HC_FEW ? levels->table[0] : run->low[g]) * per_unit;
    group.high = (float)(kind == HC_FEW ? levels->table[levels->n - 1] : run->high[g]) * per_unit;
    group.scale = scale * (kind == HC_BINADES ? 1 / row->units : row->unit);
    const float most = -group.low > group.high ? -group.low : group.high;
    const float steps = kind == HC_EVEN ? most : 2 * row->units;
    /* scales whose products with steps and levels up to 2^26 are normal */
    const bool plain = ((scale == 0) | ((scale >= 0x1p-90f) & (scale <= 0x1p90f))) & (most <= 0x1p26f);
    if (kind == HC_FEW)
        group.limit = plain ? most * 0x1p-20f : INFINITY;
    else
        group.limit = plain ? 0.5f - (steps + 2) * 0x1p-21f : 0;
    return group;
}

static inline bool hc_near_single(int64_t n, const double *values) {
    bool single = true;
    for (int64_t i = 0; i < n; i++)
        single &= (double)(float)values[i] == values[i];
    return single;
}

static inline int64_t hc_near_n_groups(const hc_chance_run *run) { return hc_ceil_div(run->skip + run->n, run->group); }

/* The kind of levels of a row. EVEN: no level is outside the lowest binade. */
static inline hc_kind_of_levels hc_near_kind(const hc_chance_levels *levels, const hc_chance_run *run) {
    if (levels->n > 0)
        return HC_FEW;
    bool even = true;
    for (int64_t g = 0; g < hc_near_n_groups(run); g++)
        even &= (-levels->least <= run->low[g]) & (run->high[g] <= levels->least);
    return even ? HC_EVEN : HC_BINADES;
}

/* False if float32 is not sufficient: float64 values, many levels, or steps whose products are not normal. */
static inline bool hc_near_serves(const hc_chance_levels *levels, bool is_double) {
    const double step = levels->least / levels->fraction;
    return !is_double && (levels->n > 0 ? levels->n <= 16 : step >= 0x1p-26 && step <= 0x1p26);
}

/* Offset of the counter for value c. */
static inline uint64_t hc_counter_of(const hc_chance_run *run, int64_t c) {
    return run->seed + (run->index + (uint64_t)c * run->step + 1) * HC_GOLDEN;
}

/* near_row(single, ...) of near_groups(kind, single, ...): one function per kind, because the fast ones need all
 * registers. */
#define HC_NEAR_FUNCTION(name, kind, is_single)                                                                        \
    static __attribute__((noinline)) void name(const hc_chance_levels *levels, const hc_chance_run *run,               \
                                               const float *x, float *y) {                                             \
        near_groups(kind, is_single, levels, run, x, y);                                                               \
    }
#define HC_NEAR_ROW                                                                                                    \
    HC_NEAR_FUNCTION(near_even, HC_EVEN, false)                                                                        \
    HC_NEAR_FUNCTION(near_even_single, HC_EVEN, true)                                                                  \
    HC_NEAR_FUNCTION(near_binades, HC_BINADES, false)                                                                  \
    HC_NEAR_FUNCTION(near_binades_single, HC_BINADES, true)                                                            \
    HC_NEAR_FUNCTION(near_few_double, HC_FEW, false)                                                                   \
    HC_NEAR_FUNCTION(near_few_single, HC_FEW, true)                                                                    \
    static void near_row(bool single, const hc_chance_levels *levels, const hc_chance_run *run, const float *x,        \
                         float *y) {                                                                                   \
        switch (hc_near_kind(levels, run)) {                                                                           \
        case HC_EVEN:                                                                                                  \
            (single ? near_even_single : near_even)(levels, run, x, y);                                                \
            break;                                                                                                     \
        case HC_BINADES:                                                                                               \
            (single ? near_binades_single : near_binades)(levels, run, x, y);                                          \
            break;                                                                                                     \
        case HC_FEW:                                                                                                   \
            (single ? near_few_single : near_few_double)(levels, run, x, y);                                           \
        }                                                                                                              \
    }
