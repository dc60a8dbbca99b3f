/* Gradients for planes of pixels: hc_plane_gradient_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

static inline void beside(lanes a, lanes b, float *to) { vst2q_f32(to, (float32x4x2_t){{a, b}}); }

#define REGISTER(lanes) "+w"(lanes)
#include "kernels/conv/planes/plane_gradient_f32.h"

void hc_plane_gradient_f32_neon(const hc_plane_gradient *plane) { gradient_planes(plane); }
