/* Means of windows, 2 outputs per register: hc_pool_mean_neon; kernels/layers/layers.h. */
#define HC_DOUBLES 2
#include "kernels/layers/pool_mean.h"

void hc_pool_mean_neon(const hc_pool_plane *plane) { mean_plane(plane); }
