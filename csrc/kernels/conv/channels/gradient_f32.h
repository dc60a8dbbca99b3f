/* Sums of products of gradients and pixels, filters in lanes, AT_ONCE taps or fewer in registers. The gradients of a pixel
 * are loaded once for all of these taps. Included after a header of base/lanes/ and AT_ONCE and HALF_AT_ONCE, the
 * taps that have WIDE / LANES registers each, and half as many. */
#include "kernels/kernel.h"

#define INLINE __attribute__((always_inline)) static inline

enum { WIDE = HC_GRADIENT_WIDE, MOST = 9 };

/* `taps` taps, `across` registers of each, of filters from j on. */
INLINE void block(const bool one, const int taps, const int across, const hc_gradient *g, int64_t j, const int64_t *tap,
                  float *c) {
    lanes sum[MOST][WIDE / LANES];
#pragma GCC unroll 9
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 8
        for (int b = 0; b < across; b++)
            sum[t][b] = lanes_load(c + t * g->width + b * LANES);
    for (int64_t p = 0; p < g->down; p++) {
        const float *x[MOST];
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++)
            x[t] = g->x + tap[t] + p * g->x_row + (one ? 0 : j);
        for (int64_t q = 0; q < g->across; q++) {
            int64_t at = q * g->x_column;
            const float *dy = g->dy + j + p * g->dy_row + q * g->dy_column;
            for (int64_t i = 0; i < g->n; i++, at += g->x_step, dy += g->dy_step) {
                if (one) {
                    lanes value[MOST];
#pragma GCC unroll 9
                    for (int t = 0; t < taps; t++)
                        value[t] = lanes_of(x[t][at]);
#pragma GCC unroll 8
                    for (int b = 0; b < across; b++) {
                        const lanes gradient = lanes_load(dy + b * LANES);
#pragma GCC unroll 9
                        for (int t = 0; t < taps; t++)
                            sum[t][b] = lanes_fma(value[t], gradient, sum[t][b]);
                    }
                    continue;
                }
                const lanes gradient = lanes_load(dy);
#pragma GCC unroll 9
                for (int t = 0; t < taps; t++)
                    sum[t][0] = lanes_fma(lanes_load(x[t] + at), gradient, sum[t][0]);
            }
        }
    }
#pragma GCC unroll 9
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 8
        for (int b = 0; b < across; b++)
            lanes_store(c + t * g->width + b * LANES, sum[t][b]);
}

#define HC_TAPS(taps)                                                                                                  \
    __attribute__((noinline)) static void lanes_##taps(const hc_gradient *g, int64_t j, const int64_t *tap,            \
                                                       float *c) {                                                     \
        block(false, taps, 1, g, j, tap, c);                                                                           \
    }
#define HC_ONE_TAPS(taps)                                                                                              \
    __attribute__((noinline)) static void one_##taps(const hc_gradient *g, int64_t j, const int64_t *tap, float *c) {  \
        block(true, taps, WIDE / LANES, g, j, tap, c);                                                                 \
    }
#define HC_HALF_TAPS(taps)                                                                                             \
    __attribute__((noinline)) static void half_##taps(const hc_gradient *g, int64_t j, const int64_t *tap, float *c) { \
        block(true, taps, WIDE / 2 / LANES, g, j, tap, c);                                                             \
    }
HC_TAPS(1)
HC_TAPS(2)
HC_TAPS(3)
HC_TAPS(4)
HC_TAPS(5)
HC_TAPS(6)
HC_TAPS(7)
HC_TAPS(8)
HC_TAPS(9)

typedef void taps_fn(const hc_gradient *g, int64_t j, const int64_t *tap, float *c);

/* Filters from j on, in blocks of taps of about the same size, at most `most`. */
INLINE void all(taps_fn *const *by_taps, int64_t most, int64_t j, const hc_gradient *g) {
    const int64_t blocks = (g->taps + most - 1) / most;
    int64_t first = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t end = g->taps * (b + 1) / blocks;
        by_taps[end - first](g, j, g->tap + first, g->c + first * g->width + j);
        first = end;
    }
}

INLINE void gradient(taps_fn *const *in_lanes, taps_fn *const *one, taps_fn *const *half, const hc_gradient *g) {
    int64_t j = 0;
    for (; g->one && j + WIDE <= g->width; j += WIDE)
        all(one, AT_ONCE, j, g);
    for (; g->one && j < g->width; j += WIDE / 2)
        all(half, HALF_AT_ONCE, j, g);
    for (; j < g->width; j += LANES)
        all(in_lanes, MOST, j, g);
}

/* The first functions have 1 to AT_ONCE taps; `halves` has those of 1 to HALF_AT_ONCE. */
#define HC_GRADIENT(isa, halves, ...)                                                                                  \
    void hc_gradient_f32_##isa(const hc_gradient *g) {                                                                 \
        static taps_fn *const IN_LANES[] = {NULL,    lanes_1, lanes_2, lanes_3, lanes_4,                               \
                                            lanes_5, lanes_6, lanes_7, lanes_8, lanes_9};                              \
        static taps_fn *const ONE[] = {NULL, __VA_ARGS__};                                                             \
        gradient(IN_LANES, ONE, halves, g);                                                                            \
    }
