/* 8 x 8 floats transposed in registers. */
#ifndef HC_GEMV_TRANSPOSE_AVX2_H
#define HC_GEMV_TRANSPOSE_AVX2_H

#include <immintrin.h>

static inline __attribute__((always_inline)) void transpose(__m256 *a) {
    __m256 b[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
        b[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        a[i] = b[i];
}

#endif
