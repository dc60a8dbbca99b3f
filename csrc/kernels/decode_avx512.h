/* AVX-512 primitives of kernels/decode_rows.h. */
#ifndef HC_DECODE_AVX512_H
#define HC_DECODE_AVX512_H

#include "base/packed.h"

#include <float.h>
#include <immintrin.h>

/* The first multiple of 64 of n codes of 4 bits, as bytes; returns how many. */
static inline int64_t line_unpack4(const uint8_t *from, int64_t n, bool is_signed, uint8_t *out) {
    const __m512i nibbles = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(is_signed ? 8 : 0);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i pair_u16x32 = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(from + i / 2)));
        const __m512i both = _mm512_or_si512(pair_u16x32, _mm512_slli_epi16(pair_u16x32, 4));
        /* (code ^ 8) - 8 extends the sign */
        const __m512i code = _mm512_ternarylogic_epi64(both, nibbles, sign, 0x6a);
        _mm512_storeu_si512(out + i, _mm512_sub_epi8(code, sign));
    }
    return i;
}

/* values[j] = real * (integer * (code[j] - zero)), saturated. */
static inline __attribute__((always_inline)) void
line_values(const uint8_t *codes, int64_t n, bool is_signed, int32_t zero, int32_t integer, float real, float *values) {
    const __m512i zero_i32x16 = _mm512_set1_epi32(zero), integer_i32x16 = _mm512_set1_epi32(integer);
    const __m512 real_f32x16 = _mm512_set1_ps(real), largest = _mm512_set1_ps(FLT_MAX);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m128i byte = _mm_loadu_si128((const __m128i *)(codes + i));
        __m512i code = is_signed ? _mm512_cvtepi8_epi32(byte) : _mm512_cvtepu8_epi32(byte);
        code = _mm512_mullo_epi32(_mm512_sub_epi32(code, zero_i32x16), integer_i32x16);
        /* the second operand of min and max is what a NaN scale leaves */
        const __m512 product = _mm512_min_ps(largest, _mm512_mul_ps(real_f32x16, _mm512_cvtepi32_ps(code)));
        _mm512_mask_storeu_ps(values + i, mask, _mm512_max_ps(_mm512_set1_ps(-FLT_MAX), product));
    }
}

#endif
