/* peak_dot by vpdpbusd on 16 lanes: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <immintrin.h>

int64_t hc_peak_dot_avx512vnni(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m512i a_u8x64 = _mm512_set1_epi32(0x02010201);
    const __m512i b_i8x64 = _mm512_set1_epi32((int)0xfa05fa05); /* 5 -6 5 -6 */
    __m512i x_i32x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x16[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
        HC_PEAK_OPAQUE(a_u8x64);
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) /* asm: gcc 12 copies every accumulator of _mm512_dpbusd_epi32 */
            __asm__("vpdpbusd %2, %1, %0" : "+v"(x_i32x16[i]) : "v"(a_u8x64), "v"(b_i8x64));
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_i32x16[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 16 * 8 : 0;
}
