/* hc_outer_f32_avx2: kernels/compressed/outer_f32.h. */
#include "base/lanes/avx2.h"

#define HC_FMA_NONZERO(x, w, sum)                                                                                      \
    _mm256_blendv_ps(sum, _mm256_fmadd_ps(x, w, sum), _mm256_cmp_ps(w, _mm256_setzero_ps(), _CMP_NEQ_UQ))
#include "kernels/compressed/outer_f32.h"

HC_OUTER_F32(avx2)
