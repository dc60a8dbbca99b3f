/* Definition of gradients of filters; kernels/conv/conv.h. */
#include "kernels/kernel.h"

#include <math.h>

void hc_gradient_f32_scalar(const hc_gradient *g) {
    for (int64_t t = 0; t < g->taps; t++)
        for (int64_t j = 0; j < g->width; j++) {
            float sum = g->c[t * g->width + j];
            for (int64_t p = 0; p < g->down; p++)
                for (int64_t q = 0; q < g->across; q++) {
                    const float *x = g->x + g->tap[t] + p * g->x_row + q * g->x_column + (g->one ? 0 : j);
                    const float *dy = g->dy + j + p * g->dy_row + q * g->dy_column;
                    for (int64_t i = 0; i < g->n; i++)
                        sum = fmaf(x[i * g->x_step], dy[i * g->dy_step], sum);
                }
            g->c[t * g->width + j] = sum;
        }
}
