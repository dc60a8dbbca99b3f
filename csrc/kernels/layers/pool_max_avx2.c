/* Maxima of windows, 8 columns in lanes: hc_pool_max_avx2; kernels/layers/layers.h. */
#include "base/lanes/avx2.h"

static inline lanes larger(lanes so_far, lanes x) {
    return _mm256_blendv_ps(_mm256_max_ps(x, so_far), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#include "kernels/layers/pool.h"

void hc_pool_max_avx2(const hc_pool_plane *plane) { pool_plane(plane); }
