/* hc_round_by_chance_avx512, hc_mark_inside_avx512, hc_note_factors_avx512 and hc_keep_marked_avx512:
 * kernels/training/training.h. */
#define HC_LANES 16
#define HC_DOUBLES 8
#include "kernels/training/near.h"

HC_MARKED(avx512)

typedef struct {
    __m512d low, high, scale, units, back; /* HC_EVEN: levels are `back` apart, and 1 / units; otherwise 2^m and 2^-m */
    __m512d least, first, second;          /* first, second: the table */
    double middle;
    __mmask8 scaled; /* no bit is set if the scale is 0 */
    int last;        /* index of the last but one level */
} group_levels;

/* 8 random numbers from seed + (index + 1) * golden; their upper 53 bits are used. */
static inline __m512d chances_of(__m512i h) {
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 30));
    h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0xbf58476d1ce4e5b9u));
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 27));
    h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0x94d049bb133111ebu));
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 31));
    return _mm512_mul_pd(_mm512_cvtepu64_pd(_mm512_srli_epi64(h, 11)), _mm512_set1_pd(0x1p-53));
}

/* The levels next to t, and whether the upper one is chosen. */
static inline __m512d pick_of_few(const group_levels *levels, __m512d t, __m512d chance) {
    __m512i place =
        _mm512_maskz_mov_epi64(_mm512_cmp_pd_mask(t, _mm512_set1_pd(levels->middle), _CMP_GE_OQ), _mm512_set1_epi64(8));
    for (int step = 4; step > 0; step /= 2) {
        const __m512i next = _mm512_add_epi64(place, _mm512_set1_epi64(step));
        const __m512d level = _mm512_permutex2var_pd(levels->first, next, levels->second);
        place = _mm512_mask_mov_epi64(place, _mm512_cmp_pd_mask(t, level, _CMP_GE_OQ), next);
    }
    place = _mm512_min_epi64(place, _mm512_set1_epi64(levels->last));
    const __m512i next = _mm512_add_epi64(place, _mm512_set1_epi64(1));
    const __m512d below = _mm512_permutex2var_pd(levels->first, place, levels->second);
    const __m512d above = _mm512_permutex2var_pd(levels->first, next, levels->second);
    const __m512d part = _mm512_sub_pd(t, below), whole = _mm512_sub_pd(above, below);
    /* chance < part / whole without the division, unless they are so close that its rounding matters */
    const __m512d apart = _mm512_sub_pd(_mm512_mul_pd(chance, whole), part);
    __mmask8 taken = _mm512_cmp_pd_mask(apart, _mm512_setzero_pd(), _CMP_LT_OQ);
    const __m512d margin = _mm512_mul_pd(whole, _mm512_set1_pd(0x1p-50));
    if (_mm512_cmp_pd_mask(_mm512_abs_pd(apart), margin, _CMP_NGT_UQ))
        taken = _mm512_cmp_pd_mask(chance, _mm512_div_pd(part, whole), _CMP_LT_OQ);
    return _mm512_mask_mov_pd(below, taken, above);
}

static inline __attribute__((always_inline)) __m256 rounded(hc_kind_of_levels kind, const group_levels *levels,
                                                            __m512d x, __m512d chance) {
    const __m512d infinity = _mm512_set1_pd((double)INFINITY), largest = _mm512_set1_pd((double)FLT_MAX);
    /* the second operand is the result if either is NaN, or both are 0 */
    __m512d t = _mm512_max_pd(_mm512_div_pd(x, levels->scale), levels->low), units = levels->units;
    __m512d back = levels->back, level;
    t = _mm512_min_pd(t, levels->high);
    if (kind == HC_FEW) {
        level = pick_of_few(levels, t, chance);
    } else {
        if (kind == HC_BINADES) {
            const __m512d binade = _mm512_max_pd(_mm512_and_pd(t, infinity), levels->least);
            const __m512i inverse =
                _mm512_sub_epi64(_mm512_set1_epi64(0x7fe0000000000000), _mm512_castpd_si512(binade));
            units = _mm512_mul_pd(_mm512_castsi512_pd(inverse), units);
            back = _mm512_mul_pd(binade, back);
        }
        units = _mm512_mul_pd(t, units);
        level = _mm512_roundscale_pd(units, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const __mmask8 taken = _mm512_cmp_pd_mask(chance, _mm512_sub_pd(units, level), _CMP_LT_OQ);
        level = _mm512_add_pd(level, _mm512_maskz_mov_pd(taken, _mm512_set1_pd(1))); /* adding 0 turns -0 into 0 */
        level = _mm512_mul_pd(level, back);
    }
    __m512d v = _mm512_maskz_mul_pd(levels->scaled, level, levels->scale);
    v = _mm512_min_pd(largest, v); /* the second operand is the result for NaN: a NaN of the scale stays */
    v = _mm512_max_pd(_mm512_sub_pd(_mm512_setzero_pd(), largest), v);
    return _mm512_cvtpd_ps(_mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_ORD_Q), v));
}

/* n values of one group. The first has the counter `at`, which increases by `step`. Masked stores take several
 * cycles. */
static inline __attribute__((always_inline)) void round_group(hc_kind_of_levels kind, const group_levels *levels,
                                                              int64_t n, const void *x, bool is_double, uint64_t at,
                                                              uint64_t step, float *y) {
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i lanes = _mm512_mullo_epi64(lane, _mm512_set1_epi64((int64_t)step));
    const double *doubles = x;
    const float *singles = x;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, at += 8 * step) {
        const __m512i counter = _mm512_add_epi64(lanes, _mm512_set1_epi64((int64_t)at));
        const __m512d values = is_double ? _mm512_loadu_pd(doubles + i) : _mm512_cvtps_pd(_mm256_loadu_ps(singles + i));
        _mm256_storeu_ps(y + i, rounded(kind, levels, values, chances_of(counter)));
    }
    if (i < n) {
        const __mmask8 there = (__mmask8)((1 << (n - i)) - 1);
        const __m512i counter = _mm512_add_epi64(lanes, _mm512_set1_epi64((int64_t)at));
        const __m512d values = is_double ? _mm512_maskz_loadu_pd(there, doubles + i)
                                         : _mm512_cvtps_pd(_mm256_maskz_loadu_ps(there, singles + i));
        _mm256_mask_storeu_ps(y + i, there, rounded(kind, levels, values, chances_of(counter)));
    }
}

static inline group_levels shared_levels(hc_kind_of_levels kind, const hc_chance_levels *levels) {
    const bool even = kind == HC_EVEN;
    group_levels at = {.least = _mm512_set1_pd(levels->least)};
    at.units = _mm512_set1_pd(even ? levels->fraction / levels->least : levels->fraction);
    at.back = _mm512_set1_pd(even ? levels->least / levels->fraction : 1 / levels->fraction);
    if (kind == HC_FEW) {
        at.first = _mm512_loadu_pd(levels->table);
        at.second = _mm512_loadu_pd(levels->table + 8);
        at.middle = levels->table[8];
        at.last = levels->n - 2;
    }
    return at;
}

static inline void set_group(hc_kind_of_levels kind, const hc_chance_levels *levels, const hc_chance_run *run,
                             int64_t g, group_levels *at) {
    const bool few = kind == HC_FEW;
    at->scale = _mm512_set1_pd(run->scale[g]);
    at->scaled = run->scale[g] != 0 ? 0xff : 0;
    at->low = _mm512_set1_pd(few ? levels->table[0] : run->low[g]);
    at->high = _mm512_set1_pd(few ? levels->table[levels->n - 1] : run->high[g]);
}

static inline __attribute__((always_inline)) void round_groups(hc_kind_of_levels kind, const hc_chance_levels *levels,
                                                               const hc_chance_run *run, const void *x, bool is_double,
                                                               float *y) {
    group_levels at = shared_levels(kind, levels);
    int64_t end = run->group - run->skip;
    for (int64_t c = 0, g = 0; c < run->n; c = end, end += run->group, g++) {
        set_group(kind, levels, run, g, &at);
        round_group(kind, &at, hc_min(end, run->n) - c, (const char *)x + c * (is_double ? 8 : 4), is_double,
                    hc_counter_of(run, c), run->step * HC_GOLDEN, y + c);
    }
}

/* The vectors of hc_near_row and hc_near_group, and the same group in float64. */
typedef struct {
    __m512 low, high, reciprocal, scale; /* for HC_EVEN in steps; scale: of a step */
    __m512 units, back, least;           /* as of group_levels */
    __m512 table, widths, middle, limit;
    __m512i ends; /* a random number this close to 0 or 1 may belong to the neighbouring levels */
    group_levels exact;
} near_levels;

/* The upper 31 bits of 16 random numbers, and one bit that the last step of the mix would change. */
static inline __m512i early_chances(__m512i low, __m512i high) {
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i h[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        h[i] = _mm512_xor_si512(h[i], _mm512_srli_epi64(h[i], 30));
        h[i] = _mm512_mullo_epi64(h[i], _mm512_set1_epi64((int64_t)0xbf58476d1ce4e5b9u));
        h[i] = _mm512_xor_si512(h[i], _mm512_srli_epi64(h[i], 27));
        h[i] = _mm512_mullo_epi64(h[i], _mm512_set1_epi64((int64_t)0x94d049bb133111ebu));
    }
    return _mm512_permutex2var_epi32(h[0], odd, h[1]);
}

/* 16 levels times a scale in float64, rounded once. */
static inline __m512 products(const group_levels *levels, __m512d low, __m512d high) {
    const __m256 first = _mm512_cvtpd_ps(_mm512_maskz_mul_pd(levels->scaled, low, levels->scale));
    const __m256 second = _mm512_cvtpd_ps(_mm512_maskz_mul_pd(levels->scaled, high, levels->scale));
    return _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
}

static inline __attribute__((always_inline)) __m512 near_few(bool is_single, const near_levels *levels, __m512 t,
                                                             __m512i chances, __m512 chance, __mmask16 *unsure) {
    __m512i place = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(t, levels->middle, _CMP_GE_OQ), _mm512_set1_epi32(8));
    for (int step = 4; step > 0; step /= 2) {
        const __m512i next = _mm512_add_epi32(place, _mm512_set1_epi32(step));
        const __m512 level = _mm512_permutexvar_ps(next, levels->table);
        place = _mm512_mask_mov_epi32(place, _mm512_cmp_ps_mask(t, level, _CMP_GE_OQ), next);
    }
    place = _mm512_min_epi32(place, _mm512_set1_epi32(levels->exact.last));
    const __m512 part = _mm512_sub_ps(t, _mm512_permutexvar_ps(place, levels->table));
    const __m512 apart = _mm512_fmsub_ps(chance, _mm512_permutexvar_ps(place, levels->widths), part);
    const __mmask16 taken = _mm512_cmp_ps_mask(apart, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512i turned = _mm512_add_epi32(chances, levels->ends);
    *unsure = _mm512_cmp_ps_mask(_mm512_abs_ps(apart), levels->limit, _CMP_NGT_UQ) |
              _mm512_cmple_epu32_mask(turned, _mm512_add_epi32(levels->ends, levels->ends));
    place = _mm512_mask_add_epi32(place, taken, place, _mm512_set1_epi32(1));
    if (is_single)
        return _mm512_maskz_mul_ps((__mmask16)(levels->exact.scaled * 0x101),
                                   _mm512_permutexvar_ps(place, levels->table), levels->scale);
    const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(place));
    const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(place, 1));
    return products(&levels->exact, _mm512_permutex2var_pd(levels->exact.first, low, levels->exact.second),
                    _mm512_permutex2var_pd(levels->exact.first, high, levels->exact.second));
}

/* 16 values; those marked in *unsure may be wrong. is_single: levels and scales are float32. */
static inline __attribute__((always_inline)) __m512 near_rounded(hc_kind_of_levels kind, bool is_single,
                                                                 const near_levels *levels, __m512 x, __m512i chances,
                                                                 __mmask16 *unsure) {
    const __m512 zero = _mm512_setzero_ps(), infinity = _mm512_set1_ps(INFINITY);
    const __m512 chance = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(chances, 8)), _mm512_set1_ps(0x1p-24f));
    /* the second operand is the result for NaN: NaN stays, and is never sure */
    const __m512 t = _mm512_min_ps(levels->high, _mm512_max_ps(levels->low, _mm512_mul_ps(x, levels->reciprocal)));
    if (kind == HC_FEW)
        return near_few(is_single, levels, t, chances, chance, unsure);
    __m512 steps = t, step = levels->back, scale = levels->scale;
    if (kind == HC_BINADES) {
        const __m512 binade = _mm512_max_ps(_mm512_and_ps(t, infinity), levels->least);
        const __m512i inverse = _mm512_sub_epi32(_mm512_set1_epi32(0x7f000000), _mm512_castps_si512(binade));
        steps = _mm512_mul_ps(t, _mm512_mul_ps(_mm512_castsi512_ps(inverse), levels->units));
        step = _mm512_mul_ps(binade, levels->back);
        scale = _mm512_mul_ps(binade, levels->scale);
    }
    /* ceil(steps - chance) as -floor(chance - steps), which avoids -0 */
    const __m512 apart = _mm512_sub_ps(chance, steps);
    const __m512 level = _mm512_roundscale_ps(apart, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 middle = _mm512_sub_ps(_mm512_sub_ps(apart, level), _mm512_set1_ps(0.5f));
    *unsure = _mm512_cmp_ps_mask(_mm512_abs_ps(middle), levels->limit, _CMP_NLT_UQ);
    if (is_single)
        return _mm512_fnmadd_ps(level, scale, zero);
    const __m512 value = _mm512_fnmadd_ps(level, step, zero);
    return products(&levels->exact, _mm512_cvtps_pd(_mm512_castps512_ps256(value)),
                    _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1)));
}

/* Rounds n values of group g again, at most 16. */
static inline __attribute__((always_inline)) void round_again(hc_kind_of_levels kind, const hc_chance_levels *levels,
                                                              const hc_chance_run *run, int64_t g, int64_t n,
                                                              const float *x, uint64_t at, float *y) {
    group_levels group = shared_levels(kind, levels);
    set_group(kind, levels, run, g, &group);
    round_group(kind, &group, n, x, false, at, run->step * HC_GOLDEN, y);
}
#define ROUND_AGAIN(name, kind)                                                                                        \
    static __attribute__((noinline)) void name(const hc_chance_levels *levels, const hc_chance_run *run, int64_t g,    \
                                               int64_t n, const float *x, uint64_t at, float *y) {                     \
        round_again(kind, levels, run, g, n, x, at, y);                                                                \
    }
ROUND_AGAIN(again_even, HC_EVEN)
ROUND_AGAIN(again_binades, HC_BINADES)
ROUND_AGAIN(again_few, HC_FEW)

static inline void near_shared(hc_kind_of_levels kind, const hc_chance_levels *levels, const hc_near_row *row,
                               near_levels *at) {
    at->exact = shared_levels(kind, levels);
    at->units = _mm512_set1_ps(row->units);
    at->back = _mm512_set1_ps(row->back);
    at->least = _mm512_set1_ps(row->least);
    at->table = _mm512_loadu_ps(row->table);
    at->widths = _mm512_loadu_ps(row->widths);
    at->middle = _mm512_set1_ps(row->table[8]);
    at->ends = _mm512_set1_epi32(row->ends);
}

static inline void near_set_group(hc_kind_of_levels kind, const hc_chance_levels *levels, const hc_near_row *row,
                                  const hc_chance_run *run, int64_t g, near_levels *at) {
    const hc_near_group group = hc_near_group_of(kind, levels, row, run, g);
    at->exact.scale = _mm512_set1_pd(run->scale[g]);
    at->exact.scaled = run->scale[g] != 0 ? 0xff : 0;
    at->low = _mm512_set1_ps(group.low);
    at->high = _mm512_set1_ps(group.high);
    at->reciprocal = _mm512_set1_ps(group.reciprocal);
    at->scale = _mm512_set1_ps(group.scale);
    at->limit = _mm512_set1_ps(group.limit);
}

static inline __attribute__((always_inline)) void near_groups(hc_kind_of_levels kind, bool is_single,
                                                              const hc_chance_levels *levels, const hc_chance_run *run,
                                                              const float *x, float *y) {
    const uint64_t step = run->step * HC_GOLDEN;
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i low = _mm512_mullo_epi64(lane, _mm512_set1_epi64((int64_t)step));
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64((int64_t)(8 * step)));
    const hc_near_row row = hc_near_row_of(kind, levels);
    near_levels near;
    near_shared(kind, levels, &row, &near);
    int64_t end = run->group - run->skip;
    for (int64_t c = 0, g = 0; c < run->n; c = end, end += run->group, g++) {
        near_set_group(kind, levels, &row, run, g, &near);
        uint64_t at = hc_counter_of(run, c);
        const int64_t last = hc_min(end, run->n);
        for (int64_t i = c; i < last; i += 16, at += 16 * step) {
            const int64_t n = hc_min(last - i, 16);
            const __m512i counter = _mm512_set1_epi64((int64_t)at);
            const __m512i chances = early_chances(_mm512_add_epi64(low, counter), _mm512_add_epi64(high, counter));
            __mmask16 unsure, there = (__mmask16)(0xffff >> (16 - n));
            const __m512 values = n == 16 ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps(there, x + i);
            const __m512 found = near_rounded(kind, is_single, &near, values, chances, &unsure);
            if (__builtin_expect(unsure & there, 0))
                (kind == HC_FEW    ? again_few
                 : kind == HC_EVEN ? again_even
                                   : again_binades)(levels, run, g, n, x + i, at, y + i);
            else if (n == 16)
                _mm512_storeu_ps(y + i, found);
            else
                _mm512_mask_storeu_ps(y + i, there, found);
        }
    }
}

HC_NEAR_ROW

static void exact_groups(const hc_chance_levels *levels, const hc_chance_run *run, const void *x, bool is_double,
                         float *y) {
    if (levels->n > 0 && is_double)
        round_groups(HC_FEW, levels, run, x, true, y);
    else if (levels->n > 0)
        round_groups(HC_FEW, levels, run, x, false, y);
    else if (is_double)
        round_groups(HC_BINADES, levels, run, x, true, y);
    else
        round_groups(HC_BINADES, levels, run, x, false, y);
}

void hc_round_by_chance_avx512(const hc_chance_levels *levels, const hc_chance_run *run, const void *x, bool is_double,
                               float *y) {
    if (levels->n > 16) {
        hc_round_by_chance_body(levels, run, x, is_double, y);
        return;
    }
    if (!hc_near_serves(levels, is_double)) {
        exact_groups(levels, run, x, is_double, y);
        return;
    }
    const bool single = hc_near_single(hc_near_n_groups(run), run->scale) && hc_near_single(levels->n, levels->table);
    near_row(single, levels, run, x, y);
}
