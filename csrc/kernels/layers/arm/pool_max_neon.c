/* Maxima of windows, 4 columns in lanes: hc_pool_max_neon; kernels/layers/layers.h. */
#include "base/lanes/neon.h"

static inline lanes larger(lanes so_far, lanes x) {
    const uint32x4_t taken = vorrq_u32(vcgtq_f32(x, so_far), vmvnq_u32(vceqq_f32(x, x)));
    return vbslq_f32(taken, x, so_far);
}

#include "kernels/layers/pool.h"

void hc_pool_max_neon(const hc_pool_plane *plane) { pool_plane(plane); }
