/* Gradients for planes of pixels: hc_plane_gradient_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

static inline void beside(lanes a, lanes b, float *to) {
    const lanes low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    lanes_store(to, _mm256_permute2f128_ps(low, high, 0x20));
    lanes_store(to + LANES, _mm256_permute2f128_ps(low, high, 0x31));
}

#define REGISTER(lanes) "+x"(lanes)
#include "kernels/conv/planes/plane_gradient_f32.h"

void hc_plane_gradient_f32_avx2(const hc_plane_gradient *plane) { gradient_planes(plane); }
