/* The layers of transformers between matmuls. Float32, every step rounded by itself (no fused multiply-add), so that
 * any vector width gives the same bits.
 *
 *   sum over i      16 accumulators, acc[i mod 16] += term, i ascending; folded i with i + 8, + 4, + 2, + 1
 *   exp(x)          x = n log(2) + r, n = rint(x / log(2)), a polynomial of r (Cephes, expf), times 2^n in two steps
 *   sigmoid(x)      1 / (1 + exp(-x))
 */
#ifndef HC_KERNELS_LAYERS_H
#define HC_KERNELS_LAYERS_H

#include "base/base.h"

enum { HC_SUMS = 16, HC_KEYS = 64 };

/* rows x n, contiguous. centered: layer norm, d = x - sum(x) / n, else RMS norm, d = x.
 * y = d * (1 / sqrt(sum(d d) / n + epsilon)), times weight (n) or NULL, plus bias (n) or NULL. y may be x. */
typedef void hc_norm_fn(int64_t rows, int64_t n, const float *x, bool centered, float epsilon, const float *weight,
                        const float *bias, float *y);

/* y = e / sum(e), e = exp(x - max(x)); rows x n, contiguous, n >= 1. y may be x. */
typedef void hc_softmax_fn(int64_t rows, int64_t n, const float *x, float *y);

/* y = u up, or u if up is NULL. gelu: u = x sigmoid(1.5957692 (x + 0.044715 x^3)), otherwise u = x sigmoid(x). y may be
 * x. */
typedef void hc_gate_fn(int64_t n, bool gelu, const float *x, const float *up, float *y);

/* pool_max: c[p * n + q], p < down and q < n, is the maximum of the columns q * stride[1] + s - left, s < size[1], that are
 * inside of a plane of height x width pixels. The value of a column is the maximum of its pixels of rows p * stride[0] + r -
 * top, r < size[0]. Both begin with -infinity, and a pixel replaces the maximum so far if it is greater or NaN, r and s
 * ascending. `work` has hc_pool_work floats. */
typedef struct {
    const float *x;
    int64_t height, width, top, left, size[2], stride[2], down, n;
    float *work, *c;
} hc_pool_plane;
typedef void hc_pool_max_fn(const hc_pool_plane *plane);
static inline int64_t hc_pool_work(int64_t n, int64_t size, int64_t stride) {
    enum { MOST_LANES = 16 };
    return (n - 1) * stride + size + 4 * MOST_LANES;
}

/* Rotates the first 2 * half of the `width` values of each row: (a, b) -> (a cos - b sin, a sin + b cos). a and b are
 * at i and i + half; with `pairs`, at 2 i and 2 i + 1. The cosine and sine of row r begin at ((r / repeat) % turns) *
 * half. y is not x. */
typedef struct {
    int64_t width, half, repeat, turns;
    bool pairs;
} hc_rope_form;
typedef void hc_rope_fn(const hc_rope_form *form, int64_t first, int64_t rows, const float *x, const float *cosine,
                        const float *sine, float *y);

/* Adds a tile of up to HC_KEYS keys to the running attention of some rows of queries. Row r sees keys [low[r], high[r])
 * of the tile.
 *   s_j = cap(scale sum_i q_i k_ji),  cap(s) = c tanh(s / c), tanh(t) = 1 - 2 / (exp(2 t) + 1)
 *   M = max(m, s_j),  p_j = exp(s_j - M),  e = exp(m - M)
 *   m = M,  l = l e + sum_j p_j (16 accumulators, j mod 16, j counted from the first key of the tile),
 *   a_i = a_i e + p_j v_ji, j ascending
 * attend reads floats. attend_codes also reads codes: k_ji = float(code) * scale, rounded once, and finite if the scale
 * is finite. It has no scalar kernel: attend on decoded keys is the definition. */
typedef struct {
    const float *data;                        /* (keys, width), ld apart; NULL: codes and scales are used */
    const int8_t *codes;                      /* (keys, width), ld apart */
    const uint8_t *scales;                    /* float32 of each group of a key, of any alignment */
    int64_t ld, scales_ld /* bytes */, group; /* group: codes per scale, a multiple of 16 */
} hc_attend_keys;
typedef struct {
    int64_t rows, width;
    const float *q; /* (rows, width), q_ld apart */
    int64_t q_ld;
    hc_attend_keys k, v;
    int64_t ahead; /* number of keys after this tile of HC_KEYS keys, for prefetch */
    const int32_t *low, *high;
    float scale, cap;     /* cap 0: scores are not capped */
    float *largest, *sum; /* (rows): m, initially -infinity, and l, initially 0 */
    float *answer;        /* (rows, width), contiguous: a, initially 0 */
} hc_attend;
typedef void hc_attend_fn(const hc_attend *some);
typedef hc_attend_fn hc_attend_codes_fn;

#endif
