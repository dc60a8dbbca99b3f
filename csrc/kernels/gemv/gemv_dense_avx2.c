/* gemv_dense: 8 rows in lanes; blocks of 8 columns are transposed. At least two independent sums hide the latency of
 * fma. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum { AHEAD = 128 /* columns, as in gemv_dense_avx512.c */ };

/* 8 x n_groups rows; n_groups x n_vectors is at most 4. */
INLINE void multiply(int64_t n, const float *const *rows, int n_groups, int n_vectors, const float *x, int64_t ldx,
                     float *out) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 acc[4];
    for (int i = 0; i < 4; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t k = 0; k < n; k += 8) {
        const int64_t steps = hc_min(n - k, 8);
        const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)steps), lanes);
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++) {
            __m256 w[8];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                const float *row = rows[g * 8 + i];
                w[i] = steps == 8 ? _mm256_loadu_ps(row + k) : _mm256_maskload_ps(row + k, mask);
                if (k % 16 == 0)
                    _mm_prefetch((const char *)(row + k + AHEAD), _MM_HINT_T1);
            }
            lanes_transpose(w);
            if (steps == 8) {
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++)
                    for (int v = 0; v < n_vectors; v++)
                        acc[g * n_vectors + v] =
                            _mm256_fmadd_ps(_mm256_set1_ps(x[v * ldx + k + i]), w[i], acc[g * n_vectors + v]);
                continue;
            }
            for (int64_t i = 0; i < steps; i++)
                for (int v = 0; v < n_vectors; v++)
                    acc[g * n_vectors + v] =
                        _mm256_fmadd_ps(_mm256_set1_ps(x[v * ldx + k + i]), w[i], acc[g * n_vectors + v]);
        }
    }
    for (int g = 0; g < n_groups; g++)
        for (int v = 0; v < n_vectors; v++)
            _mm256_storeu_ps(out + v * HC_GEMV_DENSE_ROWS + g * 8, acc[g * n_vectors + v]);
}

void hc_gemv_dense_avx2(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx, float *out) {
    if (n_vectors == 1)
        multiply(n, rows, 2, 1, x, ldx, out);
    if (n_vectors == 2)
        multiply(n, rows, 2, 2, x, ldx, out);
    for (int first = 0; n_vectors == 4 && first < HC_GEMV_DENSE_ROWS; first += 8)
        multiply(n, rows + first, 1, 4, x, ldx, out + first);
}
