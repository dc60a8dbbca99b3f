/* 3 x 3 filters of one channel, 16 channels in lanes, 4 x 4 outputs and 9 filters in registers:
 * hc_depthwise3_f32_avx512; kernels/conv/conv.h. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16, MR = 4, NR = 4 };

static inline __mmask16 first(int64_t lanes) { return (__mmask16)(0xffffu >> (LANES - lanes)); }

#define HC_V __m512
#define HC_ZERO() _mm512_setzero_ps()
#define HC_LOAD(at, lanes) ((lanes) == LANES ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(first(lanes), at))
#define HC_STORE(at, value, lanes)                                                                                     \
    ((lanes) == LANES ? _mm512_storeu_ps(at, value) : _mm512_mask_storeu_ps(at, first(lanes), value))
#define HC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(avx512, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(1, 4) HC_CASES(2, 1) HC_CASES(2, 2) HC_CASES(2, 4))
