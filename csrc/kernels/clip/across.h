/* Eight groups at a time, one group per lane: values of the same index are adjacent, so sums need no folding of
 * registers. Fewer than seven groups may follow the first group; the lanes of missing groups hold zeros. */
#ifndef HC_CLIP_ACROSS_H
#define HC_CLIP_ACROSS_H

#include "base/lanes/avx2.h"

#include <stdint.h>

enum { HC_ACROSS = 8 };

/* Magnitudes of 8 values of each of `count` groups as lanes of 8 registers; values from the n-th on are 0. */
static inline __attribute__((always_inline)) void hc_load_across(const float *x, int64_t count, int64_t n,
                                                                 int64_t first, __m256 *lanes) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(n - first < 8 ? n - first : 8)), places);
    for (int64_t g = 0; g < HC_ACROSS; g++)
        lanes[g] = g >= count       ? _mm256_setzero_ps()
                   : n - first >= 8 ? _mm256_and_ps(magnitude, _mm256_loadu_ps(x + g * n + first))
                                    : _mm256_and_ps(magnitude, _mm256_maskload_ps(x + g * n + first, there));
    lanes_transpose(lanes);
}

/* The same as float64, `stride` doubles from value to value. */
static inline __attribute__((always_inline)) void hc_doubles_across(const float *x, int64_t count, int64_t n,
                                                                    int64_t first, double *to, int64_t stride) {
    __m256 lanes[8];
    hc_load_across(x, count, n, first, lanes);
    for (int j = 0; j < 8; j++) {
        _mm256_storeu_pd(to + j * stride, _mm256_cvtps_pd(_mm256_castps256_ps128(lanes[j])));
        _mm256_storeu_pd(to + j * stride + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(lanes[j], 1)));
    }
}

#endif
