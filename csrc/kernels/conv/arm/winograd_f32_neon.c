/* The transforms of Winograd's convolution, with 4 channels or filters in lanes: hc_winograd_input_f32_neon,
 * hc_winograd_filter_f32_neon and hc_winograd_output_f32_neon; kernels/conv/conv.h. */
#include "kernels/floats/neon.h"
#include "kernels/kernel.h"

#include <string.h>

__attribute__((always_inline)) static inline float32x4_t load_some(const float *at, int some) {
    float lane[LANES] = {0};
    memcpy(lane, at, (size_t)some * sizeof *lane);
    return vld1q_f32(lane);
}

#include "kernels/conv/winograd_floats.h"
#define HC_NAME(name) name##_lanes
#define HC_LOAD_SOME(at, some) ((some) == LANES ? vld1q_f32(at) : load_some(at, some))
#include "kernels/conv/winograd.h"

#include "kernels/conv/winograd_tiles.h"

HC_WINOGRAD(neon)
