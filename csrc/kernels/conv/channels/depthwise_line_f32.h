/* Filters of one channel whose rows have 5 or 7 taps, channels in lanes, for adjacent outputs of a row. The taps of one
 * row of the filter are in registers, and each pixel is loaded once for all outputs that it belongs to. The order of
 * pixels is such that each output adds its taps in order. Included after a header of base/lanes/.
 *
 * With HC_SCALED, codes with one scale per tap, and rows of 3 taps, too: a product of two codes, then a multiply-add by the
 * tap's scale. */
#include "kernels/kernel.h"

#define INLINE __attribute__((always_inline)) static inline

enum { MOST_SIDE = 7, MOST_ACROSS = 8 };
#ifdef HC_SCALED
enum { IS_SCALED = true };
#else
enum { IS_SCALED = false };
#endif

INLINE lanes load(const float *from, int64_t some) {
    return some == LANES ? lanes_load(from) : lanes_load_some(from, some);
}

/* `across` outputs, `some` channels of each; pixels are `j` values after x. `scale` is not read without scales. */
INLINE void block(const int side, const int stride, const int across, int64_t rows, const float *const *x,
                  int64_t pitch, int64_t j, const float *panel, const float *scale, int64_t ld, int64_t some, float *c,
                  int64_t ldc) {
    lanes sum[MOST_ACROSS];
#pragma GCC unroll 8
    for (int q = 0; q < across; q++)
        sum[q] = lanes_of(0);
    for (int64_t r = 0; r < rows; r++, x += pitch) {
        lanes w[MOST_SIDE], by[MOST_SIDE];
#pragma GCC unroll 7
        for (int s = 0; s < side; s++, panel += ld, scale += ld) {
            w[s] = load(panel, some);
            if (IS_SCALED)
                by[s] = load(scale, some);
        }
#pragma GCC unroll 21
        for (int k = 0; k < (across - 1) * stride + side; k++) {
            const lanes value = load(x[k] + j, some);
#pragma GCC unroll 8
            for (int q = 0; q < across; q++) {
                const int s = k - q * stride;
                if (s >= 0 && s < side)
                    sum[q] =
                        IS_SCALED ? lanes_fma(lanes_mul(value, w[s]), by[s], sum[q]) : lanes_fma(value, w[s], sum[q]);
            }
        }
    }
#pragma GCC unroll 8
    for (int q = 0; q < across; q++) {
        if (some == LANES)
            lanes_store(c + q * ldc, sum[q]);
        else
            lanes_store_some(c + q * ldc, sum[q], some);
    }
}

INLINE void channels(const int side, const int stride, const int across, int64_t rows, const float *const *x,
                     int64_t pitch, int64_t first, const float *panel, const float *scale, int64_t ld, int64_t count,
                     float *c, int64_t ldc) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        block(side, stride, across, rows, x, pitch, first + j, panel + j, scale + j, ld, LANES, c + j, ldc);
    if (j < count)
        block(side, stride, across, rows, x, pitch, first + j, panel + j, scale + j, ld, count - j, c + j, ldc);
}

#define HC_LINE(side, stride, across)                                                                                  \
    __attribute__((noinline)) static void line_##side##_##stride##_##across(                                           \
        int64_t rows, const float *const *x, int64_t pitch, int64_t first, const float *panel, const float *scale,     \
        int64_t ld, int64_t count, float *c, int64_t ldc) {                                                            \
        channels(side, stride, across, rows, x, pitch, first, panel, scale, ld, count, c, ldc);                        \
    }
#define HC_LINES(side, stride)                                                                                         \
    HC_LINE(side, stride, 1)                                                                                           \
    HC_LINE(side, stride, 2) HC_LINE(side, stride, 4) HC_LINE(side, stride, 7) HC_LINE(side, stride, 8)
#ifdef HC_SCALED
HC_LINES(3, 1)
HC_LINES(3, 2)
#endif
HC_LINES(5, 1)
HC_LINES(5, 2)
HC_LINES(7, 1)
HC_LINES(7, 2)

#define HC_CASE(side, stride, across)                                                                                  \
    case (side) * 32 + (stride) * 16 + (across):                                                                       \
        line_##side##_##stride##_##across(rows, x, pitch, first, panel, scale, ld, count, c, ldc);                     \
        break;
#define HC_CASES(side, stride)                                                                                         \
    HC_CASE(side, stride, 1)                                                                                           \
    HC_CASE(side, stride, 2) HC_CASE(side, stride, 4) HC_CASE(side, stride, 7) HC_CASE(side, stride, 8)
#define HC_DEPTHWISE_LINE(isa)                                                                                         \
    void hc_depthwise_line_f32_##isa(int side, int stride, int across, int64_t rows, const float *const *x,            \
                                     int64_t pitch, int64_t first, const float *panel, int64_t ld, int64_t count,      \
                                     float *c, int64_t ldc) {                                                          \
        const float *const scale = panel;                                                                              \
        switch (side * 32 + stride * 16 + across) { HC_CASES(5, 1) HC_CASES(5, 2) HC_CASES(7, 1) HC_CASES(7, 2) }      \
    }
#define HC_DEPTHWISE_LINE_SCALED(isa)                                                                                  \
    void hc_depthwise_line_scaled_f32_##isa(int side, int stride, int across, int64_t rows, const float *const *x,     \
                                            int64_t pitch, int64_t first, const float *panel, const float *scale,      \
                                            int64_t ld, int64_t count, float *c, int64_t ldc) {                        \
        switch (side * 32 + stride * 16 + across) {                                                                    \
            HC_CASES(3, 1)                                                                                             \
            HC_CASES(3, 2) HC_CASES(5, 1) HC_CASES(5, 2) HC_CASES(7, 1) HC_CASES(7, 2)                                 \
        }                                                                                                              \
    }
