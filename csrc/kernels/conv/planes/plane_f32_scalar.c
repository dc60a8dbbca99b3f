/* Definition of planes of images by one filter each; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

static float output(const hc_plane *p, int64_t plane, int64_t i, int64_t q) {
    const float *x = p->x + plane * p->x_step, *w = p->w + plane * p->w_step;
    float sum = 0.0f, high = 0.0f;
    for (int r = 0; r < p->side; r++)
        for (int s = 0; s < p->side; s++) {
            const int64_t h = i * p->stride + r - p->top, k = q * p->stride + s - p->left;
            const bool inside = h >= 0 && h < p->rows && k >= 0 && k < p->columns;
            const float pixel = inside ? x[h * p->row_step + k] : 0.0f, value = w[r * p->side + s];
            sum = p->tap_scale ? fmaf(p->tap_scale[plane * p->w_step + r * p->side + s], pixel * value, sum)
                               : fmaf(pixel, value, sum);
            if (p->high)
                high = fmaf(pixel, p->high[plane * p->w_step + r * p->side + s], high);
        }
    if (p->scale)
        sum = (float)(p->scale[plane] * (256 * (double)high + (double)sum));
    if (p->bias)
        sum += p->bias[plane];
    return p->relu && sum <= 0 ? 0.0f : sum;
}

void hc_plane_f32_scalar(const hc_plane *p) {
    for (int64_t plane = 0; plane < p->planes; plane++)
        for (int64_t i = 0; i < p->down; i++)
            for (int64_t q = 0; q < p->across; q++)
                p->c[plane * p->c_step + i * p->c_row + q] = output(p, plane, i, q);
}
