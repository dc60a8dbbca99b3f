/* The transforms of Winograd's convolution, with 8 channels or filters in lanes: hc_winograd_input_f32_avx2,
 * hc_winograd_filter_f32_avx2 and hc_winograd_output_f32_avx2; kernels/conv/conv.h. */
#include "kernels/floats/avx2.h"
#include "kernels/kernel.h"

__attribute__((always_inline)) static inline __m256i first_lanes(int some) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(some), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#include "kernels/conv/winograd_floats.h"
#define HC_NAME(name) name##_lanes
#define HC_LOAD_SOME(at, some) ((some) == LANES ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(some)))
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(avx2)
