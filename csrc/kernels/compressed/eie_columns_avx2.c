/* hc_eie_columns_avx2: kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <math.h>

static inline __attribute__((always_inline)) void add(float value, const float *x, int lanes, float *sums) {
    if (lanes == 1) { /* not 0: such columns are left out */
        *sums = fmaf(value, *x, *sums);
        return;
    }
    const __m256 factors = _mm256_loadu_ps(x), before = _mm256_loadu_ps(sums);
    const __m256 after = _mm256_fmadd_ps(_mm256_set1_ps(value), factors, before);
    const __m256 is_zero = _mm256_cmp_ps(factors, _mm256_setzero_ps(), _CMP_EQ_OQ);
    _mm256_storeu_ps(sums, _mm256_blendv_ps(after, before, is_zero));
}

#include "kernels/compressed/eie_copied.h"

HC_EIE_COLUMNS(avx2)
