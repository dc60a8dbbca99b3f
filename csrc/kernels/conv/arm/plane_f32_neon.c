/* One plane of an image by one filter, 4 outputs in lanes: hc_plane_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"

#define REGISTER(lanes) "+w"(lanes)
#include "kernels/conv/planes/plane_f32.h"

HC_PLANE_F32(neon)
