/* Shared by both sets of kernels of 3 x 3 filters of one channel. A block of outputs is in registers, and each value of
 * the image is loaded once for all of them, by rows, so that every output adds its taps in order. The including file
 * includes a header of base/lanes/ and defines MR x NR outputs, each 1, 2 or 4. */
#include "kernels/kernel.h"

enum { R = 3, TAPS = R * R };

#define INLINE __attribute__((always_inline)) static inline

INLINE lanes load(const float *from, int64_t some) {
    return some == LANES ? lanes_load(from) : lanes_load_some(from, some);
}

INLINE void store(float *to, lanes a, int64_t some) {
    if (some == LANES)
        lanes_store(to, a);
    else
        lanes_store_some(to, a, some);
}

/* Outputs down x across, `some` channels of each from c on; pixels are `j` values after x. */
INLINE void block(const int stride, const int down, const int across, const float *const *x, int64_t j,
                  const float *panel, int64_t ld, int64_t some, float *c, int64_t c_row, int64_t ldc, const float *bias,
                  bool relu) {
    const int rows = (down - 1) * stride + R, columns = (across - 1) * stride + R;
    lanes sum[MR][NR], w[TAPS];
#pragma GCC unroll 9
    for (int t = 0; t < TAPS; t++)
        w[t] = load(panel + t * ld + j, some);
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
#pragma GCC unroll 4
        for (int q = 0; q < across; q++)
            sum[i][q] = lanes_of(0);
#pragma GCC unroll 9
    for (int h = 0; h < rows; h++)
#pragma GCC unroll 9
        for (int k = 0; k < columns; k++) {
            const lanes value = load(x[h * columns + k] + j, some);
#pragma GCC unroll 4
            for (int i = 0; i < down; i++)
#pragma GCC unroll 4
                for (int q = 0; q < across; q++) {
                    const int r = h - i * stride, s = k - q * stride;
                    if (r >= 0 && r < R && s >= 0 && s < R)
                        sum[i][q] = lanes_fma(value, w[r * R + s], sum[i][q]);
                }
        }
    if (bias || relu) {
        const lanes more = bias ? load(bias + j, some) : lanes_of(-0.0f);
#pragma GCC unroll 4
        for (int i = 0; i < down; i++)
#pragma GCC unroll 4
            for (int q = 0; q < across; q++) {
                sum[i][q] = lanes_add(sum[i][q], more);
                if (relu)
                    sum[i][q] = lanes_relu(sum[i][q]);
            }
    }
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
#pragma GCC unroll 4
        for (int q = 0; q < across; q++)
            store(c + i * c_row + q * ldc + j, sum[i][q], some);
}

INLINE void channels(const int stride, const int down, const int across, const float *const *x, const float *panel,
                     int64_t ld, int64_t count, float *c, int64_t c_row, int64_t ldc, const float *bias, bool relu) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        block(stride, down, across, x, j, panel, ld, LANES, c, c_row, ldc, bias, relu);
    if (j < count)
        block(stride, down, across, x, j, panel, ld, count - j, c, c_row, ldc, bias, relu);
}

#define HC_CASE(stride, down, across)                                                                                  \
    case (stride) * 64 + (down) * 8 + (across):                                                                        \
        channels(stride, down, across, x, panel, ld, count, c, c_row, ldc, bias, relu);                                \
        break;
#define HC_CASES(stride, down) HC_CASE(stride, down, 1) HC_CASE(stride, down, 2) HC_CASE(stride, down, 4)
#define HC_DEPTHWISE3(isa, cases)                                                                                      \
    void hc_depthwise3_f32_##isa(int stride, int down, int across, const float *const *x, const float *panel,          \
                                 int64_t ld, int64_t count, float *c, int64_t c_row, int64_t ldc, const float *bias,   \
                                 bool relu) {                                                                          \
        switch (stride * 64 + down * 8 + across) { cases }                                                             \
    }
