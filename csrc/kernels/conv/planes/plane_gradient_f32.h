/* The gradient for planes of pixels of windows with stride 2: kernels/conv/conv.h. Even and odd columns of pixels meet
 * every second tap each, so that adjacent lanes of a sum read adjacent values of dy. Filters of 3 x 3 and 5 x 5 are in
 * plane_gradient_pairs.h. Included after a header of base/lanes/, REGISTER of plane_gradient_pairs.h, and `beside`:
 * to[0 .. 2 LANES) = a[0], b[0], a[1], b[1] and so on.
 */
#include "kernels/kernel.h"

#include <string.h>

#define INLINE __attribute__((always_inline)) static inline
#include "kernels/conv/planes/plane_gradient_pairs.h"

enum { MOST_TAPS = (HC_GRADIENT_SIDE + 1) / 2 };

/* The taps that even and odd columns meet in a row of a filter: values of dy ahead of the column's, and their filters, in
 * the order of the sum. */
typedef struct {
    int n[2];
    int64_t at[2][MOST_TAPS];
    const float *w[2]; /* of the row 0 of the filter: its last tap, and then every second before */
} gradient_columns;

static gradient_columns find_columns(const hc_plane_gradient *p) {
    gradient_columns columns;
    for (int odd = 0; odd < 2; odd++) {
        const int64_t v = odd + p->left, last = p->side[1] - 1 - ((p->side[1] - 1 + v) & 1);
        columns.n[odd] = 0;
        columns.w[odd] = p->w + hc_max(last, 0);
        for (int64_t s = last; s >= 0; s -= 2)
            columns.at[odd][columns.n[odd]++] = HC_GRADIENT_SIDE + (v - s) / 2;
    }
    return columns;
}

/* n pixels of a row, or 2 LANES if n is more, from column 2 t on. Row i of `from`, of `rows`, meets the row of filters w_step * i
 * before the first. */
INLINE void some_pixels(const int even, const int odd, const gradient_columns *columns, int rows,
                        const float *const *from, int64_t first, int64_t w_step, int64_t t, int64_t n, float *to) {
    lanes sum[2] = {lanes_of(0), lanes_of(0)};
    for (int i = 0; i < rows; i++) {
        const float *dy = from[i] + t, *w[2] = {columns->w[0] + first - i * w_step, columns->w[1] + first - i * w_step};
#pragma GCC unroll 4
        for (int k = 0; k < even; k++)
            sum[0] = lanes_fma(lanes_load(dy + columns->at[0][k]), lanes_of(w[0][-2 * k]), sum[0]);
#pragma GCC unroll 4
        for (int k = 0; k < odd; k++)
            sum[1] = lanes_fma(lanes_load(dy + columns->at[1][k]), lanes_of(w[1][-2 * k]), sum[1]);
    }
    if (n >= 2 * LANES) {
        beside(sum[0], sum[1], to);
        return;
    }
    float last[2 * LANES];
    beside(sum[0], sum[1], last);
    for (int64_t j = 0; j < n; j++)
        to[j] = last[j];
}

/* A row of pixels. `left` pixels of the plane begin with it, of which those of later rows are written, and then again. */
INLINE void row_of(const int even, const int odd, const gradient_columns *columns, int rows, const float *const *from,
                   int64_t first, int64_t w_step, int64_t width, int64_t left, float *to) {
    for (int64_t j = 0; j < width; j += 2 * LANES)
        some_pixels(even, odd, columns, rows, from, first, w_step, j / 2, left - j, to + j);
}

static void any_plane(const hc_plane_gradient *p) {
    const int64_t row = hc_plane_gradient_row(p->columns, p->width, p->left), step = 2 * (int64_t)p->side[1];
    const gradient_columns columns = find_columns(p);
    memset(p->work, 0, (size_t)((p->rows + 1) * row) * sizeof *p->work);
    for (int64_t i = 0; i < p->rows; i++)
        memcpy(p->work + i * row + HC_GRADIENT_SIDE, p->dy + i * p->columns, (size_t)p->columns * sizeof *p->dy);
    for (int64_t i = 0; i < p->height; i++) {
        const int64_t u = i + p->top, last = p->side[0] - 1 - ((p->side[0] - 1 + u) & 1);
        const float *from[MOST_TAPS];
        int rows = 0;
        for (int64_t r = last; r >= 0; r -= 2) /* row `rows` is zeros, which are multiplied like other values */
            from[rows++] = p->work + (u >= r && (u - r) / 2 < p->rows ? (u - r) / 2 : p->rows) * row;
        const int64_t first = last * p->side[1];
        const int64_t left = (p->height - i) * p->width;
        float *to = p->c + i * p->width;
        if (columns.n[0] == 1 && columns.n[1] == 2)
            row_of(1, 2, &columns, rows, from, first, step, p->width, left, to);
        else if (columns.n[0] == 2 && columns.n[1] == 1)
            row_of(2, 1, &columns, rows, from, first, step, p->width, left, to);
        else if (columns.n[0] == 3 && columns.n[1] == 2)
            row_of(3, 2, &columns, rows, from, first, step, p->width, left, to);
        else if (columns.n[0] == 2 && columns.n[1] == 3)
            row_of(2, 3, &columns, rows, from, first, step, p->width, left, to);
        else
            row_of(columns.n[0], columns.n[1], &columns, rows, from, first, step, p->width, left, to);
    }
}

static void gradient_planes(const hc_plane_gradient *p) {
    enum { THREE = 3, FIVE = 5 };
    const bool odd[2] = {p->top & 1, p->left & 1};
    if (p->side[0] == p->side[1] && (p->side[0] == THREE || p->side[0] == FIVE)) {
        (p->side[0] == THREE ? odd[0]   ? odd[1] ? pairs_3_1_1 : pairs_3_1_0
                               : odd[1] ? pairs_3_0_1
                                        : pairs_3_0_0
         : odd[0]            ? odd[1] ? pairs_5_1_1 : pairs_5_1_0
         : odd[1]            ? pairs_5_0_1
                             : pairs_5_0_0)(p);
        return;
    }
    hc_plane_gradient one = *p;
    for (int64_t i = 0; i < p->planes; i++) {
        any_plane(&one);
        one.dy += p->rows * p->columns;
        one.w += p->side[0] * p->side[1];
        one.c += p->height * p->width;
    }
}
