/* The bodies of kernels/training/training.h. The loops have no order, so compilers may use any vectors. The choice by a
 * bit is written with vectors of HC_LANES float32, and a step with HC_DOUBLES float64.
 */
#include "kernels/kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#elif defined(HC_MARKS_NEON)
#include <arm_neon.h>
#endif

/* HC_DOUBLES float64, and their bits: without vectors compilers process the following one value at a time. */
typedef double hc_doubles __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));
typedef int64_t hc_words __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));
typedef float hc_singles __attribute__((vector_size(4 * HC_DOUBLES), aligned(4), may_alias));

static inline hc_doubles hc_either(hc_words taken, hc_doubles yes, hc_doubles no) {
    return (hc_doubles)((taken & (hc_words)yes) | (~taken & (hc_words)no));
}

#define hc_to_singles(values) __builtin_convertvector(values, hc_singles)
#include "kernels/training/chance.h"

static inline void hc_chance_steps(int64_t n, const double *restrict x, const double *restrict chance, double scale,
                                   double low, double high, double fraction, double least, float *restrict y) {
    const hc_doubles zero = {0}, scales = zero + scale, lowest = zero + low, highest = zero + high;
    const hc_doubles fractions = zero + fraction, back = zero + 1 / fraction, leasts = zero + least;
    int64_t i = 0;
    for (; i + HC_DOUBLES <= n; i += HC_DOUBLES)
        *(hc_singles *)(y + i) = hc_chance_step(*(const hc_doubles *)(x + i), *(const hc_doubles *)(chance + i), scales,
                                                lowest, highest, fractions, back, leasts);
    if (i < n) {
        double rest[2][HC_DOUBLES] = {{0}};
        float found[HC_DOUBLES];
        memcpy(rest[0], x + i, (size_t)(n - i) * sizeof *x);
        memcpy(rest[1], chance + i, (size_t)(n - i) * sizeof *chance);
        *(hc_singles *)found = hc_chance_step(*(const hc_doubles *)rest[0], *(const hc_doubles *)rest[1], scales,
                                              lowest, highest, fractions, back, leasts);
        memcpy(y + i, found, (size_t)(n - i) * sizeof *y);
    }
}

static inline void hc_round_by_chance_body(const hc_chance_levels *levels, const hc_chance_run *run, const void *x,
                                           bool is_double, float *y) {
    int64_t g = 0, left = run->group - run->skip; /* of group g */
    for (int64_t first = 0; first < run->n; first += HC_CHANCE_VALUES) {
        double chance[HC_CHANCE_VALUES], own[HC_CHANCE_VALUES];
        const int64_t n = hc_min(HC_CHANCE_VALUES, run->n - first);
        const double *values = is_double ? (const double *)x + first : own;
        for (int64_t i = 0; i < n && !is_double; i++)
            own[i] = (double)((const float *)x)[first + i];
        hc_chances(n, run->seed, run->index + (uint64_t)first * run->step, run->step, chance);
        for (int64_t c = 0, count; c < n; c += count) {
            count = hc_min(left, n - c);
            if (levels->n > 0)
                hc_chance_table(count, values + c, chance + c, run->scale[g], levels, y + first + c);
            else
                hc_chance_steps(count, values + c, chance + c, run->scale[g], run->low[g], run->high[g],
                                levels->fraction, levels->least, y + first + c);
            left -= count;
            if (left == 0)
                g++, left = run->group;
        }
    }
}

/* 8 bytes, 0 or 1 each, as bits. */
static inline uint8_t hc_joined(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return (uint8_t)(word * 0x0102040810204080u >> 56);
}

enum { HC_MARKS = 512 };

#if defined(__AVX2__) || defined(HC_MARKS_NEON)
/* Bits of the 8 values from below to above. */
#ifdef __AVX2__
static inline uint8_t hc_mark_eight(const float *x, float below, float above) {
    const __m256 value = _mm256_loadu_ps(x);
    const __m256 reached = _mm256_cmp_ps(_mm256_set1_ps(below), value, _CMP_LE_OQ);
    return (uint8_t)_mm256_movemask_ps(_mm256_and_ps(reached, _mm256_cmp_ps(value, _mm256_set1_ps(above), _CMP_LE_OQ)));
}
#else
static inline uint32x4_t hc_mark_four(const float *x, float below, float above) {
    const float32x4_t value = vld1q_f32(x);
    return vandq_u32(vcleq_f32(vdupq_n_f32(below), value), vcleq_f32(value, vdupq_n_f32(above)));
}
static inline uint8_t hc_mark_eight(const float *x, float below, float above) {
    static const uint16_t PLACES[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t low = vreinterpretq_u16_u32(hc_mark_four(x, below, above));
    const uint16x8_t high = vreinterpretq_u16_u32(hc_mark_four(x + 4, below, above));
    return (uint8_t)vaddvq_u16(vandq_u16(vuzp1q_u16(low, high), vld1q_u16(PLACES)));
}
#endif

/* n values of one group, whose bits begin at a byte. */
static inline void hc_mark_group(int64_t n, const float *x, float below, float above, uint8_t *bits) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        bits[i / 8] = hc_mark_eight(x + i, below, above);
    if (i < n)
        bits[i / 8] = 0;
    for (; i < n; i++)
        bits[i / 8] |= (uint8_t)((below <= x[i] && x[i] <= above) << (i & 7));
}

static inline bool hc_mark_groups(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold,
                                  float low, float high, uint8_t *bits) {
    if (is_double || (group % 8 != 0 && group < n))
        return false;
    for (int64_t first = 0, g = 0; first < n; first += group, g++) {
        const float t = threshold ? threshold[g] : 1.0f;
        hc_mark_group(hc_min(group, n - first), (const float *)x + first, low * t, high * t, bits + first / 8);
    }
    return true;
}
#else
static inline bool hc_mark_groups(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold,
                                  float low, float high, uint8_t *bits) {
    (void)n, (void)x, (void)is_double, (void)group, (void)threshold, (void)low, (void)high, (void)bits;
    return false;
}
#endif

static inline void hc_mark_inside_body(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold,
                                       float low, float high, uint8_t *bits) {
    if (hc_mark_groups(n, x, is_double, group, threshold, low, high, bits))
        return;
    for (int64_t first = 0, g = 0, next = group; first < n; first += HC_MARKS) {
        uint8_t inside[HC_MARKS + 8] = {0};
        const int64_t count = hc_min(HC_MARKS, n - first);
        for (int64_t c = 0, end; c < count; c = end) {
            end = hc_min(count, next - first);
            const float t = threshold ? threshold[g] : 1.0f, below = low * t, above = high * t;
            const float *singles = (const float *)x + first;
            const double *doubles = (const double *)x + first;
            if (is_double)
                for (int64_t i = c; i < end; i++)
                    inside[i] = (uint8_t)((below <= (float)doubles[i]) & ((float)doubles[i] <= above));
            else
                for (int64_t i = c; i < end; i++)
                    inside[i] = (uint8_t)((below <= singles[i]) & (singles[i] <= above));
            if (first + end == next)
                g++, next += group;
        }
        for (int64_t i = 0; i < count; i += 8)
            bits[(first + i) / 8] = hc_joined(inside + i);
    }
}

static inline void hc_note_factors_body(int64_t n, const float *restrict x, float low, float high,
                                        float *restrict factors) {
    for (int64_t i = 0; i < n; i++) {
        const bool inside = (low <= x[i]) & (x[i] <= high);
        const float bound = x[i] < 0 ? low : high;
        factors[i] = (inside ? 1.0f : bound) / (inside ? 1.0f : x[i]);
    }
}

typedef int32_t hc_choice __attribute__((vector_size(4 * HC_LANES), aligned(4), may_alias));

static inline void hc_keep_marked_body(int64_t n, const float *g, const uint8_t *bits, float *y) {
    hc_choice place;
    for (int i = 0; i < HC_LANES; i++)
        place[i] = 1 << i;
    int64_t i = 0;
    for (; i + HC_LANES <= n; i += HC_LANES) {
        int32_t word = bits[i / 8];
        if (HC_LANES == 16)
            word |= bits[i / 8 + 1] << 8;
        *(hc_choice *)(y + i) = *(const hc_choice *)(g + i) & (hc_choice)((place & word) != 0);
    }
    for (; i < n; i++)
        y[i] = bits[i / 8] >> (i & 7) & 1 ? g[i] : 0.0f;
}

#define HC_ROUND_BY_CHANCE(isa)                                                                                        \
    void hc_round_by_chance_##isa(const hc_chance_levels *levels, const hc_chance_run *run, const void *x,             \
                                  bool is_double, float *y) {                                                          \
        hc_round_by_chance_body(levels, run, x, is_double, y);                                                         \
    }
#define HC_MARKED(isa)                                                                                                 \
    void hc_mark_inside_##isa(int64_t n, const void *x, bool is_double, int64_t group, const float *threshold,         \
                              float low, float high, uint8_t *bits) {                                                  \
        hc_mark_inside_body(n, x, is_double, group, threshold, low, high, bits);                                       \
    }                                                                                                                  \
    void hc_note_factors_##isa(int64_t n, const float *x, float low, float high, float *factors) {                     \
        hc_note_factors_body(n, x, low, high, factors);                                                                \
    }                                                                                                                  \
    void hc_keep_marked_##isa(int64_t n, const float *g, const uint8_t *bits, float *y) {                              \
        hc_keep_marked_body(n, g, bits, y);                                                                            \
    }
