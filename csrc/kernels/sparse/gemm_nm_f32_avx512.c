/* hc_gemm_nm_f32_avx512: kernels/sparse/gemm_nm_f32.h. Loads limit the speed, so values are broadcast from registers
 * and positions are loaded four at a time. */
#include "base/lanes/avx512.h"

#include <stdint.h>
#include <string.h>

enum { SUMS = 8 };

static inline __attribute__((always_inline)) void meet(const int registers, __m512 w, const float *x, __m512 *sum) {
#pragma GCC unroll 4
    for (int r = 0; r < registers; r++)
        sum[r] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x + r * LANES), sum[r]);
}

static inline __attribute__((always_inline)) void products(const int registers, const int together, int64_t count,
                                                           const float *values, const uint16_t *at, const float *panel,
                                                           __m512 *sum) {
    const __m512i one = _mm512_set1_epi32(1);
    for (int64_t t = 0; t < count; t += LANES) {
        const int64_t end = t + LANES < count ? t + LANES : count;
        const __mmask16 some = (__mmask16)(0xffff >> (LANES - (end - t)));
        __m512i lane = _mm512_setzero_si512();
        __m512 kept[4];
#pragma GCC unroll 4
        for (int i = 0; i < together; i++)
            kept[i] = _mm512_maskz_loadu_ps(some, values + i * count + t);
        int64_t k = t;
        for (; k + 4 <= end; k += 4) {
            uint64_t four[4];
#pragma GCC unroll 4
            for (int i = 0; i < together; i++)
                memcpy(&four[i], at + i * count + k, sizeof four[i]);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
                for (int i = 0; i < together; i++) {
                    const float *x = panel + (four[i] >> 16 * j & 0xffff) * (uint64_t)(registers * LANES);
                    meet(registers, _mm512_permutexvar_ps(lane, kept[i]), x, sum + i * registers);
                }
                lane = _mm512_add_epi32(lane, one);
            }
        }
        for (; k < end; k++) {
#pragma GCC unroll 4
            for (int i = 0; i < together; i++) {
                const float *x = panel + (int64_t)at[i * count + k] * registers * LANES;
                meet(registers, _mm512_permutexvar_ps(lane, kept[i]), x, sum + i * registers);
            }
            lane = _mm512_add_epi32(lane, one);
        }
    }
}

#define HC_NEAR 3
#define HC_OWN_PRODUCTS
#include "kernels/sparse/gemm_nm_f32.h"

HC_GEMM_NM_F32(avx512, HC_CASE(1, 4) HC_CASE(2, 4) HC_CASE(3, 2) HC_CASE(4, 2))
