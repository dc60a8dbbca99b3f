/* Vectors of floats of AVX-512; base/lanes/scalar.h defines each operation for one float. */
#ifndef HC_LANES_AVX512_H
#define HC_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16 };
typedef __m512 lanes;
typedef __mmask16 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm512_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm512_storeu_ps(to, a); }
static inline __mmask16 first_lanes(int64_t n) { return (__mmask16)(0xffffu >> (LANES - n)); }
static inline lanes lanes_load_some(const float *from, int64_t n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), from);
}
static inline void lanes_store_some(float *to, lanes a, int64_t n) { _mm512_mask_storeu_ps(to, first_lanes(n), a); }
static inline lanes lanes_of(float a) { return _mm512_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm512_abs_ps(a); }
static inline lanes lanes_relu(lanes a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NLE_UQ), a);
}
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a & b; }
static inline lanes lanes_select(lanes_mask mask, lanes a, lanes b) { return _mm512_mask_mov_ps(b, mask, a); }
static inline lanes lanes_trunc(lanes a) { return _mm512_cvtepi32_ps(_mm512_cvttps_epi32(a)); }
static inline lanes lanes_nearest(lanes a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline lanes lanes_fma(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return _mm512_fmadd_ps(a, b, sum); }
static inline lanes lanes_scaled(double by, lanes a) {
    const __m512d every = _mm512_set1_pd(by);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(every, _mm512_cvtps_pd(_mm512_castps512_ps256(a))));
    const __m256 last = _mm512_cvtpd_ps(_mm512_mul_pd(every, _mm512_cvtps_pd(high)));
    return _mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(last), 1));
}
static inline __m256 pair_half(double by, __m256 a, __m256 b) {
    const __m512d sum = _mm512_fmadd_pd(_mm512_cvtps_pd(a), _mm512_set1_pd(256), _mm512_cvtps_pd(b));
    return _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_set1_pd(by), sum));
}
static inline __m256 upper_half(lanes a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)); }
static inline lanes lanes_scaled_pair(double by, lanes a, lanes b) {
    const __m256 low = pair_half(by, _mm512_castps512_ps256(a), _mm512_castps512_ps256(b));
    const __m256 high = pair_half(by, upper_half(a), upper_half(b));
    return _mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1));
}
/* Lanes 0, 2, ... and lanes 1, 3, ... of a followed by b. */
static inline lanes lanes_even(lanes a, lanes b) {
    const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, from, b);
}
static inline lanes lanes_odd(lanes a, lanes b) {
    const __m512i from = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, from, b);
}
static inline __attribute__((always_inline)) void lanes_transpose(lanes *a) {
    __m512 b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* columns c, c + 4, c + 8, c + 12 of 4 rows */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m512d first = _mm512_castps_pd(b[i + half]), second = _mm512_castps_pd(b[i + 2 + half]);
            a[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
            a[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* quarters 0 and 2, 1 and 3 of 8 rows */
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88);
        a[i + 4] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88);
        a[i + 8] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd);
        a[i + 12] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd);
    }
}
/* The first 8 floats of two rows. The second ones come by a blend, which no shuffle unit has to do. */
static inline lanes lanes_halves(const float *low, const float *high) {
    const __m512d first = _mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(low)));
    return _mm512_castpd_ps(_mm512_mask_broadcast_f64x4(first, 0xf0, _mm256_castps_pd(_mm256_loadu_ps(high))));
}
/* 8 columns of 16 rows from pairs of rows 4 apart: lanes_halves of rows i and i + 4, i = 0, 1, 2, 3, 8, 9, 10, 11. A
 * quarter of the shuffles of lanes_transpose are saved. */
static inline __attribute__((always_inline)) void lanes_of_halves(lanes *pair, lanes *column) {
    __m512 b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_ps(pair[i], pair[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(pair[i], pair[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) { /* columns c and c + 4 of 4 rows, then of the 4 rows after them */
            const __m512d first = _mm512_castps_pd(b[i + j]), second = _mm512_castps_pd(b[i + 2 + j]);
            pair[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
            pair[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        column[i] = _mm512_shuffle_f32x4(pair[i], pair[i + 4], 0x88);
        column[i + 4] = _mm512_shuffle_f32x4(pair[i], pair[i + 4], 0xdd);
    }
}
/* Columns `from` on of 16 rows. */
static inline __attribute__((always_inline)) void lanes_load_columns(const float *const *rows, int64_t from, lanes *w) {
    __m512 a[2][8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) /* both halves of a line at once: rows that share a set of L1 evict it */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            a[half][i] = lanes_halves(rows[i + (i & 4)] + from + 8 * half, rows[i + (i & 4) + 4] + from + 8 * half);
    __asm__ volatile("" : : : "memory");
    lanes_of_halves(a[0], w);
    lanes_of_halves(a[1], w + 8);
}
static inline uint16_t lanes_to_f16(float a) { return (uint16_t)_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT); }
static inline float lanes_from_f16(uint16_t a) { return _cvtsh_ss(a); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a)));
}

#endif
