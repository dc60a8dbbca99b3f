/* 3 x 3 filters of one channel, 8 channels in lanes, 2 x 4 outputs in registers: hc_depthwise3_f32_avx2;
 * kernels/conv/conv.h. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8, MR = 2, NR = 4 };

/* Mask of the first `lanes` of 8 lanes, fewer than 8. */
static inline __m256i first(int64_t lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define HC_V __m256
#define HC_ZERO() _mm256_setzero_ps()
#define HC_LOAD(at, lanes) ((lanes) == LANES ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first(lanes)))
#define HC_STORE(at, value, lanes)                                                                                     \
    ((lanes) == LANES ? _mm256_storeu_ps(at, value) : _mm256_maskstore_ps(at, first(lanes), value))
#define HC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/conv/depthwise3_f32.h"

HC_DEPTHWISE3(avx2, HC_CASES(1, 1) HC_CASES(1, 2) HC_CASES(2, 1) HC_CASES(2, 2))
