/* The last operations of the integer matmuls, as on the CPU.
 *
 *   folded    y = float32((float64(s_x) * float64(s_w)) * float64(S))
 *   grouped   acc = fma(float32(s_x s_w), float32(dot), acc), segments ascending
 */
#ifndef HC_CUDA_EPILOGUE_H
#define HC_CUDA_EPILOGUE_H

#include "cuda/codec.h"

namespace {

template <bool is_grouped, typename integer>
static inline HC_DEVICE void store(const hc_cuda_gemm &p, int64_t row, int64_t column, integer dot, float sum) {
    if (row >= p.m || column >= p.n)
        return;
    float y = sum;
    if (!is_grouped)
        y = (float)((double)p.x_scales[row] * (double)p.w_scales[column] * (double)dot);
    else if (y != y)
        y = hc_f32_from_bits(0x7fc00000); /* every NaN is the same one */
    if (p.bias)
        y += p.bias[column];
    *(float *)(p.y + row * p.y_row + column * p.y_column) = y;
}

/* Rows and columns beyond the last, whose sums are not stored, take the scales of the last. */
template <typename integer>
static inline HC_DEVICE void add_segment(const hc_cuda_gemm &p, int64_t row, int64_t column, int64_t segment,
                                         integer dot, float *sum) {
    const float scale = p.x_scales[hc_min(row, p.m - 1) * p.segments + segment] *
                        p.w_scales[hc_min(column, p.n - 1) * p.segments + segment];
    *sum = fmaf(scale, (float)dot, *sum);
}

} // namespace

#endif
