/* Planes of images, 16 pixels in lanes, 24 registers of sums: hc_planes_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

enum { SUMS = 24 };

#include "kernels/conv/planes/planes_f32.h"

HC_PLANES_F32(avx512)
