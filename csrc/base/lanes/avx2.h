/* Vectors of floats of AVX2; base/lanes/scalar.h defines each operation for one float. */
#ifndef HC_LANES_AVX2_H
#define HC_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8 };
typedef __m256 lanes;
typedef __m256 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm256_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm256_storeu_ps(to, a); }
/* The mask of the first n < 8 lanes. */
static inline __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline lanes lanes_load_some(const float *from, int64_t n) { return _mm256_maskload_ps(from, first_lanes(n)); }
static inline void lanes_store_some(float *to, lanes a, int64_t n) { _mm256_maskstore_ps(to, first_lanes(n), a); }
static inline lanes lanes_of(float a) { return _mm256_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm256_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm256_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm256_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm256_div_ps(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return _mm256_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm256_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline lanes lanes_relu(lanes a) { return _mm256_and_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NLE_UQ), a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return _mm256_and_ps(a, b); }
static inline lanes lanes_select(lanes_mask mask, lanes a, lanes b) { return _mm256_blendv_ps(b, a, mask); }
static inline lanes lanes_trunc(lanes a) { return _mm256_cvtepi32_ps(_mm256_cvttps_epi32(a)); }
static inline lanes lanes_nearest(lanes a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm256_fmadd_ps(a, b, c); }
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return _mm256_fmadd_ps(a, b, sum); }
static inline lanes lanes_scaled(double by, lanes a) {
    const __m256d every = _mm256_set1_pd(by);
    const __m256d low = _mm256_mul_pd(every, _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
    const __m256d high = _mm256_mul_pd(every, _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}
static inline __m128 pair_half(double by, __m128 a, __m128 b) {
    const __m256d sum = _mm256_fmadd_pd(_mm256_cvtps_pd(a), _mm256_set1_pd(256), _mm256_cvtps_pd(b));
    return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_set1_pd(by), sum));
}
static inline lanes lanes_scaled_pair(double by, lanes a, lanes b) {
    const __m128 low = pair_half(by, _mm256_castps256_ps128(a), _mm256_castps256_ps128(b));
    return _mm256_set_m128(pair_half(by, _mm256_extractf128_ps(a, 1), _mm256_extractf128_ps(b, 1)), low);
}
/* Lanes 0, 2, ... and lanes 1, 3, ... of a followed by b. */
static inline lanes lanes_even(lanes a, lanes b) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8));
}
static inline lanes lanes_odd(lanes a, lanes b) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8));
}
static inline __attribute__((always_inline)) void lanes_transpose(lanes *a) {
    __m256 b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* columns c and c + 4 of 4 rows */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m256d first = _mm256_castps_pd(b[i + half]), second = _mm256_castps_pd(b[i + 2 + half]);
            a[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(first, second));
            a[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(first, second));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        b[i] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20);
        b[i + 4] = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = b[i];
}
/* 4 columns, `from` on, of 8 rows. Halves of rows 4 apart are loaded into one register, which saves a third of the
 * shuffles. */
static inline __attribute__((always_inline)) void lanes_load_quad(const float *const *rows, int64_t from, lanes *w) {
    __m256 a[4], b[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(rows[i] + from)),
                                    _mm_loadu_ps(rows[i + 4] + from), 1);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        const __m256d first = _mm256_castps_pd(b[j]), second = _mm256_castps_pd(b[2 + j]);
        w[2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(first, second));
        w[2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(first, second));
    }
}
/* Columns `from` on of 8 rows. */
static inline __attribute__((always_inline)) void lanes_load_columns(const float *const *rows, int64_t from, lanes *w) {
    lanes_load_quad(rows, from, w);
    lanes_load_quad(rows, from + LANES / 2, w + LANES / 2);
}
static inline uint16_t lanes_to_f16(float a) { return (uint16_t)_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT); }
static inline float lanes_from_f16(uint16_t a) { return _cvtsh_ss(a); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    const __m256i whole = _mm256_cvttps_epi32(a);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i low = _mm_and_si128(words, _mm_set1_epi16(0xff));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(low, low));
}

#endif
