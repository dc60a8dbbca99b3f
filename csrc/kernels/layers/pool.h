/* The maxima of the windows of a plane: down the rows of pixels first, then across. Included after a header of base/lanes/
 * and `larger`, kernels/layers/layers.h. */
#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

static inline float larger_one(float so_far, float x) { return x > so_far || x != x ? x : so_far; }

/* The maxima of the columns [k, k + LANES) of some rows. */
static inline lanes of_columns(const float *x, int64_t rows, int64_t width, int64_t some) {
    lanes most = lanes_of(-INFINITY);
    for (int64_t r = 0; r < rows; r++, x += width)
        most = larger(most, some == LANES ? lanes_load(x) : lanes_load_some(x, some));
    return most;
}

/* to[k] = maximum of column k < n; -infinity behind, LANES values. */
static inline void pool_down(const float *x, int64_t rows, int64_t width, int64_t n, float *to) {
    if (n < LANES) {
        lanes_store(to, of_columns(x, rows, width, n));
    } else {
        for (int64_t k = 0; k < n - LANES; k += LANES)
            lanes_store(to + k, of_columns(x + k, rows, width, LANES));
        lanes_store(to + n - LANES, of_columns(x + n - LANES, rows, width, LANES));
    }
    lanes_store(to + n, lanes_of(-INFINITY));
}

/* LANES maxima of windows, the first of which begins at `from`. */
static inline lanes of_windows(const float *from, int64_t size, int64_t stride) {
    lanes most = lanes_of(-INFINITY);
    for (int64_t s = 0; s < size; s++) {
        const lanes first = lanes_load(from + s);
        most = larger(most, stride == 1 ? first : lanes_even(first, lanes_load(from + s + LANES)));
    }
    return most;
}

static inline void pool_across(const float *from, int64_t size, int64_t stride, int64_t n, float *c) {
    if (stride > 2) {
        for (int64_t q = 0; q < n; q++) {
            c[q] = -INFINITY;
            for (int64_t s = 0; s < size; s++)
                c[q] = larger_one(c[q], from[q * stride + s]);
        }
    } else if (n < LANES) {
        float all[LANES];
        lanes_store(all, of_windows(from, size, stride));
        for (int64_t q = 0; q < n; q++)
            c[q] = all[q];
    } else {
        for (int64_t q = 0; q < n - LANES; q += LANES)
            lanes_store(c + q, of_windows(from + q * stride, size, stride));
        lanes_store(c + n - LANES, of_windows(from + (n - LANES) * stride, size, stride));
    }
}

static inline void pool_plane(const hc_pool_plane *p) {
    const int64_t columns = (p->n - 1) * p->stride[1] + p->size[1]; /* that windows have */
    const int64_t left = hc_min(p->left, columns), n = hc_min(p->width, columns - left);
    for (int64_t k = 0; k < columns + 4 * LANES; k += LANES)
        lanes_store(p->work + k, lanes_of(-INFINITY));
    for (int64_t i = 0; i < p->down; i++) {
        const int64_t first = i * p->stride[0] - p->top, begin = hc_max(first, 0);
        const int64_t rows = hc_max(0, hc_min(first + p->size[0], p->height) - begin);
        if (n > 0)
            pool_down(rows > 0 ? p->x + begin * p->width : p->x, rows, p->width, n, p->work + left);
        pool_across(p->work, p->size[1], p->stride[1], p->n, p->c + i * p->n);
    }
}
