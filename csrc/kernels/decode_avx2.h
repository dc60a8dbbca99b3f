/* AVX2 primitives of kernels/decode_rows.h. */
#ifndef HC_DECODE_AVX2_H
#define HC_DECODE_AVX2_H

#include "base/packed.h"

#include <float.h>
#include <immintrin.h>
#include <string.h>

/* The first multiple of 32 of n codes of 4 bits, as bytes; returns how many. */
static inline int64_t line_unpack4(const uint8_t *from, int64_t n, bool is_signed, uint8_t *out) {
    const __m256i nibbles = _mm256_set1_epi8(15), sign = _mm256_set1_epi8(is_signed ? 8 : 0);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i pair_u16x16 = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(from + i / 2)));
        const __m256i both = _mm256_or_si256(pair_u16x16, _mm256_slli_epi16(pair_u16x16, 4));
        const __m256i code = _mm256_and_si256(both, nibbles); /* (code ^ 8) - 8 extends the sign */
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_sub_epi8(_mm256_xor_si256(code, sign), sign));
    }
    return i;
}

static inline __m256 value_f32x8(__m128i byte, bool is_signed, __m256i zero, __m256i integer, __m256 real) {
    __m256i code = is_signed ? _mm256_cvtepi8_epi32(byte) : _mm256_cvtepu8_epi32(byte);
    code = _mm256_mullo_epi32(_mm256_sub_epi32(code, zero), integer);
    /* the second operand of min and max is what a NaN scale leaves */
    const __m256 product = _mm256_min_ps(_mm256_set1_ps(FLT_MAX), _mm256_mul_ps(real, _mm256_cvtepi32_ps(code)));
    return _mm256_max_ps(_mm256_set1_ps(-FLT_MAX), product);
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
line_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const __m256i zero_i32x8 = _mm256_set1_epi32(zero), integer_i32x8 = _mm256_set1_epi32(integer);
    const __m256 real_f32x8 = _mm256_set1_ps(real);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(values + i, value_f32x8(_mm_loadl_epi64((const __m128i *)(codes + i)), is_signed, zero_i32x8,
                                                 integer_i32x8, real_f32x8));
    if (i < n) {
        float last[8];
        _mm256_storeu_ps(last, value_f32x8(_mm_loadl_epi64((const __m128i *)(codes + i)), is_signed, zero_i32x8,
                                           integer_i32x8, real_f32x8));
        memcpy(values + i, last, (size_t)(n - i) * sizeof *last);
    }
}

#endif
