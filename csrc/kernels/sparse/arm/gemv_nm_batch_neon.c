/* gemv_nm_batch: 8 vectors in the lanes of two registers, four rows at a time, so that their chains overlap. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void add(const hc_gemv_nm_batch_args *args, int r, int64_t t, float32x4_t sum[2]) {
    const float *x = args->panel + (int64_t)args->at[r][t] * HC_GEMV_BATCH, c = args->codes[r][t];
    sum[0] = vfmaq_n_f32(sum[0], vld1q_f32(x), c);
    sum[1] = vfmaq_n_f32(sum[1], vld1q_f32(x + 4), c);
}

static void add_columns(const hc_gemv_nm_batch_args *args) {
    const hc_gemv_nm_batch_args own = *args; /* a copy, which stores to the sums cannot change */
    for (int64_t t = 0; t < own.kept; t++)
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            float *to = own.sums + (r * 64 + own.at[r][t] % 64) * HC_GEMV_BATCH;
            float32x4_t sum[2] = {vld1q_f32(to), vld1q_f32(to + 4)};
            add(&own, r, t, sum);
            vst1q_f32(to, sum[0]);
            vst1q_f32(to + 4, sum[1]);
        }
}

static void add_groups(const hc_gemv_nm_batch_args *args) {
    const hc_gemv_nm_batch_args own = *args;
    for (int64_t g = 0, first = 0; first < own.kept; g++, first += own.group) {
        const int64_t end = hc_min(first + own.group, own.kept);
        float32x4_t p[HC_GEMV_ROWS][2];
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++)
            p[r][0] = p[r][1] = vdupq_n_f32(0);
        for (int64_t t = first; t < end; t++)
#pragma GCC unroll 4
            for (int r = 0; r < HC_GEMV_ROWS; r++)
                add(&own, r, t, p[r]);
#pragma GCC unroll 4
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            float *to = own.sums + (r * 16 + g % 16) * HC_GEMV_BATCH;
            vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), p[r][0], own.scales[r][g]));
            vst1q_f32(to + 4, vfmaq_n_f32(vld1q_f32(to + 4), p[r][1], own.scales[r][g]));
        }
    }
}

void hc_gemv_nm_batch_neon(const hc_gemv_nm_batch_args *args) { args->group ? add_groups(args) : add_columns(args); }
