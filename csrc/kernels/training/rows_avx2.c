/* hc_round_by_chance_avx2, hc_mark_inside_avx2, hc_note_factors_avx2 and hc_keep_marked_avx2:
 * kernels/training/training.h. */
#define HC_LANES 8
#define HC_DOUBLES 4
#include "kernels/training/near.h"

HC_MARKED(avx2)

/* The vectors of hc_near_row and hc_near_group. */
typedef struct {
    __m256 low, high, reciprocal, scale; /* for HC_EVEN in steps; scale: of a step */
    __m256 units, back, least;           /* 2^m, 2^-m; HC_EVEN: back is a step */
    __m256 table[2], widths[2], middle, limit;
    __m256d exact_scale, scaled; /* scaled: 0 if the scale is 0 */
    __m256i ends, last;          /* ends: a random number this close to 0 or 1 may belong to the neighbouring levels */
} near_levels;

/* h * (high 2^32 + low) in separate words: `low` unchanged, and the sum of the others, which is added to its upper
 * word. */
static inline __m256i product(__m256i h, int64_t factor, __m256i *upper) {
    const __m256i low = _mm256_set1_epi64x(factor & 0xffffffff), high = _mm256_set1_epi64x(factor >> 32 & 0xffffffff);
    *upper = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(h, 32), low), _mm256_mul_epu32(h, high));
    return _mm256_mul_epu32(h, low);
}

/* The upper 31 bits of 8 random numbers, and one bit that the last step of the mix would change. `even` has the
 * counters of values 0, 1, 4 and 5, `odd` those of 2, 3, 6 and 7. */
static inline __m256i early_chances(__m256i even, __m256i odd) {
    __m256i h[2] = {even, odd}, upper[2];
    for (int i = 0; i < 2; i++) {
        h[i] = _mm256_xor_si256(h[i], _mm256_srli_epi64(h[i], 30));
        h[i] = product(h[i], (int64_t)0xbf58476d1ce4e5b9u, &upper[i]);
        h[i] = _mm256_add_epi64(h[i], _mm256_slli_epi64(upper[i], 32));
        h[i] = _mm256_xor_si256(h[i], _mm256_srli_epi64(h[i], 27));
        h[i] = product(h[i], (int64_t)0x94d049bb133111ebu, &upper[i]);
    }
    const __m256 carried = _mm256_shuffle_ps(_mm256_castsi256_ps(h[0]), _mm256_castsi256_ps(h[1]), 0xdd);
    const __m256 added = _mm256_shuffle_ps(_mm256_castsi256_ps(upper[0]), _mm256_castsi256_ps(upper[1]), 0x88);
    return _mm256_add_epi32(_mm256_castps_si256(carried), _mm256_castps_si256(added));
}

/* 8 levels times a scale in float64, rounded once. */
static inline __m256 products(const near_levels *levels, __m256 level) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(level));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(level, 1));
    const __m128 first = _mm256_cvtpd_ps(_mm256_and_pd(_mm256_mul_pd(low, levels->exact_scale), levels->scaled));
    const __m128 second = _mm256_cvtpd_ps(_mm256_and_pd(_mm256_mul_pd(high, levels->exact_scale), levels->scaled));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
}

/* Entry place[i] of 16: permutations use the lower three bits, and bit 3 is the sign here. */
static inline __m256 entries(const __m256 table[2], __m256i place) {
    const __m256 first = _mm256_permutevar8x32_ps(table[0], place);
    const __m256 second = _mm256_permutevar8x32_ps(table[1], place);
    return _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(place, 28)));
}

static inline __m256 absolute(__m256 value) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value); }

static inline __attribute__((always_inline)) __m256 near_few(bool is_single, const near_levels *levels, __m256 t,
                                                             __m256i chances, __m256 chance, int *unsure) {
    __m256i place =
        _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(t, levels->middle, _CMP_GE_OQ)), _mm256_set1_epi32(8));
    for (int step = 4; step > 0; step /= 2) {
        const __m256i next = _mm256_add_epi32(place, _mm256_set1_epi32(step));
        const __m256 above = _mm256_cmp_ps(t, entries(levels->table, next), _CMP_GE_OQ);
        place = _mm256_blendv_epi8(place, next, _mm256_castps_si256(above));
    }
    place = _mm256_min_epi32(place, levels->last);
    const __m256 part = _mm256_sub_ps(t, entries(levels->table, place));
    const __m256 apart = _mm256_fmsub_ps(chance, entries(levels->widths, place), part);
    const __m256i taken = _mm256_castps_si256(_mm256_cmp_ps(apart, _mm256_setzero_ps(), _CMP_LT_OQ));
    const __m256i turned = _mm256_add_epi32(chances, levels->ends), both = _mm256_add_epi32(levels->ends, levels->ends);
    const __m256i at_ends = _mm256_cmpeq_epi32(_mm256_max_epu32(turned, both), both);
    const __m256 narrow = _mm256_cmp_ps(absolute(apart), levels->limit, _CMP_NGT_UQ);
    *unsure = _mm256_movemask_ps(_mm256_or_ps(narrow, _mm256_castsi256_ps(at_ends)));
    const __m256 level = entries(levels->table, _mm256_sub_epi32(place, taken));
    if (!is_single)
        return products(levels, level);
    return _mm256_and_ps(_mm256_mul_ps(level, levels->scale), _mm256_castpd_ps(levels->scaled));
}

/* 8 values; those marked in *unsure may be wrong. is_single: scales are float32. */
static inline __attribute__((always_inline)) __m256 near_rounded(hc_kind_of_levels kind, bool is_single,
                                                                 const near_levels *levels, __m256 x, __m256i chances,
                                                                 int *unsure) {
    const __m256 zero = _mm256_setzero_ps(), infinity = _mm256_set1_ps(INFINITY);
    const __m256 chance = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(chances, 8)), _mm256_set1_ps(0x1p-24f));
    /* the second operand is the result for NaN: NaN stays, and is never sure */
    const __m256 t = _mm256_min_ps(levels->high, _mm256_max_ps(levels->low, _mm256_mul_ps(x, levels->reciprocal)));
    if (kind == HC_FEW)
        return near_few(is_single, levels, t, chances, chance, unsure);
    __m256 steps = t, step = levels->back, scale = levels->scale;
    if (kind == HC_BINADES) {
        const __m256 binade = _mm256_max_ps(_mm256_and_ps(t, infinity), levels->least);
        const __m256i inverse = _mm256_sub_epi32(_mm256_set1_epi32(0x7f000000), _mm256_castps_si256(binade));
        steps = _mm256_mul_ps(t, _mm256_mul_ps(_mm256_castsi256_ps(inverse), levels->units));
        step = _mm256_mul_ps(binade, levels->back);
        scale = _mm256_mul_ps(binade, levels->scale);
    }
    /* ceil(steps - chance) as -floor(chance - steps), which avoids -0 */
    const __m256 apart = _mm256_sub_ps(chance, steps), level = _mm256_floor_ps(apart);
    const __m256 middle = _mm256_sub_ps(_mm256_sub_ps(apart, level), _mm256_set1_ps(0.5f));
    *unsure = _mm256_movemask_ps(_mm256_cmp_ps(absolute(middle), levels->limit, _CMP_NLT_UQ));
    if (is_single)
        return _mm256_fnmadd_ps(level, scale, zero);
    return products(levels, _mm256_fnmadd_ps(level, step, zero));
}

/* Rounds n values of group g again, at most 8, from value i of the row on. */
static __attribute__((noinline)) void round_again(const hc_chance_levels *levels, const hc_chance_run *run, int64_t g,
                                                  int64_t i, int64_t n, const float *x, float *y) {
    hc_chance_run part = *run;
    part.n = part.group = n;
    part.skip = 0;
    part.scale += g;
    if (levels->n == 0)
        part.low += g, part.high += g;
    part.index += (uint64_t)i * run->step;
    hc_round_by_chance_body(levels, &part, x + i, false, y + i);
}

static inline void near_shared(const hc_near_row *row, near_levels *at) {
    at->units = _mm256_set1_ps(row->units);
    at->back = _mm256_set1_ps(row->back);
    at->least = _mm256_set1_ps(row->least);
    for (int i = 0; i < 2; i++) {
        at->table[i] = _mm256_loadu_ps(row->table + 8 * i);
        at->widths[i] = _mm256_loadu_ps(row->widths + 8 * i);
    }
    at->middle = _mm256_set1_ps(row->table[8]);
    at->last = _mm256_set1_epi32(row->last);
    at->ends = _mm256_set1_epi32(row->ends);
}

static inline void near_set_group(hc_kind_of_levels kind, const hc_chance_levels *levels, const hc_near_row *row,
                                  const hc_chance_run *run, int64_t g, near_levels *at) {
    const hc_near_group group = hc_near_group_of(kind, levels, row, run, g);
    at->exact_scale = _mm256_set1_pd(run->scale[g]);
    at->scaled = _mm256_castsi256_pd(_mm256_set1_epi64x(run->scale[g] != 0 ? -1 : 0));
    at->low = _mm256_set1_ps(group.low);
    at->high = _mm256_set1_ps(group.high);
    at->reciprocal = _mm256_set1_ps(group.reciprocal);
    at->scale = _mm256_set1_ps(group.scale);
    at->limit = _mm256_set1_ps(group.limit);
}

static inline __attribute__((always_inline)) void near_groups(hc_kind_of_levels kind, bool is_single,
                                                              const hc_chance_levels *levels, const hc_chance_run *run,
                                                              const float *x, float *y) {
    const uint64_t step = run->step * HC_GOLDEN;
    const __m256i first = _mm256_setr_epi64x(0, (int64_t)step, (int64_t)(4 * step), (int64_t)(5 * step));
    const __m256i second = _mm256_add_epi64(first, _mm256_set1_epi64x((int64_t)(2 * step)));
    const hc_near_row row = hc_near_row_of(kind, levels);
    near_levels near;
    near_shared(&row, &near);
    int64_t end = run->group - run->skip;
    for (int64_t c = 0, g = 0; c < run->n; c = end, end += run->group, g++) {
        near_set_group(kind, levels, &row, run, g, &near);
        uint64_t at = hc_counter_of(run, c);
        const int64_t last = hc_min(end, run->n);
        for (int64_t i = c; i < last; i += 8, at += 8 * step) {
            const int64_t n = hc_min(last - i, 8);
            const __m256i counter = _mm256_set1_epi64x((int64_t)at);
            const __m256i chances = early_chances(_mm256_add_epi64(first, counter), _mm256_add_epi64(second, counter));
            const __m256i there =
                _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            int unsure;
            const __m256 values = n == 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, there);
            const __m256 found = near_rounded(kind, is_single, &near, values, chances, &unsure);
            if (__builtin_expect(unsure & (0xff >> (8 - n)), 0))
                round_again(levels, run, g, i, n, x, y);
            else if (n == 8)
                _mm256_storeu_ps(y + i, found);
            else
                _mm256_maskstore_ps(y + i, there, found);
        }
    }
}

HC_NEAR_ROW

void hc_round_by_chance_avx2(const hc_chance_levels *levels, const hc_chance_run *run, const void *x, bool is_double,
                             float *y) {
    if (!hc_near_serves(levels, is_double) || !hc_near_single(levels->n, levels->table)) {
        hc_round_by_chance_body(levels, run, x, is_double, y);
        return;
    }
    const bool single = hc_near_single(hc_near_n_groups(run), run->scale);
    near_row(single, levels, run, x, y);
}
