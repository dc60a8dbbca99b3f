/* Definition of maxima of windows; kernels/layers/layers.h. */
#include "kernels/kernel.h"

#include <math.h>

static float larger(float so_far, float x) { return x > so_far || x != x ? x : so_far; }

static float column(const hc_pool_plane *plane, int64_t p, int64_t k) {
    float most = -INFINITY;
    for (int64_t r = 0; r < plane->size[0]; r++) {
        const int64_t h = p * plane->stride[0] + r - plane->top;
        if (h >= 0 && h < plane->height)
            most = larger(most, plane->x[h * plane->width + k]);
    }
    return most;
}

void hc_pool_max_scalar(const hc_pool_plane *plane) {
    for (int64_t p = 0; p < plane->down; p++)
        for (int64_t q = 0; q < plane->n; q++) {
            float most = -INFINITY;
            for (int64_t s = 0; s < plane->size[1]; s++) {
                const int64_t k = q * plane->stride[1] + s - plane->left;
                if (k >= 0 && k < plane->width)
                    most = larger(most, column(plane, p, k));
            }
            plane->c[p * plane->n + q] = most;
        }
}
