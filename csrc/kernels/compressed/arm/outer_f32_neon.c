/* hc_outer_f32_neon: kernels/compressed/outer_f32.h. */
#include "base/lanes/neon.h"

#define HC_FMA_NONZERO(x, w, sum) vbslq_f32(vceqzq_f32(w), sum, vfmaq_f32(sum, x, w))
#include "kernels/compressed/outer_f32.h"

HC_OUTER_F32(neon)
