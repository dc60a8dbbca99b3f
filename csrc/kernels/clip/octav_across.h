/* OCTAV of float32 magnitudes: short groups across lanes, long ones along them. HC_DOUBLES (8 or 4) is what a register
 * holds; HC_BEYOND(sum, count, value, bound) adds a value to a sum, and one to a count, where it is beyond a bound. */
#include "kernels/clip/across.h"
#include "kernels/clip/octav.h"

typedef double hc_doubles __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));
typedef int64_t hc_words __attribute__((vector_size(8 * HC_DOUBLES), aligned(8), may_alias));

enum { SHORT = 256 }; /* values of a group that are kept across, 16 KiB of eight groups */

static inline hc_doubles hc_either(hc_words taken, hc_doubles yes, hc_doubles no) {
    return (hc_doubles)((taken & (hc_words)yes) | (~taken & (hc_words)no));
}

/* Counts below 2^52 as float64. */
static inline hc_doubles hc_counted(hc_words count) {
    const hc_words exponent = (hc_words){0} + 0x4330000000000000;
    return (hc_doubles)(count | exponent) - 0x1p52;
}

/* Sums and numbers of what is beyond s in the groups of one register, n a multiple of 8. */
static inline __attribute__((always_inline)) hc_doubles hc_sums_across(const double *values, int64_t n, hc_doubles s,
                                                                       hc_doubles *number) {
    hc_doubles lane[8] = {{0}};
    hc_words count[2] = {{0}};
    for (int64_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            const hc_doubles value = *(const hc_doubles *)(values + (i + j) * HC_ACROSS);
            HC_BEYOND(lane[j], count[j & 1], value, s);
        }
    *number = hc_counted(count[0] + count[1]);
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static inline bool hc_any(hc_words words) {
    int64_t any = 0;
    for (int i = 0; i < HC_DOUBLES; i++)
        any |= words[i];
    return any != 0;
}

static inline void hc_octav_across(const double *values, int64_t n, double inside, double *thresholds) {
    const hc_doubles zero = {0}, one = zero + 1.0;
    hc_doubles nonzero, outside, s = hc_sums_across(values, n, zero, &nonzero);
    hc_words running = nonzero > zero, largest = running & ~running;
    s = s / hc_either(running, nonzero, one);
    for (int t = 1; t <= HC_OCTAV_STEPS && hc_any(running); t++) {
        const hc_doubles sum = hc_sums_across(values, n, s, &outside);
        const hc_words none = running & (outside == zero);
        largest |= none;
        running &= ~none;
        const hc_doubles next = sum / hc_either(running, inside * (nonzero - outside) + outside, one);
        running &= next != s;
        s = hc_either(running, next, s);
    }
    hc_doubles *place = (hc_doubles *)thresholds;
    *place = hc_either(largest, *place, s);
}

/* hc_sum_beyond of float32 magnitudes. */
static inline double hc_sum_along(const float *x, int64_t n, double s, int64_t *number) {
    enum { PARTS = 8 / HC_DOUBLES };
    typedef float hc_singles __attribute__((vector_size(4 * HC_DOUBLES), aligned(4), may_alias));
    const hc_doubles bound = (hc_doubles){0} + s;
    const hc_words magnitude = (hc_words){0} + INT64_MAX;
    hc_doubles sums[PARTS] = {{0}};
    hc_words counts[PARTS] = {{0}};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < PARTS; j++) {
            const hc_singles singles = *(const hc_singles *)(x + i + j * HC_DOUBLES);
            const hc_words bits = (hc_words) __builtin_convertvector(singles, hc_doubles) & magnitude;
            const hc_doubles value = (hc_doubles)bits;
            HC_BEYOND(sums[j], counts[j], value, bound);
        }
    double lane[8];
    *number = 0;
    for (int j = 0; j < 8; j++) {
        lane[j] = sums[j / HC_DOUBLES][j % HC_DOUBLES];
        *number += counts[j / HC_DOUBLES][j % HC_DOUBLES];
    }
    for (; i < n; i++) {
        const double value = fabs((double)x[i]);
        lane[i & 7] += value > s ? value : 0;
        *number += value > s;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static inline float hc_octav_along(const float *x, int64_t n, double inside, float absmax) {
    int64_t nonzero, outside;
    double s = hc_sum_along(x, n, 0, &nonzero);
    if (nonzero == 0)
        return 0;
    s /= (double)nonzero;
    for (int t = 1; t <= HC_OCTAV_STEPS; t++) {
        const double sum = hc_sum_along(x, n, s, &outside);
        if (outside == 0)
            return absmax;
        const double next = sum / (inside * (double)(nonzero - outside) + (double)outside);
        if (next == s)
            break;
        s = next;
    }
    return (float)s;
}

static inline void hc_octav_body(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                                 float *thresholds) {
    if (is_double || positive) {
        hc_octav_each(groups, n, x, is_double, positive, inside, thresholds);
        return;
    }
    const float *from = x;
    if (n > SHORT) {
        for (int64_t g = 0; g < groups; g++)
            thresholds[g] = hc_octav_along(from + g * n, n, inside, thresholds[g]);
        return;
    }
    _Alignas(64) double values[SHORT * HC_ACROSS];
    for (int64_t g = 0; g < groups; g += HC_ACROSS) {
        const int64_t count = hc_min(HC_ACROSS, groups - g);
        for (int64_t i = 0; i < n; i += 8) {
            __m256 lanes[8];
            hc_load_across(from + g * n, count, n, i, lanes);
            for (int j = 0; j < 8; j++) {
                double *to = values + (i + j) * HC_ACROSS;
                _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm256_castps256_ps128(lanes[j])));
                _mm256_storeu_pd(to + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(lanes[j], 1)));
            }
        }
        double found[HC_ACROSS] = {0};
        for (int64_t i = 0; i < count; i++)
            found[i] = (double)thresholds[g + i];
        for (int h = 0; h < HC_ACROSS; h += HC_DOUBLES)
            hc_octav_across(values + h, hc_round_up(n, 8), inside, found + h);
        for (int64_t i = 0; i < count; i++)
            thresholds[g + i] = (float)found[i];
    }
}
