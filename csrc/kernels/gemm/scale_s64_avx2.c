/* One segment of a grouped matmul with 64-bit sums, 4 values at a time. AVX2 cannot convert 64-bit integers; the
 * scalar instruction can, with one rounding. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_scale_s64_avx2(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a, const float *scale_b,
                       float *c) {
    for (int64_t i = 0; i < rows; i++, dots += columns, c += columns)
        for (int64_t j = 0; j < columns; j += 4) {
            const int64_t *four = dots + j;
            const __m128 values = _mm_setr_ps((float)four[0], (float)four[1], (float)four[2], (float)four[3]);
            const __m128 scale = _mm_mul_ps(_mm_set1_ps(scale_a[i]), _mm_loadu_ps(scale_b + j));
            _mm_storeu_ps(c + j, _mm_fmadd_ps(scale, values, _mm_loadu_ps(c + j)));
        }
}
