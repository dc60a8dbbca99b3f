/* A tile of int16: 6 rows by 8 columns, two values of k at a time: hc_direct_s16_neon. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 8 };

INLINE void tile(const int n, int64_t pairs, const int16_t *const *rows, const int16_t *panel, int32_t *c,
                 int64_t ldc) {
    int32x4_t low[MR], high[MR];
#pragma GCC unroll 6
    for (int i = 0; i < n; i++)
        low[i] = high[i] = vdupq_n_s32(0);
    for (int64_t k = 0; k < pairs; k++, panel += 2 * NR) {
        const int16x8x2_t b = vld2q_s16(panel);
#pragma GCC unroll 6
        for (int i = 0; i < n; i++) {
            const int16_t *x = rows[i] + 2 * k;
            low[i] = vmlal_n_s16(low[i], vget_low_s16(b.val[0]), x[0]);
            high[i] = vmlal_high_n_s16(high[i], b.val[0], x[0]);
            low[i] = vmlal_n_s16(low[i], vget_low_s16(b.val[1]), x[1]);
            high[i] = vmlal_high_n_s16(high[i], b.val[1], x[1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        vst1q_s32(c + i * ldc, low[i]);
        vst1q_s32(c + i * ldc + 4, high[i]);
    }
}

#define HC_OWN_TILE
#include "kernels/conv/direct_s16.h"

HC_DIRECT_S16(neon, HC_CASES_6)
