/* OCTAV of magnitudes: short groups across lanes, long ones along them. HC_DOUBLES (8 or 4) is the number of
 * values of a register, HC_REGISTERS the number of registers processed at once, as each waits for its sums and
 * quotients. HC_BEYOND(sum, count, value, bound) adds a value to a sum, and one to a count, if it is beyond a bound; a
 * set may have its own. HC_ANY(words) is false if all are 0. Included after HC_ACROSS and hc_doubles_across, as in
 * kernels/clip/across.h. */
#include "kernels/clip/octav.h"

typedef double hc_doubles __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));
typedef int64_t hc_words __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));

#ifndef HC_BEYOND
#define HC_BEYOND(sum, count, value, bound)                                                                            \
    do {                                                                                                               \
        const hc_words beyond = (value) > (bound);                                                                     \
        sum += (hc_doubles)((hc_words)(value) & beyond);                                                               \
        count -= beyond;                                                                                               \
    } while (0)
#endif

/* GROUPS: groups processed across lanes at once; SHORT: longest such group, 16 KiB for eight groups */
enum { GROUPS = HC_DOUBLES * HC_REGISTERS < HC_ACROSS ? HC_ACROSS : HC_DOUBLES * HC_REGISTERS, SHORT = 256 };
_Static_assert(SHORT *GROUPS <= HC_OCTAV_SCRATCH, "scratch");

static inline hc_doubles hc_either(hc_words taken, hc_doubles yes, hc_doubles no) {
    return (hc_doubles)((taken & (hc_words)yes) | (~taken & (hc_words)no));
}

/* Counts below 2^52 as float64. */
static inline hc_doubles hc_counted(hc_words count) {
    const hc_words exponent = (hc_words){0} + 0x4330000000000000;
    return (hc_doubles)(count | exponent) - 0x1p52;
}

/* Sums and numbers of the values beyond s in the groups of each register, n a multiple of 8. */
static inline __attribute__((always_inline)) void hc_sums_across(const double *values, int64_t n, const hc_doubles *s,
                                                                 hc_doubles *sum, hc_doubles *number) {
    hc_doubles lane[HC_REGISTERS][8] = {{{0}}};
    hc_words count[HC_REGISTERS] = {{0}};
    for (int64_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++)
            for (int r = 0; r < HC_REGISTERS; r++) {
                const hc_doubles value = *(const hc_doubles *)(values + (i + j) * GROUPS + r * HC_DOUBLES);
                HC_BEYOND(lane[r][j], count[r], value, s[r]);
            }
    for (int r = 0; r < HC_REGISTERS; r++) {
        const hc_doubles *of = lane[r];
        number[r] = hc_counted(count[r]);
        sum[r] = ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
    }
}

static inline void hc_octav_across(const double *values, int64_t n, double inside, double *thresholds) {
    const hc_doubles zero = {0}, one = zero + 1.0;
    hc_doubles nonzero[HC_REGISTERS], outside[HC_REGISTERS], sum[HC_REGISTERS], s[HC_REGISTERS] = {{0}};
    hc_words running[HC_REGISTERS], largest[HC_REGISTERS], any = {0};
    hc_sums_across(values, n, s, sum, nonzero);
    for (int r = 0; r < HC_REGISTERS; r++) {
        running[r] = nonzero[r] > zero;
        largest[r] = running[r] & ~running[r];
        s[r] = sum[r] / hc_either(running[r], nonzero[r], one);
        any |= running[r];
    }
    for (int t = 1; t <= HC_OCTAV_STEPS && HC_ANY(any); t++) {
        hc_sums_across(values, n, s, sum, outside);
        any = running[0] & ~running[0];
        for (int r = 0; r < HC_REGISTERS; r++) {
            const hc_words none = running[r] & (outside[r] == zero);
            largest[r] |= none;
            running[r] &= ~none;
            const hc_doubles next =
                sum[r] / hc_either(running[r], inside * (nonzero[r] - outside[r]) + outside[r], one);
            running[r] &= next != s[r];
            s[r] = hc_either(running[r], next, s[r]);
            any |= running[r];
        }
    }
    for (int r = 0; r < HC_REGISTERS; r++) {
        hc_doubles *place = (hc_doubles *)thresholds + r;
        *place = hc_either(largest[r], *place, s[r]);
    }
}

/* Magnitudes of values of a group from index i on. */
static inline hc_doubles hc_octav_magnitudes(const hc_octav_group *group, int64_t i) {
    typedef float hc_singles __attribute__((vector_size(4 * HC_DOUBLES), aligned(4), may_alias));
    const hc_doubles zero = {0};
    const hc_words magnitude = (hc_words){0} + INT64_MAX;
    const hc_doubles value =
        group->is_double ? *(const hc_doubles *)((const double *)group->x + i)
                         : __builtin_convertvector(*(const hc_singles *)((const float *)group->x + i), hc_doubles);
    return group->positive ? hc_either(value > zero, value, zero) : (hc_doubles)((hc_words)value & magnitude);
}

/* hc_sum_beyond, 8 values at a time. */
static inline __attribute__((always_inline)) double hc_sum_along(const hc_octav_group *group, double s,
                                                                 int64_t *number) {
    const int64_t n = group->n;
    enum { PARTS = 8 / HC_DOUBLES };
    const hc_doubles bound = (hc_doubles){0} + s;
    hc_doubles sums[PARTS] = {{0}};
    hc_words counts[PARTS] = {{0}};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < PARTS; j++) {
            const hc_doubles value = hc_octav_magnitudes(group, i + j * HC_DOUBLES);
            HC_BEYOND(sums[j], counts[j], value, bound);
        }
    double lane[8];
    *number = 0;
    for (int j = 0; j < 8; j++) {
        lane[j] = sums[j / HC_DOUBLES][j % HC_DOUBLES];
        *number += counts[j / HC_DOUBLES][j % HC_DOUBLES];
    }
    for (; i < n; i++) {
        const double value = hc_clip_magnitude(group, i);
        lane[i & 7] += value > s ? value : 0;
        *number += value > s;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double hc_sum_singles(const hc_octav_group *group, double s, int64_t *number) {
    const hc_octav_group known = {group->x, false, false, group->n};
    return hc_sum_along(&known, s, number);
}

static double hc_sum_doubles(const hc_octav_group *group, double s, int64_t *number) {
    const hc_octav_group known = {group->x, true, false, group->n};
    return hc_sum_along(&known, s, number);
}

static double hc_sum_positive(const hc_octav_group *group, double s, int64_t *number) {
    return hc_sum_along(group, s, number);
}

/* Magnitudes of `count` groups as hc_doubles_across stores them, for the other types. */
static inline void hc_spread_across(const hc_octav_group *first, int64_t count, double *values) {
    for (int64_t i = 0; i < hc_round_up(first->n, 8); i++)
        for (int64_t g = 0; g < GROUPS; g++)
            values[i * GROUPS + g] = i < first->n && g < count ? hc_clip_magnitude(first, g * first->n + i) : 0;
}

/* One float64 group may be a part of `values`. */
static inline void hc_octav_body(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                                 double *values, float *thresholds) {
    const int64_t size = is_double ? 8 : 4;
    if (n > SHORT || (is_double && groups == 1)) {
        for (int64_t g = 0; g < groups; g++) {
            const hc_octav_group group = {(const char *)x + g * n * size, is_double, positive, n};
            if (positive)
                thresholds[g] = hc_octav_of(hc_sum_positive, &group, inside, thresholds[g]);
            else if (is_double)
                thresholds[g] = hc_octav_of(hc_sum_doubles, &group, inside, thresholds[g]);
            else
                thresholds[g] = hc_octav_of(hc_sum_singles, &group, inside, thresholds[g]);
        }
        return;
    }
    for (int64_t g = 0; g < groups; g += GROUPS) {
        const int64_t count = hc_min(GROUPS, groups - g);
        const hc_octav_group at = {(const char *)x + g * n * size, is_double, positive, n};
        if (is_double || positive)
            hc_spread_across(&at, count, values);
        for (int64_t first = 0; first < GROUPS && !is_double && !positive; first += HC_ACROSS)
            for (int64_t i = 0; i < n; i += 8)
                hc_doubles_across((const float *)at.x + first * n, count - first, n, i, values + i * GROUPS + first,
                                  GROUPS);
        double found[GROUPS] = {0};
        for (int64_t i = 0; i < count; i++)
            found[i] = (double)thresholds[g + i];
        for (int h = 0; h < GROUPS; h += HC_DOUBLES * HC_REGISTERS)
            hc_octav_across(values + h, hc_round_up(n, 8), inside, found + h);
        for (int64_t i = 0; i < count; i++)
            thresholds[g + i] = (float)found[i];
    }
}
