/* Definition of means of windows; kernels/layers/layers.h. */
#include "kernels/kernel.h"

void hc_pool_mean_scalar(const hc_pool_plane *plane) {
    for (int64_t p = 0; p < plane->down; p++)
        for (int64_t q = 0; q < plane->n; q++) {
            double sum = 0;
            for (int64_t r = 0; r < plane->size[0]; r++)
                for (int64_t s = 0; s < plane->size[1]; s++) {
                    const int64_t h = p * plane->stride[0] + r - plane->top, k = q * plane->stride[1] + s - plane->left;
                    if (h >= 0 && h < plane->height && k >= 0 && k < plane->width)
                        sum += (double)plane->x[h * plane->width + k];
                }
            plane->c[p * plane->n + q] = (float)(sum / (double)(plane->size[0] * plane->size[1]));
        }
}
