/* The transforms of Winograd's convolution, 8 channels, or filters, in lanes: hc_winograd_input_f32_avx2,
 * hc_winograd_filter_f32_avx2 and hc_winograd_output_f32_avx2; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 8 };

__attribute__((always_inline)) static inline __m256i first_lanes(int some) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(some), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#include "kernels/conv/winograd_floats.h"
#define HC_V __m256
#define HC_NAME(name) name##_lanes
#define HC_LOAD(at) _mm256_loadu_ps(at)
#define HC_LOAD_SOME(at, some) ((some) == LANES ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(some)))
#define HC_STORE(at, value) _mm256_storeu_ps(at, value)
#define HC_SET(value) _mm256_set1_ps(value)
#define HC_ADD(a, b) _mm256_add_ps(a, b)
#define HC_SUB(a, b) _mm256_sub_ps(a, b)
#define HC_MUL(a, b) _mm256_mul_ps(a, b)
#define HC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define HC_RELU(a) _mm256_and_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NLE_UQ), a)
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(avx2)
