/* gemv_chain: 16 rows in lanes; blocks of 16 segments are transposed. */
#include "base/lanes/avx512.h"
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 load_dots(const void *dots, int64_t place, const int32_t *corrections, __m512i correction) {
    if (!corrections)
        return _mm512_loadu_ps((const float *)dots + place);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512((const int32_t *)dots + place), correction));
}

INLINE __m512 add_block(__m512 acc, int64_t steps, int64_t ld, __m512 x_scale, const float *scales, const void *dots,
                        int64_t place, const int32_t *corrections, __m512i correction) {
    __m512 scale[16], dot[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        scale[i] = _mm512_mul_ps(x_scale, _mm512_loadu_ps(scales + i * ld + place));
    lanes_transpose(scale);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        dot[i] = load_dots(dots, i * ld + place, corrections, correction);
    lanes_transpose(dot);
    if (steps == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            acc = _mm512_fmadd_ps(scale[i], dot[i], acc);
        return acc;
    }
    for (int64_t i = 0; i < steps; i++)
        acc = _mm512_fmadd_ps(scale[i], dot[i], acc);
    return acc;
}

void hc_gemv_chain_avx512(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                          const int32_t *corrections, float *out) {
    __m512 acc = _mm512_setzero_ps();
    for (int64_t s = 0; s < n; s += 16) {
        const int64_t steps = hc_min(n - s, 16);
        const __mmask16 mask = (__mmask16)((1u << steps) - 1);
        const __m512 x_scale = _mm512_maskz_loadu_ps(mask, x_scales + s);
        if (corrections)
            acc = add_block(acc, steps, ld, x_scale, scales, dots, s, corrections,
                            _mm512_maskz_loadu_epi32(mask, corrections + s));
        else
            acc = add_block(acc, steps, ld, x_scale, scales, dots, s, NULL, _mm512_setzero_si512());
    }
    _mm512_storeu_ps(out, acc);
}
