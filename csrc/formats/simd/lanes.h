/* Several floats as one, 16 or 8 by the SIMD set that a file is compiled for; formats/lanes.h has one. What is written
 * with these does the same operations everywhere, each rounded once.
 */
#ifndef HC_LANES_H
#define HC_LANES_H

#include "formats/simd/simd.h"

#if defined(HC_SIMD_avx512)
enum { LANES = 16 };
typedef __m512 lanes;
typedef __mmask16 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm512_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm512_storeu_ps(to, a); }
static inline lanes lanes_of(float a) { return _mm512_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm512_div_ps(a, b); }
/* b where either is NaN */
static inline lanes lanes_min(lanes a, lanes b) { return _mm512_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm512_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm512_abs_ps(a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a & b; }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return _mm512_mask_mov_ps(b, mask, a); }
static inline lanes lanes_trunc(lanes a) { return _mm512_cvtepi32_ps(_mm512_cvttps_epi32(a)); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a)));
}
#elif defined(HC_SIMD_avx2)
enum { LANES = 8 };
typedef __m256 lanes;
typedef __m256 lanes_mask;
static inline lanes lanes_load(const float *from) { return _mm256_loadu_ps(from); }
static inline void lanes_store(float *to, lanes a) { _mm256_storeu_ps(to, a); }
static inline lanes lanes_of(float a) { return _mm256_set1_ps(a); }
static inline lanes lanes_add(lanes a, lanes b) { return _mm256_add_ps(a, b); }
static inline lanes lanes_sub(lanes a, lanes b) { return _mm256_sub_ps(a, b); }
static inline lanes lanes_mul(lanes a, lanes b) { return _mm256_mul_ps(a, b); }
static inline lanes lanes_div(lanes a, lanes b) { return _mm256_div_ps(a, b); }
static inline lanes lanes_min(lanes a, lanes b) { return _mm256_min_ps(a, b); }
static inline lanes lanes_max(lanes a, lanes b) { return _mm256_max_ps(a, b); }
static inline lanes lanes_abs(lanes a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return _mm256_and_ps(a, b); }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return _mm256_blendv_ps(b, a, mask); }
static inline lanes lanes_trunc(lanes a) { return _mm256_cvtepi32_ps(_mm256_cvttps_epi32(a)); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) {
    const __m256i whole = _mm256_cvttps_epi32(a);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i low = _mm_and_si128(words, _mm_set1_epi16(0xff));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(low, low));
}
#endif

/* 4 x 4 values: row i at from + i * stride becomes column i of what is written. */
static inline void lanes_transpose4(const float *from, int64_t stride, float *to, int64_t to_stride) {
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + stride);
    __m128 c = _mm_loadu_ps(from + 2 * stride), d = _mm_loadu_ps(from + 3 * stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_stride, b);
    _mm_storeu_ps(to + 2 * to_stride, c);
    _mm_storeu_ps(to + 3 * to_stride, d);
}

#endif
