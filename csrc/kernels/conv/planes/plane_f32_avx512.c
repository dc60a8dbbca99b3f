/* One plane of an image by one filter, 16 outputs in lanes: hc_plane_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"

#define REGISTER(lanes) "+v"(lanes)
#include "kernels/conv/planes/plane_f32.h"

HC_PLANE_F32(avx512)
