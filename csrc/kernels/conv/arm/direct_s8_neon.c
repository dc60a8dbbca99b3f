/* A tile of an integer convolution: 3 windows of int16 by 8 filters, whose 4 products are in lanes that are added at
 * the end. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 3, NR = 8 };

INLINE void tile(const int n, int64_t taps, const int64_t *tap, int64_t run, const void *const *rows,
                 const int8_t *panel, const int32_t *init, int32_t *c, int64_t ldc) {
    int32x4_t sum[MR][NR];
#pragma GCC unroll 3
    for (int i = 0; i < n; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++)
            sum[i][j] = vdupq_n_s32(0);
    for (int64_t t = 0; t < taps; t++)
        for (int64_t v = 0; v < run; v += 4, panel += 4 * NR) {
            int16x8_t pair[NR / 2];
#pragma GCC unroll 4
            for (int p = 0; p < NR / 2; p++)
                pair[p] = vmovl_s8(vld1_s8(panel + 8 * p));
#pragma GCC unroll 3
            for (int i = 0; i < n; i++) {
                const int16x4_t x = vld1_s16((const int16_t *)rows[i] + tap[t] + v);
                const int16x8_t twice = vcombine_s16(x, x);
#pragma GCC unroll 4
                for (int p = 0; p < NR / 2; p++) {
                    sum[i][2 * p] = vmlal_s16(sum[i][2 * p], x, vget_low_s16(pair[p]));
                    sum[i][2 * p + 1] = vmlal_high_s16(sum[i][2 * p + 1], twice, pair[p]);
                }
            }
        }
#pragma GCC unroll 3
    for (int i = 0; i < n; i++)
#pragma GCC unroll 2
        for (int j = 0; j < NR; j += 4) {
            const int32x4_t low = vpaddq_s32(sum[i][j], sum[i][j + 1]), high = vpaddq_s32(sum[i][j + 2], sum[i][j + 3]);
            vst1q_s32(c + i * ldc + j, vaddq_s32(vld1q_s32(init + j), vpaddq_s32(low, high)));
        }
}

void hc_direct_s8_neon(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows, const int8_t *panel,
                       const int32_t *init, int n_rows, int columns, int32_t *c, int64_t ldc) {
    (void)columns;
    if (n_rows == 1)
        tile(1, taps, tap, run, rows, panel, init, c, ldc);
    else if (n_rows == 2)
        tile(2, taps, tap, run, rows, panel, init, c, ldc);
    else
        tile(3, taps, tap, run, rows, panel, init, c, ldc);
}
