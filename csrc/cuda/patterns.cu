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

HC_KERNEL(hc_expand, hc_cuda_expand, 128) {
    if (p.x.dtype == HC_F64)
        hc_expand_block<double>(p);
    else
        hc_expand_block<float>(p);
}

namespace {

/* As hc_sgemm; an absent value is HC_CUDA_ABSENT. */
struct kept : floats {
    static HC_DEVICE bool is_there(float value) { return hc_f32_bits(value) != HC_CUDA_ABSENT; }
};

} // namespace

HC_KERNEL(hc_sgemm_kept_32, hc_cuda_sgemm, 128) { chains<32, 64, 4, 4, 8, 32, 4, 4, kept>::run(p); }
HC_KERNEL(hc_sgemm_kept_128, hc_cuda_sgemm, 256) { chains<128, 256, 8, 16, 4, 16, 3, 2, kept>::run(p); }
