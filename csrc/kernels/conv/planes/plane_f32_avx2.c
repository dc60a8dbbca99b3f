/* One plane of an image by one filter, 8 outputs in lanes: hc_plane_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"

#define REGISTER(lanes) "+x"(lanes)
#include "kernels/conv/planes/plane_f32.h"

HC_PLANE_F32(avx2)
