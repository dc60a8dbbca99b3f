/* Stored weights times a panel of activations: a weight's row keeps its sums in up to 8 registers, each stored value meets
 * the panel row of its column. */
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { LANES = 4 };

static inline __attribute__((always_inline)) void walk(const int registers, int64_t rows, const int64_t *begin,
                                                       const int64_t *end, const float *values, const int32_t *indices,
                                                       int64_t first, const float *panel, bool accumulate,
                                                       float *tile) {
    for (int64_t i = 0; i < rows; i++, tile += registers * LANES) {
        float32x4_t sum[8];
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            sum[r] = accumulate ? vld1q_f32(tile + r * LANES) : vdupq_n_f32(0);
        for (int64_t t = begin[i], stop = end[i]; t < stop; t++) {
            const float *x = panel + (indices[t] - first) * registers * LANES;
            const float32x4_t w = vdupq_n_f32(values[t]);
#pragma GCC unroll 8
            for (int r = 0; r < registers; r++)
                sum[r] = vfmaq_f32(sum[r], w, vld1q_f32(x + r * LANES));
        }
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            vst1q_f32(tile + r * LANES, sum[r]);
    }
}

void hc_csr_spmm_neon(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,
                      const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,
                      float *tile) {
    if (lanes == 8 * LANES)
        walk(8, rows, begin, end, values, indices, first, panel, accumulate, tile);
    else if (lanes == 4 * LANES)
        walk(4, rows, begin, end, values, indices, first, panel, accumulate, tile);
    else
        walk(2, rows, begin, end, values, indices, first, panel, accumulate, tile);
}
