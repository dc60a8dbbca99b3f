/* Kernels of N:M patterns, for all formats: decoded values among zeros, and floats times decoded values.
 *
 * Floats times rows of an N:M pattern: the values become whole rows, and a chain of fma skips those that are absent.
 */
#include "cuda/matmul/floats.h"

/* A thread takes a block: n values to m columns, zeros between them, or other numbers. */
template <typename type> static inline HC_DEVICE void hc_expand_block(const hc_cuda_expand &p) {
    const hc_geometry &g = p.geometry;
    const int n = p.format.n, m = p.format.m;
    const int64_t blocks = g.run_length / n, item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = item / (blocks * g.runs), run = item / blocks % g.runs, block = item % blocks;
    if (row >= g.rows)
        return;
    const type *values = (const type *)p.values + row * g.columns + run * g.run_length + block * n;
    char *to = p.x.data + hc_rows_offset(&p.x, row, run * g.whole_length); /* the view may have joined the runs */
    const int64_t end = hc_min((block + 1) * m, g.whole_length);
    int64_t column = block * m;
    HC_SHORT_LOOP
    for (int i = 0; i < n; i++) {
        const int64_t at = hc_kept_column(p.format, g, p.metadata, row, run, block * n + i);
        HC_SHORT_LOOP
        for (; column < hc_min(at, end); column++)
            *(type *)(to + column * p.x.column_stride) = (type)p.between;
        if (column == at && column < end)
            *(type *)(to + column++ * p.x.column_stride) = values[i];
    }
    HC_SHORT_LOOP
    for (; column < end; column++)
        *(type *)(to + column * p.x.column_stride) = (type)p.between;
}

/* The same of blocks of four columns, which lie on 16 bytes. */
static inline HC_DEVICE void hc_expand_fours(const hc_cuda_expand &p) {
    const uint32_t blocks = (uint32_t)p.geometry.run_length / (uint32_t)p.format.n;
    const uint32_t item = blockIdx.x * blockDim.x + threadIdx.x, row = item / blocks, block = item - row * blocks;
    if (row >= (uint32_t)p.geometry.rows)
        return;
    const float *values = (const float *)p.values + row * p.geometry.columns + block * (int64_t)p.format.n;
    const uint8_t *metadata = p.metadata.data + row * p.metadata.row_stride;
    alignas(16) float four[4] = {p.between, p.between, p.between, p.between};
    int next = 0;
    HC_SHORT_LOOP
    for (int i = 0; i < p.format.n; i++) {
        const int at = hc_kept_position(metadata, (block * (int64_t)p.format.n + i) * 2, 2, 4);
        const float value = values[i];
#pragma unroll
        for (int c = 0; c < 4; c++)
            four[c] = c == at && c >= next ? value : four[c];
        next = at < next ? next : at + 1;
    }
    hc_store_16(p.x.data + hc_dims_offset(&p.x.rows, row) + block * 16, four);
}

HC_KERNEL(hc_expand, hc_cuda_expand, 128) {
    if (p.has_fours)
        hc_expand_fours(p);
    else if (p.x.dtype == HC_F64)
        hc_expand_block<double>(p);
    else
        hc_expand_block<float>(p);
}

namespace {

/* As hc_sgemm; an absent value is HC_CUDA_ABSENT. */
struct kept : floats {
    static HC_DEVICE bool is_valid(float value) { return hc_f32_bits(value) != HC_CUDA_ABSENT; }
};

} // namespace

HC_KERNEL(hc_sgemm_kept_32, hc_cuda_sgemm, 128) { chains<32, 64, 4, 4, 8, 32, 4, 2, kept>::run(p); }
HC_KERNEL(hc_sgemm_kept_128, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 4, 16, 4, 2, kept>::run(p); }
