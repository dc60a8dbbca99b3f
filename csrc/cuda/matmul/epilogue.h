/* The last operations of the integer matmuls, as on the CPU.
 *
 *   folded    y = float32((float64(s_x) * float64(s_w)) * float64(S))
 *   grouped   acc = fma(float32(s_x s_w), float32(dot), acc), segments ascending
 */
#ifndef HC_CUDA_EPILOGUE_H
#define HC_CUDA_EPILOGUE_H

#include "cuda/codec.h"

namespace {

/* Scales of a segment; a folded row has one. Rows and columns beyond the last, whose sums are not stored, take those of the last. */
template <typename params> static inline HC_DEVICE float x_scale(const params &p, int64_t row, int64_t segment) {
    return p.x_scales[hc_min(row, p.m - 1) * p.segments + segment];
}
static inline HC_DEVICE float w_scale(const hc_cuda_gemm &p, int64_t column, int64_t segment) {
    return p.w_scales[hc_min(column, p.n - 1) * p.segments + segment];
}
static inline HC_DEVICE float w_scale(const hc_cuda_gemm_s4 &p, int64_t column, int64_t segment) {
    return ((const float *)(p.w_scales + hc_min(column, p.n - 1) * p.w_scales_stride))[segment];
}

/* Scales of the segments of a row of w. */
static inline HC_DEVICE const float *w_scales_of(const hc_cuda_gemm &p, int64_t column) {
    return p.w_scales + column * p.segments;
}
static inline HC_DEVICE const float *w_scales_of(const hc_cuda_gemm_s4 &p, int64_t column) {
    return (const float *)(p.w_scales + column * p.w_scales_stride);
}
/* An integer as double. Devices convert 32 bits at a quarter of the rate of this sum: the bits are those of 2^52 + 2^31 + dot. */
static inline HC_DEVICE double as_double(int32_t dot) {
    const uint64_t bits = (uint64_t)0x43300000 << 32 | ((uint32_t)dot ^ 0x80000000u);
    double sum;
    memcpy(&sum, &bits, sizeof sum);
    return sum - 4503601774854144.0;
}
static inline HC_DEVICE double as_double(int64_t dot) { return (double)dot; }

/* scale: of a folded row and column, whose product is exact. */
template <bool is_grouped, typename integer>
static inline HC_DEVICE float finished(double scale, integer dot, float sum) {
    if (!is_grouped)
        return (float)(scale * as_double(dot));
    return sum != sum ? hc_f32_from_bits(0x7fc00000) : sum; /* every NaN is the same one */
}

/* The scale of a folded row of w, which is there. */
static inline HC_DEVICE float folded_scale(const hc_cuda_gemm &p, int64_t column) { return p.w_scales[column]; }
static inline HC_DEVICE float folded_scale(const hc_cuda_gemm_s4 &p, int64_t column) {
    return *(const float *)(p.w_scales + column * p.w_scales_stride);
}

/* A row of y, of which a thread stores several columns: what they share is computed once. */
template <typename params> struct line_of {
    const params &p;
    const bool is_valid;
    const float scale; /* of a folded row */
    char *const y;

    HC_DEVICE line_of(const params &given, int64_t row)
        : p(given), is_valid(row < p.m), scale(::x_scale(p, row, 0)), y(p.y + row * p.y_row) {}
    template <bool is_grouped, typename integer> HC_DEVICE void store(int64_t column, integer dot, float sum) const {
        if (is_valid && column < p.n)
            put(column,
                finished<is_grouped>(is_grouped ? 0 : (double)scale * (double)folded_scale(p, column), dot, sum));
    }
    /* A finished sum of a row and a column that are there. */
    HC_DEVICE void put(int64_t column, float value) const {
        if (p.bias)
            value += p.bias[column];
        *(float *)(y + column * p.y_column) = value;
    }
};

template <bool is_grouped, typename params, typename integer>
static inline HC_DEVICE void store(const params &p, int64_t row, int64_t column, integer dot, float sum) {
    line_of<params>(p, row).template store<is_grouped>(column, dot, sum);
}

template <typename params, typename integer>
static inline HC_DEVICE void add_segment(const params &p, int64_t row, int64_t column, int64_t segment, integer dot,
                                         float *sum) {
    *sum = fmaf(x_scale(p, row, segment) * w_scale(p, column, segment), (float)dot, *sum);
}

} // namespace

#endif
