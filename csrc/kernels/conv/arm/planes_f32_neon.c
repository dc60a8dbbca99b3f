/* Planes of images, 4 pixels in lanes, 24 registers of sums: hc_planes_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

enum { SUMS = 24 };

#include "kernels/conv/planes/planes_f32.h"

HC_PLANES_F32(neon)
