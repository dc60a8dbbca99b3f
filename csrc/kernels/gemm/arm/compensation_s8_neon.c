/* Sums of the rows of an int8 panel, 4 rows at a time: pairs, then fours. */
#include "kernels/kernel.h"

#include <arm_neon.h>

void hc_compensation_s8_neon(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                             int32_t factor, int32_t *sums) {
    for (int64_t s = 0; s < n_segments; s++, sums += lanes) {
        const int64_t n = (int64_t)steps[s] * units;
        int j = 0;
        for (; j + 4 <= lanes; j += 4) {
            int32x4_t sum = vdupq_n_s32(0);
            for (int64_t step = 0; step < n; step++)
                sum = vpadalq_s16(sum, vpaddlq_s8(vld1q_s8(panel + (step * lanes + j) * 4)));
            vst1q_s32(sums + j, vmulq_n_s32(sum, factor));
        }
        for (; j < lanes; j++) {
            sums[j] = 0;
            for (int64_t step = 0; step < n; step++)
                for (int i = 0; i < 4; i++)
                    sums[j] += factor * panel[(step * lanes + j) * 4 + i];
        }
        panel += n * lanes * 4;
    }
}
