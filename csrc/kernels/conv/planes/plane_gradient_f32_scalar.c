/* Definition of the gradient for planes of pixels; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

static float pixel(const hc_plane_gradient *p, int64_t plane, int64_t i, int64_t j) {
    const float *dy = p->dy + plane * p->rows * p->columns, *w = p->w + plane * p->side[0] * p->side[1];
    float sum = 0;
    for (int r = p->side[0] - 1; r >= 0; r--)
        for (int s = p->side[1] - 1; s >= 0; s--) {
            const int64_t down = i + p->top - r, across = j + p->left - s;
            if (down % 2 != 0 || across % 2 != 0)
                continue;
            const bool inside = down >= 0 && down / 2 < p->rows && across >= 0 && across / 2 < p->columns;
            sum = fmaf(inside ? dy[down / 2 * p->columns + across / 2] : 0.0f, w[r * p->side[1] + s], sum);
        }
    return sum;
}

void hc_plane_gradient_f32_scalar(const hc_plane_gradient *p) {
    for (int64_t plane = 0; plane < p->planes; plane++)
        for (int64_t i = 0; i < p->height; i++)
            for (int64_t j = 0; j < p->width; j++)
                p->c[(plane * p->height + i) * p->width + j] = pixel(p, plane, i, j);
}
