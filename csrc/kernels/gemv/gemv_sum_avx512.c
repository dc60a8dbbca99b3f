/* gemv_sum: products of 32-bit lanes in 64 bits, even and odd lanes separately. */
#include "kernels/kernel.h"

#include <immintrin.h>

int64_t hc_gemv_sum_avx512(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections) {
    __m512i even = _mm512_setzero_si512(), odd = even;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        const __m512i dot =
            _mm512_sub_epi32(_mm512_maskz_loadu_epi32(mask, dots + i), _mm512_maskz_loadu_epi32(mask, corrections + i));
        const __m512i factor = _mm512_cvtps_epi32(_mm512_maskz_loadu_ps(mask, integers + i));
        even = _mm512_add_epi64(even, _mm512_mul_epi32(dot, factor));
        odd = _mm512_add_epi64(odd, _mm512_mul_epi32(_mm512_srli_epi64(dot, 32), _mm512_srli_epi64(factor, 32)));
    }
    return _mm512_reduce_add_epi64(_mm512_add_epi64(even, odd));
}
