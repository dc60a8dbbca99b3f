/* Maxima of windows, 16 columns in lanes: hc_pool_max_avx512; kernels/layers/layers.h. */
#include "base/lanes/avx512.h"

static inline lanes larger(lanes so_far, lanes x) {
    return _mm512_mask_mov_ps(_mm512_max_ps(x, so_far), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

#include "kernels/layers/pool.h"

void hc_pool_max_avx512(const hc_pool_plane *plane) { pool_plane(plane); }
