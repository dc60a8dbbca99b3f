/* AVX-512 primitives of kernels/decode_elements.h. */
#ifndef HC_DECODE_ELEMENTS_AVX512_H
#define HC_DECODE_ELEMENTS_AVX512_H

#include "kernels/decode_avx512.h"
#include "kernels/elements.h"

typedef __m512 hc_table16;

static inline hc_table16 load_table16(const float *table) { return _mm512_loadu_ps(table); }

/* Elements of 16 codes. */
static inline __attribute__((always_inline)) __m512 elements_f32x16(const uint8_t *codes, hc_element_kind kind,
                                                                    hc_table16 table, const float *large) {
    const __m128i byte = _mm_loadu_si128((const __m128i *)codes);
    if (is_by_16(kind))
        return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(byte), table);
    if (is_by_256(kind))
        return _mm512_i32gather_ps(_mm512_cvtepu8_epi32(byte), large, 4);
    if (kind == HC_BY_INT8)
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(byte)), _mm512_set1_ps(0x1p-6f));
    const hc_half_form form = half_form(kind);
    const __m256i code = _mm256_cvtepi8_epi16(byte);
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, form.shift), _mm256_set1_epi16(form.mask));
    if (form.beyond) { /* one NaN for all */
        const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
        const __mmask16 is_nan = _mm256_cmpgt_epi16_mask(magnitude, _mm256_set1_epi16(form.beyond));
        const __m256i nan =
            _mm256_ternarylogic_epi32(half, _mm256_set1_epi16(0x7e00), _mm256_set1_epi16(-0x8000), 0xec);
        half = _mm256_mask_mov_epi16(half, is_nan, nan);
    }
    const __m512 value = _mm512_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm512_mul_ps(value, _mm512_set1_ps(form.factor));
}

/* values[j] = element of code[j], times the scale, which saturates what is finite; reads up to 15 codes more. */
static inline __attribute__((always_inline)) void line_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    const __m512 largest = _mm512_set1_ps(FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m512 element = elements_f32x16(codes + i, kind, table, large);
        __m512 value = element;
        if (scaled) {
            const __m512 product = _mm512_mul_ps(_mm512_set1_ps(scale), element);
            /* the second operand of min and max is what a NaN leaves */
            value = _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), _mm512_min_ps(largest, product));
            if (has_no_minus_zero(kind))
                value = _mm512_add_ps(value, _mm512_setzero_ps());
            if (kind == HC_BY_E5M2) /* 0x18: infinities */
                value = _mm512_mask_mov_ps(value, _mm512_fpclass_ps_mask(element, 0x18), product);
        }
        _mm512_mask_storeu_ps(values + i, mask, value);
    }
}

#endif
