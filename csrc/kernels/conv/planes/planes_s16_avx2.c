/* Planes of pairs of codes by vpmaddwd, 8 pixels in lanes, 6 filters by 2 registers: hc_planes_s16_avx2;
 * kernels/conv/conv.h. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

enum { SUMS = 12 };
typedef __m256i vector;
typedef __m256i sums;

static inline vector load(const int32_t *x) { return _mm256_loadu_si256((const __m256i *)(const void *)x); }
static inline vector every(int32_t pair) { return _mm256_set1_epi32(pair); }
static inline sums none(void) { return _mm256_setzero_si256(); }
static inline sums dot(sums sum, vector x, vector w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
static inline lanes floats_of(sums sum, double scale) {
    const __m256d by = _mm256_set1_pd(scale);
    const __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(sum));
    const __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(sum, 1));
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_mul_pd(by, high)), _mm256_cvtpd_ps(_mm256_mul_pd(by, low)));
}

#include "kernels/conv/planes/planes_s16.h"

HC_PLANES_S16(avx2)
