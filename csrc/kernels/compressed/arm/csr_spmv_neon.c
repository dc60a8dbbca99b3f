/* Stored weights times one vector, with fused multiply-add; kernels/compressed/compressed.h. Rows of few values are read in
 * blocks of 8, so that no branch depends on the number of values of a row. Lanes behind the end of a row keep their sums.
 * Long rows take hc_csr_walk: 4.1 instructions per value.
 */
#include "kernels/compressed/csr_spmv.h"

#include <arm_neon.h>

enum { LANES = 8, SHORT = 20, ROWS = 64 };

static const uint32_t FIRST_LANES[2 * LANES] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};

static inline float32x4_t taken(const float *x, const int32_t *at) {
    float32x4_t four = vld1q_dup_f32(x + at[0]);
    four = vld1q_lane_f32(x + at[1], four, 1);
    four = vld1q_lane_f32(x + at[2], four, 2);
    return vld1q_lane_f32(x + at[3], four, 3);
}

/* Sums i and i + 4 of two rows, folded to sums 0 and 1 of the first row, then of the second. */
static inline float32x4_t two_rows(const float *sums) {
    const float32x4_t a = vaddq_f32(vld1q_f32(sums), vld1q_f32(sums + 4));
    const float32x4_t b = vaddq_f32(vld1q_f32(sums + 8), vld1q_f32(sums + 12));
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}

/* Folds the 8 sums of each row. */
static void fold(int64_t rows, const float *sums, float *out) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, sums += 4 * LANES)
        vst1q_f32(out + i, vpaddq_f32(two_rows(sums), two_rows(sums + 2 * LANES)));
    for (; i < rows; i++, sums += LANES)
        out[i] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* Returns the number of rows before the first one with a block that reaches behind `end`; starts count from `values`. */
static int64_t walk_blocks(int64_t rows, const int64_t *starts, int64_t end, const float *values,
                           const int32_t *indices, const float *x, float *out) {
    float sums[ROWS * LANES];
    float32x4_t low = vdupq_n_f32(0), high = low;
    int64_t row = 0, at = starts[0];
    while (row < rows && at + LANES <= end) {
        const int64_t next = starts[row + 1], left = next - at;
        const uint32_t *inside = FIRST_LANES + LANES - hc_min(left, LANES);
        const float32x4_t more_low = vfmaq_f32(low, vld1q_f32(values + at), taken(x, indices + at));
        const float32x4_t more_high = vfmaq_f32(high, vld1q_f32(values + at + 4), taken(x, indices + at + 4));
        low = vbslq_f32(vld1q_u32(inside), more_low, low);
        high = vbslq_f32(vld1q_u32(inside + 4), more_high, high);
        vst1q_f32(sums + row * LANES, low);
        vst1q_f32(sums + row * LANES + 4, high);
        const int64_t is_last = left <= LANES;
        const uint32x4_t goes_on = vdupq_n_u32((uint32_t)is_last - 1);
        low = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(low), goes_on));
        high = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(high), goes_on));
        at = is_last ? next : at + LANES;
        row += is_last;
    }
    fold(row, sums, out);
    return row;
}

void hc_csr_spmv_neon(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices, const float *x,
                      float *out) {
    int64_t i = 0;
    while (i < rows) {
        const int64_t some = hc_min(ROWS, rows - i);
        const bool is_short = starts[i + some] - starts[i] < SHORT * some;
        const int64_t done = is_short ? walk_blocks(some, starts + i, starts[rows], values, indices, x, out + i) : 0;
        hc_csr_walk(some - done, starts + i + done, values, indices, x, out + i + done);
        i += some;
    }
}
