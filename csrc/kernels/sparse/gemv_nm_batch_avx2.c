/* gemv_nm_batch: 8 vectors in lanes, four rows at a time, whose chains overlap and which share the loads of x. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 add(const hc_gemv_nm_batch_args *args, int r, int64_t t, __m256 sum) {
    const __m256 x = _mm256_loadu_ps(args->panel + (int64_t)args->at[r][t] * HC_GEMV_BATCH);
    return _mm256_fmadd_ps(x, _mm256_broadcast_ss(args->codes[r] + t), sum);
}

static void add_columns(const hc_gemv_nm_batch_args *args) {
    const hc_gemv_nm_batch_args own = *args; /* a copy, which stores to the sums cannot change */
    for (int64_t t = 0; t < own.kept; t++)
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            float *sum = own.sums + (r * 64 + own.at[r][t] % 64) * HC_GEMV_BATCH;
            _mm256_storeu_ps(sum, add(&own, r, t, _mm256_loadu_ps(sum)));
        }
}

static void add_groups(const hc_gemv_nm_batch_args *args) {
    const hc_gemv_nm_batch_args own = *args;
    for (int64_t g = 0, first = 0; first < own.kept; g++, first += own.group) {
        const int64_t end = hc_min(first + own.group, own.kept);
        __m256 p[HC_GEMV_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++)
            p[r] = _mm256_setzero_ps();
        for (int64_t t = first; t < end; t++)
#pragma GCC unroll 4
            for (int r = 0; r < HC_GEMV_ROWS; r++)
                p[r] = add(&own, r, t, p[r]);
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            float *sum = own.sums + (r * 16 + g % 16) * HC_GEMV_BATCH;
            const __m256 scale = _mm256_broadcast_ss(own.scales[r] + g);
            _mm256_storeu_ps(sum, _mm256_fmadd_ps(scale, p[r], _mm256_loadu_ps(sum)));
        }
    }
}

void hc_gemv_nm_batch_avx2(const hc_gemv_nm_batch_args *args) { args->group ? add_groups(args) : add_columns(args); }
