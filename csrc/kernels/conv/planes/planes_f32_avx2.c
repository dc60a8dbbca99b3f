/* Planes of images, 8 pixels in lanes, 12 registers of sums: hc_planes_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

enum { SUMS = 12 };

#include "kernels/conv/planes/planes_f32.h"

HC_PLANES_F32(avx2)
