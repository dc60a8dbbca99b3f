/* Definition of one plane of an image by one filter; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

static float pixel(const hc_plane *p, int64_t h, int64_t k) {
    const bool inside = h >= 0 && h < p->rows && k >= 0 && k < p->columns;
    return inside ? p->x[h * p->row_step + k] : 0.0f;
}

void hc_plane_f32_scalar(const hc_plane *p) {
    for (int64_t i = 0; i < p->down; i++)
        for (int64_t q = 0; q < p->across; q++) {
            float sum = 0.0f;
            for (int r = 0; r < p->side; r++)
                for (int s = 0; s < p->side; s++)
                    sum = fmaf(pixel(p, i * p->stride + r - p->top, q * p->stride + s - p->left), p->w[r * p->side + s],
                               sum);
            if (p->finishes)
                sum += p->bias;
            p->c[i * p->c_row + q] = p->relu && sum <= 0 ? 0.0f : sum;
        }
}
