/* gemv_scales. */
#include "kernels/gemv/gemv_tail.h"

#include <immintrin.h>

/* One byte each: e4m3fn has the bits of a float16 of 2^-8 times its value, except for its NaN. */
static __m256 load_bytes(const uint8_t *stored, int kind) {
    const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)stored));
    const __m256i nan = _mm256_set1_epi32(0x7fc00000);
    if (kind == HC_SCALES_U8)
        return _mm256_cvtepi32_ps(codes);
    if (kind == HC_SCALES_E8M0) {
        const __m256i is_least = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
        const __m256i is_nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255));
        const __m256i values = _mm256_blendv_epi8(_mm256_slli_epi32(codes, 23), _mm256_set1_epi32(0x400000), is_least);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(values, nan, is_nan));
    }
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7f));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 8);
    const __m256i halves = _mm256_or_si256(_mm256_slli_epi32(magnitude, 7), sign);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    const __m256 values = _mm256_mul_ps(_mm256_cvtph_ps(packed), _mm256_set1_ps(256));
    const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
    return _mm256_blendv_ps(values, _mm256_castsi256_ps(nan), _mm256_castsi256_ps(is_nan));
}

void hc_gemv_scales_avx2(const uint8_t *stored, int kind, float factor, int64_t n, float *out) {
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), nibbles = _mm256_set1_epi32(15);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value;
        if (kind == HC_SCALES_F16) {
            value = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(stored + 2 * i)));
        } else if (kind != HC_SCALES_U4) {
            value = load_bytes(stored + i, kind);
        } else {
            int32_t word;
            memcpy(&word, stored + i / 2, sizeof word);
            const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
            value = _mm256_cvtepi32_ps(_mm256_and_si256(codes, nibbles));
        }
        _mm256_storeu_ps(out + i, _mm256_mul_ps(value, _mm256_set1_ps(factor)));
    }
    for (; i < n; i++)
        out[i] = factor * hc_gemv_scale(stored, kind, i);
}
