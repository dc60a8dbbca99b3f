/* Shared by both sets of depthwise kernels, for floats and for codes with one scale per tap. AT_ONCE outputs with LANES
 * channels each are multiplied by a tap together. So as many chains are independent, and the tap's address, step and
 * filters are read once for all of them. Included after a header of base/lanes/. */
#include "kernels/kernel.h"

#include <math.h>

enum { AT_ONCE = 8 };

__attribute__((always_inline)) static inline void answers(const int n, int64_t taps, const float *const *tap,
                                                          const int64_t *step, int64_t at, int64_t j,
                                                          const float *panel, int64_t ld, float *c, int64_t ldc) {
    lanes sum[AT_ONCE];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum[i] = lanes_of(0);
    for (int64_t t = 0; t < taps; t++) {
        const lanes w = lanes_load(panel + t * ld + j);
        const float *x = tap[t] + at * step[t] + j;
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            sum[i] = lanes_fma(lanes_load(x + i * step[t]), w, sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        lanes_store(c + (at + i) * ldc + j, sum[i]);
}

/* The remaining channels from `j` on, one after the other. */
static void rest(int64_t j, int64_t taps, const float *const *tap, const int64_t *step, const float *panel, int64_t ld,
                 int64_t n, int64_t count, float *c, int64_t ldc) {
    for (; j < count; j++)
        for (int64_t i = 0; i < n; i++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                sum = fmaf(tap[t][i * step[t] + j], panel[t * ld + j], sum);
            c[i * ldc + j] = sum;
        }
}

#define HC_DEPTHWISE(isa)                                                                                              \
    void hc_depthwise_f32_##isa(int64_t taps, const float *const *tap, const int64_t *step, const float *panel,        \
                                int64_t ld, int64_t n, int64_t count, float *c, int64_t ldc) {                         \
        int64_t j = 0;                                                                                                 \
        for (; j + LANES <= count; j += LANES) {                                                                       \
            int64_t i = 0;                                                                                             \
            for (; i + AT_ONCE <= n; i += AT_ONCE)                                                                     \
                answers(AT_ONCE, taps, tap, step, i, j, panel, ld, c, ldc);                                            \
            for (; i + AT_ONCE / 2 <= n; i += AT_ONCE / 2)                                                             \
                answers(AT_ONCE / 2, taps, tap, step, i, j, panel, ld, c, ldc);                                        \
            for (; i < n; i++)                                                                                         \
                answers(1, taps, tap, step, i, j, panel, ld, c, ldc);                                                  \
        }                                                                                                              \
        rest(j, taps, tap, step, panel, ld, n, count, c, ldc);                                                         \
    }

/* depthwise_scaled_f32: the product of two codes, exact or rounded once, times the tap's scale. */
__attribute__((always_inline)) static inline void scaled_answers(const int n, int64_t taps, const float *const *tap,
                                                                 const int64_t *step, int64_t at, int64_t j,
                                                                 const float *panel, const float *scale, int64_t ld,
                                                                 float *c, int64_t ldc) {
    lanes sum[AT_ONCE];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        sum[i] = lanes_of(0);
    for (int64_t t = 0; t < taps; t++) {
        const lanes w = lanes_load(panel + t * ld + j), by = lanes_load(scale + t * ld + j);
        const float *x = tap[t] + at * step[t] + j;
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            sum[i] = lanes_fma(lanes_mul(lanes_load(x + i * step[t]), w), by, sum[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        lanes_store(c + (at + i) * ldc + j, sum[i]);
}

/* The remaining channels from `j` on, one after the other. */
static void scaled_rest(int64_t j, int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                        const float *scale, int64_t ld, int64_t n, int64_t count, float *c, int64_t ldc) {
    for (; j < count; j++)
        for (int64_t i = 0; i < n; i++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                sum = fmaf(tap[t][i * step[t] + j] * panel[t * ld + j], scale[t * ld + j], sum);
            c[i * ldc + j] = sum;
        }
}

#define HC_DEPTHWISE_SCALED(isa)                                                                                       \
    void hc_depthwise_scaled_f32_##isa(int64_t taps, const float *const *tap, const int64_t *step, const float *panel, \
                                       const float *scale, int64_t ld, int64_t n, int64_t count, float *c,             \
                                       int64_t ldc) {                                                                  \
        int64_t j = 0;                                                                                                 \
        for (; j + LANES <= count; j += LANES) {                                                                       \
            int64_t i = 0;                                                                                             \
            for (; i + AT_ONCE <= n; i += AT_ONCE)                                                                     \
                scaled_answers(AT_ONCE, taps, tap, step, i, j, panel, scale, ld, c, ldc);                              \
            for (; i + AT_ONCE / 2 <= n; i += AT_ONCE / 2)                                                             \
                scaled_answers(AT_ONCE / 2, taps, tap, step, i, j, panel, scale, ld, c, ldc);                          \
            for (; i < n; i++)                                                                                         \
                scaled_answers(1, taps, tap, step, i, j, panel, scale, ld, c, ldc);                                    \
        }                                                                                                              \
        scaled_rest(j, taps, tap, step, panel, scale, ld, n, count, c, ldc);                                           \
    }
