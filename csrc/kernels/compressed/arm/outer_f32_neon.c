/* Products of lists of activations with rows of weights: the sums of a pixel stay in up to 16 registers while its list
 * is walked; each activation is broadcast once and meets a row of weights. */
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { LANES = 4 };

static inline __attribute__((always_inline)) void walk(const int registers, const bool guarded, int64_t count,
                                                       const int32_t *starts, int64_t step, const float *values,
                                                       const uint8_t *at, const float *panel, float *to) {
    for (int64_t i = 0; i < count; i++, starts += step, to += registers * LANES) {
        const int32_t end = starts[1];
        if (starts[0] == end)
            continue;
        float32x4_t sum[16];
#pragma GCC unroll 16
        for (int r = 0; r < registers; r++)
            sum[r] = vld1q_f32(to + r * LANES);
        for (int32_t t = starts[0]; t < end; t++) {
            const float32x4_t x = vdupq_n_f32(values[t]);
            const float *weights = panel + at[t] * registers * LANES;
#pragma GCC unroll 16
            for (int r = 0; r < registers; r++) {
                const float32x4_t w = vld1q_f32(weights + r * LANES), more = vfmaq_f32(sum[r], x, w);
                sum[r] = guarded ? vbslq_f32(vceqzq_f32(w), sum[r], more) : more;
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < registers; r++)
            vst1q_f32(to + r * LANES, sum[r]);
    }
}

#define WALK(registers)                                                                                                \
    case (registers) * LANES:                                                                                          \
        if (guarded)                                                                                                   \
            walk(registers, true, count, starts, step, values, at, panel, to);                                         \
        else                                                                                                           \
            walk(registers, false, count, starts, step, values, at, panel, to);                                        \
        break

void hc_outer_f32_neon(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                       const float *panel, int lanes, bool guarded, float *to) {
    switch (lanes) {
        WALK(4);
        WALK(8);
        WALK(12);
        WALK(16);
    }
}
