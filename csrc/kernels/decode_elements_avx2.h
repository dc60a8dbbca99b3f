/* AVX2 primitives of kernels/decode_elements.h. */
#ifndef HC_DECODE_ELEMENTS_AVX2_H
#define HC_DECODE_ELEMENTS_AVX2_H

#include "kernels/decode_avx2.h"
#include "kernels/elements.h"

typedef struct {
    __m256 low, high;
} hc_table16;

static inline hc_table16 load_table16(const float *table) {
    return (hc_table16){_mm256_loadu_ps(table), _mm256_loadu_ps(table + 8)};
}

/* Elements of 8 codes. */
static inline __attribute__((always_inline)) __m256 elements_f32x8(const uint8_t *codes, hc_element_kind kind,
                                                                   hc_table16 table, const float *large) {
    const __m128i byte = _mm_loadl_epi64((const __m128i *)codes);
    if (is_by_16(kind)) {
        const __m256i index = _mm256_cvtepu8_epi32(byte);
        return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index), _mm256_permutevar8x32_ps(table.high, index),
                                _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
    }
    if (is_by_256(kind))
        return _mm256_i32gather_ps(large, _mm256_cvtepu8_epi32(byte), 4);
    if (kind == HC_BY_INT8)
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(byte)), _mm256_set1_ps(0x1p-6f));
    const hc_half_form form = half_form(kind);
    const __m128i code = _mm_cvtepi8_epi16(byte);
    __m128i half = _mm_and_si128(_mm_slli_epi16(code, form.shift), _mm_set1_epi16(form.mask));
    if (form.beyond) { /* one NaN for all */
        const __m128i sign = _mm_set1_epi16(-0x8000), magnitude = _mm_andnot_si128(sign, half);
        const __m128i is_nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(form.beyond));
        const __m128i nan = _mm_or_si128(_mm_and_si128(half, sign), _mm_set1_epi16(0x7e00));
        half = _mm_blendv_epi8(half, nan, is_nan);
    }
    const __m256 value = _mm256_cvtph_ps(half);
    return kind == HC_BY_E5M2 ? value : _mm256_mul_ps(value, _mm256_set1_ps(form.factor));
}

static inline __attribute__((always_inline)) __m256 scaled_f32x8(__m256 element, hc_element_kind kind, float scale) {
    const __m256 product = _mm256_mul_ps(_mm256_set1_ps(scale), element), largest = _mm256_set1_ps(FLT_MAX);
    /* the second operand of min and max is what a NaN leaves */
    const __m256 value = _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), _mm256_min_ps(largest, product));
    if (has_no_minus_zero(kind))
        return _mm256_add_ps(value, _mm256_setzero_ps());
    if (kind != HC_BY_E5M2)
        return value;
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), element);
    return _mm256_blendv_ps(value, product, _mm256_cmp_ps(magnitude, largest, _CMP_GT_OQ));
}

/* values[j] = element of code[j], times the scale, which saturates what is finite; reads up to 7 codes more. */
static inline __attribute__((always_inline)) void line_elements(const uint8_t *codes, int64_t n, hc_element_kind kind,
                                                                hc_table16 table, const float *large, bool scaled,
                                                                float scale, float *values) {
    for (int64_t i = 0; i < n; i += 8) {
        __m256 value = elements_f32x8(codes + i, kind, table, large);
        if (scaled)
            value = scaled_f32x8(value, kind, scale);
        if (n - i >= 8) {
            _mm256_storeu_ps(values + i, value);
        } else {
            float last[8];
            _mm256_storeu_ps(last, value);
            memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
        }
    }
}

#endif
