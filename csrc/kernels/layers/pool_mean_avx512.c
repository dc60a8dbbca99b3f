/* Means of windows, 8 outputs per register: hc_pool_mean_avx512; kernels/layers/layers.h. */
#define HC_DOUBLES 8
#include "kernels/layers/pool_mean.h"

void hc_pool_mean_avx512(const hc_pool_plane *plane) { mean_plane(plane); }
