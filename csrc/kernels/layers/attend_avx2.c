/* hc_attend_avx2: kernels/layers/layers.h. */
#define HC_FLOATS 8
#define HC_DOTS 8
#include "kernels/layers/sums.h"

#include "kernels/kernel.h"

#include <immintrin.h>

#define HALVES(a, b) _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))
#define INSIDE(a, b, low, high) _mm256_add_ps(_mm256_shuffle_ps(a, b, low), _mm256_shuffle_ps(a, b, high))

/* Accumulators i + 8 are added to i. */
static inline __m256 sums_of(int64_t n, const float *q, const float *k) {
    __m256 low = _mm256_setzero_ps(), high = low;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(q + i), _mm256_loadu_ps(k + i)));
        high = _mm256_add_ps(high, _mm256_mul_ps(_mm256_loadu_ps(q + i + 8), _mm256_loadu_ps(k + i + 8)));
    }
    if (i < n) {
        float rest[2][16] = {{0}};
        memcpy(rest[0], q + i, (size_t)(n - i) * sizeof *q);
        memcpy(rest[1], k + i, (size_t)(n - i) * sizeof *k);
        low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(rest[0]), _mm256_loadu_ps(rest[1])));
        high = _mm256_add_ps(high, _mm256_mul_ps(_mm256_loadu_ps(rest[0] + 8), _mm256_loadu_ps(rest[1] + 8)));
    }
    return _mm256_add_ps(low, high);
}

static inline void hc_dots(int64_t n, const float *q, const float *k, int64_t ld, float *s) {
    __m256 sums[4];
    for (int r = 0; r < 4; r++)
        sums[r] = HALVES(sums_of(n, q, k + r * ld), sums_of(n, q, k + (4 + r) * ld));
    const __m256 even = INSIDE(sums[0], sums[1], 0x44, 0xee), odd = INSIDE(sums[2], sums[3], 0x44, 0xee);
    _mm256_storeu_ps(s, INSIDE(even, odd, 0x88, 0xdd));
}

#include "kernels/layers/attend.h"

void hc_attend_avx2(const hc_attend *some) { hc_attend_body(some); }
