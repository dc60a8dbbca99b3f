/* Rounding whose gradient is wanted: where it passes, levels from a table, trained scales (heterocompute/training).
 *
 *   hc_note        where low T <= w <= high T, T the threshold of the value's group: in C order
 *   hc_pass        a gradient, where it passes
 *   hc_table       numbers among the parameters, to memory
 *   hc_steps       y = s clip(RNE(w / s)), and the slope of y in s, which is above 1/2 in magnitude where w is clipped
 *   hc_slope_sums  the gradient of s: each group's sum in C order, as on the CPU
 */
#include "cuda/training/values.h"

namespace {

/* A scale as the format stores it. */
HC_DEVICE float load_scale(const hc_cuda_scales &scales, int64_t row, int64_t group) {
    const float given = (float)hc_load_double(scales.data + row * scales.row + group * scales.column, scales.dtype);
    return scales.is_half ? hc_f16_to_f32(hc_f32_to_f16(given > 65504.0f ? 65504.0f : given)) : given;
}

} // namespace

HC_KERNEL(hc_note, hc_cuda_note_values, 128) {
    hc_for_each_value(p.chunks, p.geometry, p.x, p.order,
                      [&](const hc_chunk &at, int, int c, const char *from, int64_t index) {
                          const int64_t group = HC_ROW_QUOTIENT(at.first + c, p.geometry.group);
                          const float t = p.thresholds ? p.thresholds[at.row * p.geometry.groups + group] : 1.0f;
                          const float single = hc_load_single(from, p.x.dtype);
                          const bool inside = p.note.low * t <= single && single <= p.note.high * t;
                          if (p.note.kind == HC_NOTE_BYTES) {
                              ((uint8_t *)p.note.to)[index] = inside;
                              return;
                          }
                          if (inside || p.note.kind != HC_NOTE_OCTAV) {
                              ((float *)p.note.to)[index] = inside ? 1.0f : 0.0f;
                              return;
                          }
                          const double value = hc_load_double(from, p.x.dtype);
                          const double bound = (double)(value < 0 ? p.note.low : p.note.high) * (double)t;
                          ((float *)p.note.to)[index] = (float)(bound / value);
                      });
}

HC_KERNEL(hc_pass, hc_cuda_pass, 256) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = p.is_flat ? 0 : i / p.g.run_length;
        const int64_t offset = p.is_flat ? i * p.g.column_stride : hc_rows_offset(&p.g, row, i - row * p.g.run_length);
        const float g = hc_load_single(p.g.data + offset, p.g.dtype);
        if (p.kind == HC_NOTE_NONE || p.kind == HC_NOTE_BYTES) {
            p.y[i] = p.kind == HC_NOTE_NONE || ((const uint8_t *)p.note)[i] ? g : 0.0f;
            continue;
        }
        const float note = ((const float *)p.note)[i];
        p.y[i] = p.kind != HC_NOTE_SLOPES ? g * note : fabsf(note) <= 0.5f ? g : 0.0f;
    }
}

HC_KERNEL(hc_table, hc_cuda_table, HC_CUDA_NUMBERS) {
    if (threadIdx.x < p.n)
        p.to[threadIdx.x] = p.value[threadIdx.x];
}

HC_KERNEL(hc_steps, hc_cuda_steps, 128) {
    hc_for_each_value(p.chunks, p.geometry, p.x, p.order,
                      [&](const hc_chunk &at, int, int c, const char *from, int64_t index) {
                          const float s = load_scale(p.scales, at.row, HC_ROW_QUOTIENT(at.first + c, p.geometry.group));
                          const double value = hc_load_double(from, p.x.dtype), t = value / (double)s, whole = rint(t);
                          const double code = whole < -p.largest ? -p.largest : whole > p.largest ? p.largest : whole;
                          const float y = (float)(code * (double)s);
                          p.slope[index] = (float)(fabs(t) <= p.largest ? code - t : code);
                          const bool is_legal = s > 0 && s <= FLT_MAX && fabsf(y) <= FLT_MAX && fabs(value) <= DBL_MAX;
                          p.y[index] = is_legal ? y : NAN;
                      });
}

/* A warp sums 32 groups: its lanes load 32 values of one group after the other, and each adds those of its own. */
HC_KERNEL(hc_slope_sums, hc_cuda_slope_sums, 32) {
    enum { LANES = HC_WARP };
    double (*tile)[LANES + 1] = (double (*)[LANES + 1]) hc_shared();
    const hc_geometry &g = p.geometry;
    const int lane = (int)threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * LANES, all = g.rows * g.groups;
    double sum = 0;
    int64_t count = 0;
    HC_SHORT_LOOP
    for (int64_t c = 0; c < g.group; c += LANES) {
        HC_SHORT_LOOP
        for (int i = 0; i < LANES && first + i < all; i++) {
            const int64_t row = (first + i) / g.groups;
            const int64_t column = (first + i - row * g.groups) * g.group + c + lane;
            double product = 0;
            if (c + lane < g.group && hc_is_value(p.g, column))
                product = hc_load_double(p.g.data + hc_value_offset(p.g, row, column), p.g.dtype) *
                          (double)p.slope[hc_value_offset(p.order, row, column)];
            tile[i][lane] = product;
        }
        hc_barrier();
        int64_t n = hc_min(LANES, g.group - c);
        if (g.padded != g.columns) /* the last group of a run is shorter */
            n = hc_min(n, g.run_length - (first + lane) % g.groups_per_run * g.group - c);
        if (first + lane < all)
            for (int i = 0; i < n; i++, count++)
                sum += tile[lane][i];
        hc_barrier();
    }
    if (first + lane < all)
        p.to[first + lane] = (float)(sum * (1 / sqrt((double)(count > 1 ? count : 1) * p.largest)));
}
