/* Rows of integers with a pattern in AVX-512 registers, for gemv_24_folded and gemv_nm_avx512.h. */
#ifndef HC_GEMV_24_AVX512_H
#define HC_GEMV_24_AVX512_H

#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* n bytes followed by zeros; no other byte is read. */
INLINE __m512i load_bytes(const uint8_t *from, int64_t n) {
    return n >= 64  ? _mm512_loadu_si512(from)
           : n <= 0 ? _mm512_setzero_si512()
                    : _mm512_maskz_loadu_epi8((1ull << n) - 1, from);
}

INLINE int64_t sum_lanes(__m512i lanes) {
    const __m512i low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(lanes));
    return _mm512_reduce_add_epi64(_mm512_add_epi64(low, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(lanes, 1))));
}

#endif
