/* The layers of transformers between products. Float32, every step rounded by itself (no fused multiply-add), so that
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

/* gelu: u = x sigmoid(1.5957692 (x + 0.044715 x^3)), else u = x sigmoid(x); y = u up, or u where up is NULL. y may be x. */
typedef void hc_gate_fn(int64_t n, bool gelu, const float *x, const float *up, float *y);

/* rows of `width` values, of which the first 2 half are turned: (a, b) -> (a cos - b sin, a sin + b cos), a and b at i
 * and i + half, or, pairs, at 2 i and 2 i + 1. Row r has cosine and sine at ((r / repeat) % turns) * half. y is not x. */
typedef struct {
    int64_t width, half, repeat, turns;
    bool pairs;
} hc_rope_form;
typedef void hc_rope_fn(const hc_rope_form *form, int64_t first, int64_t rows, const float *x, const float *cosine,
                        const float *sine, float *y);

/* Up to HC_KEYS keys more for some rows of queries. Row r sees keys [low[r], high[r]) of these.
 *   s_j = cap(scale sum_i q_i k_ji),  cap(s) = c tanh(s / c), tanh(t) = 1 - 2 / (exp(2 t) + 1)
 *   M = max(m, s_j),  p_j = exp(s_j - M),  e = exp(m - M)
 *   m = M,  l = l e + sum_j p_j (j mod 16, j counted from the first of these),  a_i = a_i e + p_j v_ji, j ascending
 * attend reads floats. attend_codes reads also codes, of which k_ji = float(code) * scale is rounded once and finite where the
 * scale is; it has no scalar kernel: attend of decoded keys has the same bits. */
typedef struct {
    const float *data;                        /* (keys, width), ld apart; or NULL: */
    const int8_t *codes;                      /* (keys, width), ld apart */
    const uint8_t *scales;                    /* float32 of each group of a key, maybe unaligned */
    int64_t ld, scales_ld /* bytes */, group; /* group: of a multiple of 16 codes */
} hc_attend_keys;
typedef struct {
    int64_t rows, width;
    const float *q; /* (rows, width), q_ld apart */
    int64_t q_ld;
    hc_attend_keys k, v;
    int64_t ahead; /* a hint for prefetch: so many keys follow behind HC_KEYS of these */
    const int32_t *low, *high;
    float scale, cap;     /* cap 0: none */
    float *largest, *sum; /* (rows): m, at first -infinity, and l, at first 0 */
    float *answer;        /* (rows, width), contiguous: a, at first 0 */
} hc_attend;
typedef void hc_attend_fn(const hc_attend *some);
typedef hc_attend_fn hc_attend_codes_fn;

#endif
