/* The gradient for a plane of pixels of windows with stride 2: kernels/conv/conv.h. Even and odd columns of pixels meet
 * every second tap each, so that adjacent lanes of a sum read adjacent values of dy. Included after a header of
 * base/lanes/.
 */
#include "kernels/kernel.h"

#include <string.h>

enum { MOST_TAPS = (HC_GRADIENT_SIDE + 1) / 2 * ((HC_GRADIENT_SIDE + 1) / 2) };

typedef struct {
    int n;
    const float *dy[MOST_TAPS];
    float w[MOST_TAPS];
} gradient_taps;

/* The taps of row i and of columns j = `odd`, `odd` + 2, ..., with what they meet at the first of them. */
static void find_taps(const hc_plane_gradient *p, int64_t i, int odd, const float *padded, int64_t row,
                      gradient_taps *taps) {
    const int64_t u = i + p->top, v = odd + p->left;
    int n = 0;
    for (int64_t r = p->side[0] - 1 - ((p->side[0] - 1 + u) & 1); r >= 0; r -= 2) {
        /* row `rows` is zeros, which are multiplied like other values */
        const float *from = padded + (u >= r && (u - r) / 2 < p->rows ? (u - r) / 2 : p->rows) * row;
        for (int64_t s = p->side[1] - 1 - ((p->side[1] - 1 + v) & 1); s >= 0; s -= 2) {
            taps->dy[n] = from + HC_GRADIENT_SIDE + (v - s) / 2;
            taps->w[n++] = p->w[r * p->side[1] + s];
        }
    }
    taps->n = n;
}

/* to[t] = sum over taps, for t < n and those that fill up the last registers. */
static inline void add_taps(const gradient_taps *taps, int64_t n, float *to) {
    for (int64_t t = 0; t < n; t += 2 * LANES) {
        lanes first = lanes_of(0), second = lanes_of(0);
        for (int i = 0; i < taps->n; i++) {
            const lanes w = lanes_of(taps->w[i]);
            first = lanes_fma(lanes_load(taps->dy[i] + t), w, first);
            second = lanes_fma(lanes_load(taps->dy[i] + t + LANES), w, second);
        }
        lanes_store(to + t, first);
        lanes_store(to + t + LANES, second);
    }
}

static void interleave(int64_t n, const float *restrict even, const float *restrict odd, float *restrict to) {
    for (int64_t t = 0; t < n; t++) {
        to[2 * t] = even[t];
        to[2 * t + 1] = odd[t];
    }
}

static void gradient_plane(const hc_plane_gradient *p) {
    const int64_t row = hc_plane_gradient_row(p->columns, p->width, p->left), even = (p->width + 1) / 2;
    float *sums[2] = {p->work + (p->rows + 1) * row, p->work + (p->rows + 2) * row};
    memset(p->work, 0, (size_t)((p->rows + 1) * row) * sizeof *p->work);
    for (int64_t i = 0; i < p->rows; i++)
        memcpy(p->work + i * row + HC_GRADIENT_SIDE, p->dy + i * p->columns, (size_t)p->columns * sizeof *p->dy);
    for (int64_t i = 0; i < p->height; i++) {
        float *to = p->c + i * p->width;
        for (int odd = 0; odd < 2; odd++) {
            gradient_taps taps;
            find_taps(p, i, odd, p->work, row, &taps);
            add_taps(&taps, even, sums[odd]);
        }
        interleave(p->width / 2, sums[0], sums[1], to);
        if (p->width % 2)
            to[p->width - 1] = sums[0][even - 1];
    }
}
