/* hc_maxima_avx2, hc_top_pair_avx2 and hc_octav_avx2: kernels/clip/clip.h. */
#define HC_DOUBLES 4
#define HC_REGISTERS 1
#define HC_ANY(words) (!_mm256_testz_si256((__m256i)(words), (__m256i)(words)))
#include "kernels/clip/across.h"
#include "kernels/clip/octav_across.h"

void hc_octav_avx2(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                   double *scratch, float *thresholds) {
    hc_octav_body(groups, n, x, is_double, positive, inside, scratch, thresholds);
}

/* Lanes are parts of one group. Their maxima are transposed to lanes of groups and compared. */
void hc_maxima_avx2(int64_t groups, int64_t n, const float *x, float *maxima) {
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i rest = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(n % 8)), places);
    for (int64_t g = 0; g < groups; g += HC_ACROSS) {
        __m256 lanes[HC_ACROSS];
        const int64_t count = hc_min(HC_ACROSS, groups - g);
        for (int64_t i = 0; i < HC_ACROSS; i++) {
            const float *from = x + (g + i) * n;
            __m256i largest = _mm256_setzero_si256();
            int64_t c = i < count ? 0 : n;
            for (; c + 8 <= n; c += 8)
                largest = _mm256_max_epi32(
                    largest, _mm256_and_si256(magnitude, _mm256_loadu_si256((const __m256i *)(from + c))));
            if (c < n)
                largest = _mm256_max_epi32(
                    largest, _mm256_and_si256(magnitude, _mm256_maskload_epi32((const int *)(from + c), rest)));
            lanes[i] = _mm256_castsi256_ps(largest);
        }
        lanes_transpose(lanes);
        __m256i largest = _mm256_castps_si256(lanes[0]);
        for (int i = 1; i < HC_ACROSS; i++)
            largest = _mm256_max_epi32(largest, _mm256_castps_si256(lanes[i]));
        const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), places);
        _mm256_maskstore_epi32((int *)(maxima + g), there, largest);
    }
}

/* The `place` largest of each lane, descending, in `top`. In long groups most values are below all of them. */
static inline __attribute__((always_inline)) void top_across(const float *x, int64_t count, int64_t n, int64_t place,
                                                             bool many, __m256 *top) {
    for (int64_t j = 0; j < place; j++)
        top[j] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        __m256 lanes[8];
        hc_load_across(x, count, n, i, lanes);
        for (int k = 0; k < 8; k++) {
            if (many && !_mm256_movemask_ps(_mm256_cmp_ps(lanes[k], top[place - 1], _CMP_GT_OQ)))
                continue;
            for (int64_t j = 0; j < place; j++) {
                const __m256 above = _mm256_max_ps(top[j], lanes[k]);
                lanes[k] = _mm256_min_ps(top[j], lanes[k]);
                top[j] = above;
            }
        }
    }
}

/* With a constant rank the largest values stay in registers. */
static inline __attribute__((always_inline)) void pair_across(const float *x, int64_t count, int64_t n, int64_t place,
                                                              bool many, __m256 *lower, __m256 *upper) {
    __m256 top[HC_TOP];
    top_across(x, count, n, place, many, top);
    *lower = top[place - 1];
    *upper = top[place > 1 ? place - 2 : 0];
}

void hc_top_pair_avx2(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t g = 0; g < groups; g += HC_ACROSS) {
        const int64_t count = hc_min(HC_ACROSS, groups - g);
        __m256 low, high;
        switch (place) {
        case 1:
            pair_across(x + g * n, count, n, 1, false, &low, &high);
            break;
        case 2:
            pair_across(x + g * n, count, n, 2, false, &low, &high);
            break;
        case 3:
            pair_across(x + g * n, count, n, 3, false, &low, &high);
            break;
        default:
            pair_across(x + g * n, count, n, place, true, &low, &high);
        }
        const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), places);
        _mm256_maskstore_ps(lower + g, there, low);
        _mm256_maskstore_ps(upper + g, there, high);
    }
}
