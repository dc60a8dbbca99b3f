/* hc_outer_f32_avx512: kernels/compressed/outer_f32.h. */
#include "base/lanes/avx512.h"

#define HC_FMA_NONZERO(x, w, sum)                                                                                      \
    _mm512_mask3_fmadd_ps(x, w, sum, _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NEQ_UQ))
#include "kernels/compressed/outer_f32.h"

HC_OUTER_F32(avx512)
