/* gemv_dense: 16 rows in lanes; blocks of 16 columns are transposed. More rows at a time would hide the latency of fma,
 * but rows that are 4 KiB apart share the sets of L1: 64 rows take twice as long (2048 x 2048, one vector, Zen 5,
 * 2026-11).
 */
#include "base/lanes/avx512.h"
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum { AHEAD = 128 }; /* columns: 4096 x 4096 in 2.5 ms, 2.8 without (one thread, Zen 5, 2026-11) */

INLINE void multiply(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx, float *out) {
    __m512 acc[4];
    for (int v = 0; v < n_vectors; v++)
        acc[v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += 16) {
        const int64_t steps = hc_min(n - k, 16);
        const __mmask16 mask = (__mmask16)((1u << steps) - 1);
        __m512 w[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            w[i] = _mm512_maskz_loadu_ps(mask, rows[i] + k);
            _mm_prefetch((const char *)(rows[i] + k + AHEAD), _MM_HINT_T1);
        }
        lanes_transpose(w);
        if (steps == 16) {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                for (int v = 0; v < n_vectors; v++)
                    acc[v] = _mm512_fmadd_ps(_mm512_set1_ps(x[v * ldx + k + i]), w[i], acc[v]);
            continue;
        }
        for (int64_t i = 0; i < steps; i++)
            for (int v = 0; v < n_vectors; v++)
                acc[v] = _mm512_fmadd_ps(_mm512_set1_ps(x[v * ldx + k + i]), w[i], acc[v]);
    }
    for (int v = 0; v < n_vectors; v++)
        _mm512_storeu_ps(out + v * HC_GEMV_DENSE_ROWS, acc[v]);
}

void hc_gemv_dense_avx512(int64_t n, const float *const *rows, int n_vectors, const float *x, int64_t ldx, float *out) {
    if (n_vectors == 1)
        multiply(n, rows, 1, x, ldx, out);
    else if (n_vectors == 2)
        multiply(n, rows, 2, x, ldx, out);
    else
        multiply(n, rows, 4, x, ldx, out);
}
