/* gemv_nm_pairs: 8 groups in lanes; 8 values of each group are transposed from [group][value] into [value][group]. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Rows `stride` apart, 8 values each, to columns. */
INLINE void transpose(const float *from, int64_t stride, __m256 out[8]) {
    __m256 pairs[8], fours[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        const __m256 a = _mm256_loadu_ps(from + i * stride), b = _mm256_loadu_ps(from + (i + 1) * stride);
        pairs[i] = _mm256_unpacklo_ps(a, b);
        pairs[i + 1] = _mm256_unpackhi_ps(a, b);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        out[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

void hc_gemv_nm_pairs_avx2(int64_t group, int64_t groups, const float *codes, const float *x, const float *scales,
                           float *sums) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t g = 0; g < groups; g += 8, codes += 8 * group, x += 8 * group) {
        __m256 p = _mm256_setzero_ps(), c[8], y[8];
        for (int64_t k = 0; k < group; k += 8) {
            transpose(codes + k, group, c);
            transpose(x + k, group, y);
            if (group - k >= 8) {
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++)
                    p = _mm256_fmadd_ps(y[i], c[i], p);
            } else {
                for (int64_t i = 0; i < group - k; i++)
                    p = _mm256_fmadd_ps(y[i], c[i], p);
            }
        }
        const __m256i exists = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(groups - g < 8 ? groups - g : 8)), lanes);
        float *to = sums + g % 16;
        const __m256 old = _mm256_loadu_ps(to), scale = _mm256_maskload_ps(scales + g, exists);
        _mm256_storeu_ps(to, _mm256_blendv_ps(old, _mm256_fmadd_ps(scale, p, old), _mm256_castsi256_ps(exists)));
    }
}
