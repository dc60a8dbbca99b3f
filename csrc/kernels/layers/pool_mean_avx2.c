/* Means of windows, 4 outputs per register: hc_pool_mean_avx2; kernels/layers/layers.h. */
#define HC_DOUBLES 4
#include "kernels/layers/pool_mean.h"

void hc_pool_mean_avx2(const hc_pool_plane *plane) { mean_plane(plane); }
