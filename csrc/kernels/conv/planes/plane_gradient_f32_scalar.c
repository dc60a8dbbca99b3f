/* Definition of the gradient for a plane of pixels; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_plane_gradient_f32_scalar(const hc_plane_gradient *p) {
    for (int64_t i = 0; i < p->height; i++)
        for (int64_t j = 0; j < p->width; j++) {
            float sum = 0;
            for (int r = p->side[0] - 1; r >= 0; r--)
                for (int s = p->side[1] - 1; s >= 0; s--) {
                    const int64_t down = i + p->top - r, across = j + p->left - s;
                    if (down % 2 != 0 || across % 2 != 0)
                        continue;
                    const bool inside = down >= 0 && down / 2 < p->rows && across >= 0 && across / 2 < p->columns;
                    sum =
                        fmaf(inside ? p->dy[down / 2 * p->columns + across / 2] : 0.0f, p->w[r * p->side[1] + s], sum);
                }
            p->c[i * p->width + j] = sum;
        }
}
