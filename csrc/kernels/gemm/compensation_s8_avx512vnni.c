/* Sums of the rows of an int8 panel, 16 rows at a time, as dot products with ones. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_compensation_s8_avx512vnni(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                                   int32_t factor, int32_t *sums) {
    const __m512i ones = _mm512_set1_epi8(1), times = _mm512_set1_epi32(factor);
    for (int64_t s = 0; s < n_segments; s++, sums += lanes) {
        const int64_t n = (int64_t)steps[s] * units;
        for (int j = 0; j < lanes; j += 16) {
            const __mmask16 mask = (__mmask16)(lanes - j < 16 ? (1u << (lanes - j)) - 1 : 0xffff);
            __m512i even = _mm512_setzero_si512(), odd = even;
            int64_t step = 0;
            for (; step + 2 <= n; step += 2) {
                const int8_t *at = panel + (step * lanes + j) * 4;
                even = _mm512_dpbusd_epi32(even, ones, _mm512_maskz_loadu_epi32(mask, at));
                odd = _mm512_dpbusd_epi32(odd, ones, _mm512_maskz_loadu_epi32(mask, at + lanes * 4));
            }
            if (step < n)
                even = _mm512_dpbusd_epi32(even, ones, _mm512_maskz_loadu_epi32(mask, panel + (step * lanes + j) * 4));
            _mm512_mask_storeu_epi32(sums + j, mask, _mm512_mullo_epi32(times, _mm512_add_epi32(even, odd)));
        }
        panel += n * lanes * 4;
    }
}
