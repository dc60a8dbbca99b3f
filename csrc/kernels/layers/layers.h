/* The layers of transformers between matmuls. Float32, every step rounded by itself, except where fma(x, y, z), x y + z
 * rounded once, is written. Any vector width gives the same bits.
 *
 *   sum over i      16 accumulators, acc[i mod 16] += term, i ascending; folded i with i + 8, + 4, + 2, + 1
 *   exp(x)          t = x, -104 if x is less, 89 if x is more; n = fma(t, 1.442695, 1.5 2^23) - 1.5 2^23
 *                   r = fma(n, 0.000212, fma(n, -0.693359375, t)); p by fma from the highest of 7 coefficients down
 *                   p 2^n, rounded once. Within 1.2 units in the last place of e^x
 *   sigmoid(x)      1 / (1 + exp(-x))
 */
#ifndef HC_KERNELS_LAYERS_H
#define HC_KERNELS_LAYERS_H

#include "base/base.h"

enum { HC_SUMS = 16, HC_KEYS = 64, HC_QUERIES = 16 };

/* rows x n, contiguous. centered: layer norm, d = x - sum(x) / n, else RMS norm, d = x.
 * y = d * (1 / sqrt(sum(d d) / n + epsilon)), times weight (n) or NULL, plus bias (n) or NULL. y may be x. */
typedef void hc_norm_fn(int64_t rows, int64_t n, const float *x, bool centered, float epsilon, const float *weight,
                        const float *bias, float *y);

/* y = e (1 / sum(e)), e = exp(x - max(x)); rows x n, contiguous, n >= 1. y may be x. */
typedef void hc_softmax_fn(int64_t rows, int64_t n, const float *x, float *y);

/* y = u up, or u if up is NULL. y may be x. HC_GATE_SILU: u = x sigmoid(x). HC_GATE_GELU: u = x sigmoid(1.5957692 (x +
 * 0.044715 x^3)). HC_GATE_ERF: u = x / 2 (1 + erf(x / sqrt(2))) in the steps of hc_gelu_erf, see rows.h. */
typedef enum { HC_GATE_SILU, HC_GATE_GELU, HC_GATE_ERF } hc_gate_kind;
typedef void hc_gate_fn(int64_t n, hc_gate_kind kind, const float *x, const float *up, float *y);

/* pool_max: c[p * n + q], p < down and q < n, is the maximum of the columns q * stride[1] + s - left, s < size[1], that are
 * inside of a plane of height x width pixels. The value of a column is the maximum of its pixels of rows p * stride[0] + r -
 * top, r < size[0]. Both begin with -infinity, and a pixel replaces the maximum so far if it is greater or NaN, r and s
 * ascending. `work` has hc_pool_work floats, which are written in whole registers. */
typedef struct {
    const float *x;
    int64_t height, width, top, left, size[2], stride[2], down, n;
    float *work, *c;
} hc_pool_plane;
typedef void hc_pool_max_fn(const hc_pool_plane *plane);

static inline int64_t hc_pool_work(int64_t n, int64_t size, int64_t stride) {
    enum { MOST_LANES = 16 };
    return hc_round_up((n - 1) * stride + size, MOST_LANES) + 4 * MOST_LANES;
}

/* pool_mean: the same windows. A mean is the sum in float64 over r and s ascending, divided by size[0] * size[1] and rounded
 * once. `work` has hc_pool_mean_rows rows of hc_pool_mean_work floats: columns f, f + stride[1], ... of the windows of a row
 * of pixels are contiguous, one such phase after the other. */
typedef void hc_pool_mean_fn(const hc_pool_plane *plane);
static inline int64_t hc_pool_mean_rows(int64_t height, int64_t size) { return hc_min(size, hc_max(height, 1)); }
static inline int64_t hc_pool_phase(int64_t n, int64_t size, int64_t stride) { return n + (size - 1) / stride + 8; }
static inline int64_t hc_pool_mean_work(int64_t n, int64_t size, int64_t stride) {
    return hc_min(size, stride) * hc_pool_phase(n, size, stride);
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
 *   s_j = cap(scale sum_i q_i k_ji), acc[i mod 16] = fma(q_i, k_ji, acc[i mod 16]), folded as above
 *   cap(s) = c tanh(s / c), tanh(t) = 1 - 2 / (exp(2 t) + 1)
 *   M = max(m, s_j),  p_j = exp(s_j - M),  e = exp(m - M)
 *   m = M,  l = l e + sum_j p_j (16 accumulators, j mod 16, j counted from the first key of the tile),
 *   a_i = a_i e, then a_i = fma(p_j, v_ji, a_i), j ascending
 * attend reads floats. attend_codes also reads codes: k_ji = float(code) * scale, rounded once, and finite if the scale
 * is finite. attend_block has up to HC_QUERIES rows, one per lane, and reads floats: element i of row r of q and of
 * answer is at i * HC_QUERIES + r; low, high, largest and sum have HC_QUERIES elements, and low = high = 0 beyond the
 * rows. The last two have no scalar kernel: attend is the definition. */
typedef struct {
    const float *data;                        /* (keys, width), ld apart; NULL: codes and scales are used */
    const int8_t *codes;                      /* (keys, width), ld apart */
    const uint8_t *scales;                    /* float32 of each group of a key, of any alignment */
    int64_t ld, scales_ld /* bytes */, group; /* group: codes per scale, a multiple of 16 */
} hc_attend_keys;
typedef struct {
    int64_t rows, width;
    const float *q; /* (rows, width), q_ld apart; attend_block: (width, HC_QUERIES) */
    int64_t q_ld;
    hc_attend_keys k, v;
    int64_t ahead; /* number of keys after this tile of HC_KEYS keys, for prefetch */
    const int32_t *low, *high;
    float scale, cap;     /* cap 0: scores are not capped */
    float *largest, *sum; /* (rows): m, initially -infinity, and l, initially 0 */
    float *answer;        /* (rows, width), contiguous: a, initially 0; attend_block: (width, HC_QUERIES) */
} hc_attend;
typedef void hc_attend_fn(const hc_attend *some);
typedef hc_attend_fn hc_attend_codes_fn;
typedef hc_attend_fn hc_attend_block_fn;

#endif
