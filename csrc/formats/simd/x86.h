/* Primitives of formats/simd that AVX2 and AVX-512 share: eight values at a time. */
#ifndef HC_SIMD_X86_H
#define HC_SIMD_X86_H

#include "base/base.h"

#include <immintrin.h>
#include <math.h>

/* Gathers the low `bits` bits of each byte of a mask; and the inverse. */
static inline uint64_t simd_extract_bits(uint64_t word, uint64_t mask) { return _pext_u64(word, mask); }
static inline uint64_t simd_deposit_bits(uint64_t word, uint64_t mask) { return _pdep_u64(word, mask); }

/* 8 float32 of 8 float16. */
static inline void simd_from_halves(const uint8_t *halves, float *out) {
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves)));
}

/* Stores 8 values as float16, none above the limit, and replaces the values by the stored ones. */
static inline void simd_store_halves(float *values, float limit, uint16_t *halves) {
    const __m256 cut = _mm256_min_ps(_mm256_loadu_ps(values), _mm256_set1_ps(limit));
    const __m128i half = _mm256_cvtps_ph(cut, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)halves, half);
    _mm256_storeu_ps(values, _mm256_cvtph_ps(half));
}

/* 8 codes of float16. Magnitudes are clamped to the limit; NaN keeps its sign and loses its payload. */
static inline void simd_half_codes(const float *x, float limit, uint8_t *out) {
    const __m256 sign = _mm256_set1_ps(-0.0f), value = _mm256_loadu_ps(x);
    /* the second operand of min is the result for NaN */
    const __m256 cut = _mm256_min_ps(_mm256_set1_ps(limit), _mm256_andnot_ps(sign, value));
    const __m128i code = _mm256_cvtps_ph(cut, _MM_FROUND_TO_NEAREST_INT);
    const __m128i no_payload = _mm_min_epu16(code, _mm_set1_epi16(0x7c01)); /* codes above infinity are NaN */
    const __m128i is_nan = _mm_cmpeq_epi16(no_payload, _mm_set1_epi16(0x7c01));
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(_mm256_and_ps(sign, value)), 16);
    const __m128i signs = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    const __m128i magnitude = _mm_blendv_epi8(code, _mm_set1_epi16(0x7e00), is_nan);
    _mm_storeu_si128((__m128i *)(void *)out, _mm_or_si128(magnitude, signs));
}

/* Codes of n values, n a multiple of 8; false if one is NaN, whose payload then is in its code. */
static inline bool simd_half_codes_of_numbers(const float *x, int64_t n, float limit, uint8_t *out) {
    int64_t i = 0;
    /* min and max return NaN in their second operand */
#if defined(__AVX512F__)
    const __m512 wide_most = _mm512_set1_ps(limit), wide_least = _mm512_set1_ps(-limit);
    __mmask16 wide_nan = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 value = _mm512_loadu_ps(x + i);
        const __m512 cut = _mm512_max_ps(wide_least, _mm512_min_ps(wide_most, value));
        wide_nan |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * i),
                            _mm512_cvtps_ph(cut, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    if (wide_nan)
        return false;
#endif
    const __m256 most = _mm256_set1_ps(limit), least = _mm256_set1_ps(-limit);
    __m256 is_nan = _mm256_setzero_ps();
    for (; i < n; i += 8) {
        const __m256 value = _mm256_loadu_ps(x + i);
        const __m256 cut = _mm256_max_ps(least, _mm256_min_ps(most, value));
        is_nan = _mm256_or_ps(is_nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i), _mm256_cvtps_ph(cut, _MM_FROUND_TO_NEAREST_INT));
    }
    return _mm256_movemask_ps(is_nan) == 0;
}

/* 8 bytes of e4m3 without a sign, times a factor. Read as float16, such a byte is too small by 2^8. */
static inline void simd_scaled_e4m3(const uint8_t *bytes, float factor, float *out) {
    const __m128i byte = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    const __m256 value =
        _mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(byte), 7)), _mm256_set1_ps(256));
    _mm256_storeu_ps(out, _mm256_mul_ps(value, _mm256_set1_ps(factor)));
}

/* 8 signed bytes times a factor. */
static inline void simd_scaled_bytes(const uint8_t *bytes, float factor, float *out) {
    const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(whole)));
}

/* 8 adjacent numbers of up to 8 bits in a word, times a factor. */
static inline void simd_scaled_numbers(uint64_t word, int bits, bool is_signed, float factor, float *out) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const __m128i up = _mm_cvtsi32_si128(is_signed ? 32 - bits : 0);
    const __m128i numbers = _mm_cvtsi64_si128((int64_t)_pdep_u64(word, mask));
    const __m256i whole = _mm256_sra_epi32(_mm256_sll_epi32(_mm256_cvtepu8_epi32(numbers), up), up);
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(whole)));
}

#endif
