/* The int8 matmul of patterns. For 16 columns at once, a byte shuffle selects the 4 values of a row of a that belong
 * to their nonzeros among kr. One vpdpbusd then replaces kr / 4 of the dense product. vpshufb selects within each
 * 128-bit lane, so from 8 or 16 values, vpermb within the register. 12 rows by 2 registers of columns.
 *
 * 2048 x 2048 x 2048, kernels alone: of8 24 ms, of16 12, of32 7, of64 3; 37 for gemm_s8 (one thread, Zen 4, 2026-11).
 */
#ifndef HC_SPARSE_S8_AVX512VNNI_H
#define HC_SPARSE_S8_AVX512VNNI_H

#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

/* Few processors have VBMI without VNNI; ops checks both. */
#define INLINE static inline __attribute__((always_inline, target("avx512vnni")))
enum { MR = 12, NR = 32 };

#ifdef __AVX512VBMI__
/* vpermb reads the whole register, so no broadcast is needed, which from 128 bits on costs as much as a shuffle on Zen
 * 4. */
INLINE __m512i load_row(const uint8_t *a, int kr) {
    return kr == 16   ? _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)a))
           : kr == 32 ? _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)a))
                      : _mm512_loadu_si512(a);
}
INLINE __m512i pick(__m512i row, __m512i places) { return _mm512_permutexvar_epi8(places, row); }
#else
INLINE __m512i load_row(const uint8_t *a, int kr) {
    return kr == 8 ? _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)a))
                   : _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)a));
}
INLINE __m512i pick(__m512i row, __m512i places) { return _mm512_shuffle_epi8(row, places); }
#endif

INLINE void sparse_s8(int kr, int64_t n_steps, const uint8_t *a, const int8_t *b, const int32_t *init, int32_t *c) {
    __m512i sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm512_loadu_si512(init);
        sum[i][1] = _mm512_loadu_si512(init + 16);
    }
    for (; n_steps > 0; n_steps--, a += MR * kr, b += NR * 8) {
        const __m512i low = _mm512_loadu_si512(b), high = _mm512_loadu_si512(b + 64);
        const __m512i low_places = _mm512_loadu_si512(b + 128), high_places = _mm512_loadu_si512(b + 192);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const __m512i row = load_row(a + i * kr, kr);
            sum[i][0] = dot(sum[i][0], pick(row, low_places), low);
            sum[i][1] = dot(sum[i][1], pick(row, high_places), high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_si512(c + i * NR, sum[i][0]);
        _mm512_storeu_si512(c + i * NR + 16, sum[i][1]);
    }
}

#endif
