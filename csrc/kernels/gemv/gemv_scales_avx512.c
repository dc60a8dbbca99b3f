/* gemv_scales. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { AHEAD = 2048 }; /* bytes prefetched, of the next rows: Zen 4, 2026-11 */

/* One byte each: e4m3fn has the bits of a float16 of 2^-8 times its value, except for its NaN. */
static __m512 load_bytes(__m128i bytes, int kind) {
    const __m512i codes = _mm512_cvtepu8_epi32(bytes), nan = _mm512_set1_epi32(0x7fc00000);
    if (kind == HC_SCALES_U8)
        return _mm512_cvtepi32_ps(codes);
    if (kind == HC_SCALES_E8M0) {
        const __m512i values = _mm512_mask_mov_epi32(
            _mm512_slli_epi32(codes, 23), _mm512_testn_epi32_mask(codes, codes), _mm512_set1_epi32(0x400000));
        const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
        return _mm512_castsi512_ps(_mm512_mask_mov_epi32(values, is_nan, nan));
    }
    const __m256i words = _mm256_cvtepu8_epi16(bytes), magnitude = _mm256_and_si256(words, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(words, magnitude), 8);
    const __m256i halves = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
    const __m512 values = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256));
    const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    return _mm512_mask_mov_ps(values, is_nan, _mm512_castsi512_ps(nan));
}

void hc_gemv_scales_avx512(const uint8_t *stored, int kind, float factor, int64_t n, float *out) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 table = _mm512_cvtepi32_ps(lanes);
    const __m512i shifts = _mm512_and_si512(_mm512_slli_epi32(lanes, 2), _mm512_set1_epi32(28));
    const int bits = kind == HC_SCALES_F16 ? 16 : kind == HC_SCALES_U4 ? 4 : 8;
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i;
        const __mmask16 mask = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
        __m512 value;
        if (i * bits % 512 == 0)
            _mm_prefetch(stored + i * bits / 8 + AHEAD, _MM_HINT_T1);
        if (bits == 16) {
            value = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, stored + 2 * i));
        } else if (bits == 8) {
            value = load_bytes(_mm_maskz_loadu_epi8(mask, stored + i), kind);
        } else {
            const __mmask16 bytes = left >= 16 ? 0xff : (__mmask16)((1u << (left + 1) / 2) - 1);
            const __m128i codes = _mm_maskz_loadu_epi8(bytes, stored + i / 2);
            const __m512i words = _mm512_permutexvar_epi32(_mm512_srli_epi32(lanes, 3), _mm512_castsi128_si512(codes));
            value = _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), table);
        }
        value = _mm512_mul_ps(value, _mm512_set1_ps(factor));
        if (left >= 16) /* masked stores are slow */
            _mm512_storeu_ps(out + i, value);
        else
            _mm512_mask_storeu_ps(out + i, mask, value);
    }
}
