/* Gradients for planes of pixels: hc_plane_gradient_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#include "kernels/conv/planes/plane_gradient_f32.h"

void hc_plane_gradient_f32_avx512(const hc_plane_gradient *plane) { gradient_plane(plane); }
