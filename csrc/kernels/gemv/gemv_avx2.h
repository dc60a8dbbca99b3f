/* Floats of 8 bits in 32-bit words to float32, for gemv_groups and gemv_rows; gemv_tail.h describes the conversion.
 * Callers handle infinity and NaN.
 */
#ifndef HC_GEMV_AVX2_H
#define HC_GEMV_AVX2_H

#include "kernels/gemv/gemv_tail.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256i shift, kept, special; /* special_bits of each byte */
    __m256 factor;
} hc_float8_f32x8;

INLINE hc_float8_f32x8 make_float8(const hc_gemv_floats_args *args) {
    const hc_float8 form = hc_float8_of(args->exponent_bits);
    return (hc_float8_f32x8){_mm256_set1_epi32(form.shift), _mm256_set1_epi32((int)form.kept),
                             _mm256_set1_epi8((char)args->special_bits), _mm256_set1_ps(form.factor)};
}

/* Byte j of each word. */
INLINE __m256 float8_f32x8(const hc_float8_f32x8 *d, __m256i words, int j) {
    const __m256i top = _mm256_slli_epi32(words, 24 - 8 * j);
    const __m256i field = _mm256_and_si256(_mm256_srav_epi32(top, d->shift), d->kept);
    return _mm256_mul_ps(_mm256_castsi256_ps(field), d->factor);
}

/* Mask of the bytes that are infinite or NaN. */
INLINE __m256i special_bytes(const hc_float8_f32x8 *d, __m256i words) {
    return _mm256_cmpeq_epi8(_mm256_and_si256(words, d->special), d->special);
}

#endif
