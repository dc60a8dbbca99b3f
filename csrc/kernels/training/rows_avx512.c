/* hc_round_by_chance_avx512, hc_mark_inside_avx512 and hc_keep_marked_avx512: kernels/training/training.h. */
#define HC_LANES 16
#define HC_DOUBLES 8
#include "kernels/training/rows.h"

HC_MARKED(avx512)

/* Levels that lie evenly, that lie evenly in a binade, and up to 16 of a table. */
typedef enum { EVEN, BINADES, FEW } kind_of_levels;

typedef struct {
    __m512d low, high, scale, units, back; /* EVEN: levels are `back` apart, and 1 / units; else 2^m and 2^-m */
    __m512d least, first, second;          /* first, second: the table */
    double middle;
    __mmask8 scaled; /* none where the scale is 0 */
    int last;        /* where the last but one level stands */
} group_levels;

/* The bits of 8 chances, of which the upper 53 count, from seed + (index + 1) * golden. */
static inline __m512d chances_of(__m512i h) {
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 30));
    h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0xbf58476d1ce4e5b9u));
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 27));
    h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0x94d049bb133111ebu));
    h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 31));
    return _mm512_mul_pd(_mm512_cvtepu64_pd(_mm512_srli_epi64(h, 11)), _mm512_set1_pd(0x1p-53));
}

/* The levels beside t, and whether the one above is taken. */
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
    /* chance < part / whole without the division, unless they are so near that its rounding counts */
    const __m512d apart = _mm512_sub_pd(_mm512_mul_pd(chance, whole), part);
    __mmask8 taken = _mm512_cmp_pd_mask(apart, _mm512_setzero_pd(), _CMP_LT_OQ);
    const __m512d margin = _mm512_mul_pd(whole, _mm512_set1_pd(0x1p-50));
    if (_mm512_cmp_pd_mask(_mm512_abs_pd(apart), margin, _CMP_NGT_UQ))
        taken = _mm512_cmp_pd_mask(chance, _mm512_div_pd(part, whole), _CMP_LT_OQ);
    return _mm512_mask_mov_pd(below, taken, above);
}

static inline __attribute__((always_inline)) __m256 rounded(kind_of_levels kind, const group_levels *levels, __m512d x,
                                                            __m512d chance) {
    const __m512d infinity = _mm512_set1_pd((double)INFINITY), largest = _mm512_set1_pd((double)FLT_MAX);
    /* the second operand where either is NaN, or both are 0 */
    __m512d t = _mm512_max_pd(_mm512_div_pd(x, levels->scale), levels->low), units = levels->units;
    __m512d back = levels->back, level;
    t = _mm512_min_pd(t, levels->high);
    if (kind == FEW) {
        level = pick_of_few(levels, t, chance);
    } else {
        if (kind == BINADES) {
            const __m512d binade = _mm512_max_pd(_mm512_and_pd(t, infinity), levels->least);
            const __m512i inverse =
                _mm512_sub_epi64(_mm512_set1_epi64(0x7fe0000000000000), _mm512_castpd_si512(binade));
            units = _mm512_mul_pd(_mm512_castsi512_pd(inverse), units);
            back = _mm512_mul_pd(binade, back);
        }
        units = _mm512_mul_pd(t, units);
        level = _mm512_roundscale_pd(units, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const __mmask8 taken = _mm512_cmp_pd_mask(chance, _mm512_sub_pd(units, level), _CMP_LT_OQ);
        level = _mm512_add_pd(level, _mm512_maskz_mov_pd(taken, _mm512_set1_pd(1))); /* + 0 makes 0 of -0 */
        level = _mm512_mul_pd(level, back);
    }
    __m512d v = _mm512_maskz_mul_pd(levels->scaled, level, levels->scale);
    v = _mm512_min_pd(v, largest);
    v = _mm512_max_pd(v, _mm512_sub_pd(_mm512_setzero_pd(), largest));
    return _mm512_cvtpd_ps(_mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_ORD_Q), v));
}

/* n values of one group; the first has the counter `at`, which grows by `step`. Stores with a mask take several cycles. */
static inline __attribute__((always_inline)) void round_group(kind_of_levels kind, const group_levels *levels,
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

static inline __attribute__((always_inline)) void round_groups(kind_of_levels kind, const hc_chance_levels *levels,
                                                               const hc_chance_run *run, const void *x, bool is_double,
                                                               float *y) {
    const uint64_t golden = 0x9e3779b97f4a7c15u, step = run->step * golden;
    const bool few = kind == FEW, even = kind == EVEN;
    group_levels at = {.least = _mm512_set1_pd(levels->least)};
    at.units = _mm512_set1_pd(even ? levels->fraction / levels->least : levels->fraction);
    at.back = _mm512_set1_pd(even ? levels->least / levels->fraction : 1 / levels->fraction);
    if (few) {
        at.first = _mm512_loadu_pd(levels->table);
        at.second = _mm512_loadu_pd(levels->table + 8);
        at.middle = levels->table[8];
        at.last = levels->n - 2;
    }
    int64_t end = run->group - run->skip;
    for (int64_t c = 0, g = 0; c < run->n; c = end, end += run->group, g++) {
        const double scale = run->scale[g];
        at.scale = _mm512_set1_pd(scale);
        at.scaled = scale != 0 ? 0xff : 0;
        at.low = _mm512_set1_pd(few ? levels->table[0] : run->low[g]);
        at.high = _mm512_set1_pd(few ? levels->table[levels->n - 1] : run->high[g]);
        const uint64_t counter = run->seed + (run->index + (uint64_t)c * run->step + 1) * golden;
        round_group(kind, &at, hc_min(end, run->n) - c, (const char *)x + c * (is_double ? 8 : 4), is_double, counter,
                    step, y + c);
    }
}

/* True where no level leaves the lowest binade. */
static bool is_even(const hc_chance_levels *levels, const hc_chance_run *run) {
    const int64_t groups = hc_ceil_div(run->skip + run->n, run->group);
    bool even = true;
    for (int64_t g = 0; g < groups; g++)
        even = even && -levels->least <= run->low[g] && run->high[g] <= levels->least;
    return even;
}

void hc_round_by_chance_avx512(const hc_chance_levels *levels, const hc_chance_run *run, const void *x, bool is_double,
                               float *y) {
    if (levels->n > 16)
        hc_round_by_chance_body(levels, run, x, is_double, y);
    else if (levels->n > 0 && is_double)
        round_groups(FEW, levels, run, x, true, y);
    else if (levels->n > 0)
        round_groups(FEW, levels, run, x, false, y);
    else if (is_even(levels, run) && !is_double)
        round_groups(EVEN, levels, run, x, false, y);
    else if (is_double)
        round_groups(BINADES, levels, run, x, true, y);
    else
        round_groups(BINADES, levels, run, x, false, y);
}
