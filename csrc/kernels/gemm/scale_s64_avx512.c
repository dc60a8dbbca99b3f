/* One segment of a grouped matmul with 64-bit sums, 8 values at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_scale_s64_avx512(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a, const float *scale_b,
                         float *c) {
    for (int64_t i = 0; i < rows; i++, dots += columns, c += columns)
        for (int64_t j = 0; j < columns; j += 8) {
            const __m256 values = _mm512_cvtepi64_ps(_mm512_loadu_si512(dots + j));
            const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(scale_a[i]), _mm256_loadu_ps(scale_b + j));
            _mm256_storeu_ps(c + j, _mm256_fmadd_ps(scale, values, _mm256_loadu_ps(c + j)));
        }
}
