/* Gradients for planes of pixels: hc_plane_gradient_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

static inline void beside(lanes a, lanes b, float *to) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    lanes_store(to, _mm512_permutex2var_ps(a, low, b));
    lanes_store(to + LANES, _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b));
}

#define REGISTER(lanes) "+v"(lanes)
#include "kernels/conv/planes/plane_gradient_f32.h"

void hc_plane_gradient_f32_avx512(const hc_plane_gradient *plane) { gradient_planes(plane); }
