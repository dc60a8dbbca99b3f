/* limit_dot on 16 lanes without VNNI: kernels/limit.h. Exact for all bytes, hence on 16 bits. */
#include "kernels/limit.h"

#include <immintrin.h>

int64_t hc_limit_dot_avx512(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m512i a_i16x32 = _mm512_set1_epi32(2 << 16 | 1);
    const __m512i b_i16x32 = _mm512_set1_epi32(-6 * 65536 + 5);
    __m512i x_i32x16[HC_LIMIT_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_LIMIT_CHAINS; i++)
        x_i32x16[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_LIMIT_CHAINS; i++) {
            HC_LIMIT_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_LIMIT_OPAQUE(x_i32x16[i]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < HC_LIMIT_CHAINS; i++) {
            HC_LIMIT_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_LIMIT_OPAQUE(x_i32x16[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_LIMIT_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_i32x16[i]));
    return steps > 0 ? HC_LIMIT_CHAINS * 16 * 8 : 0;
}
