/* Planes of pairs of codes, 16 pixels in lanes, 12 filters by 2 registers. Included after `dot`. */
#include "base/lanes/avx512.h"
#include "kernels/kernel.h"

enum { SUMS = 24 };
typedef __m512i vector;
typedef __m512i sums;

static inline vector load(const int32_t *x) { return _mm512_loadu_si512(x); }
static inline vector every(int32_t pair) { return _mm512_set1_epi32(pair); }
static inline sums none(void) { return _mm512_setzero_si512(); }
static inline lanes floats_of(sums sum, double scale) {
    const __m512d by = _mm512_set1_pd(scale);
    const __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(sum));
    const __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sum, 1));
    const __m256 first = _mm512_cvtpd_ps(_mm512_mul_pd(by, low)), last = _mm512_cvtpd_ps(_mm512_mul_pd(by, high));
    return _mm512_insertf32x8(_mm512_castps256_ps512(first), last, 1);
}

#include "kernels/conv/planes/planes_s16.h"
