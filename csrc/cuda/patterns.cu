/* Kernels of N:M patterns, for all formats: decoded values among zeros, and floats times decoded values.
 *
 * Floats times rows of an N:M pattern, many rows of x: one chain of fma over the kept values, ascending, as hc_sgemm has over all.
 *
 * A block has 32 rows of x, one a lane, and 64 rows of w, 8 a warp. A window of whole blocks of x, (column, row of x), is in shared memory; a
 * kept value and its position are the same for all lanes of a warp.
 */
#include "cuda/codec.h"

/* A thread takes a block: n values to m columns, zeros between them. */
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
            *(type *)(to + column * p.x.column_stride) = 0;
        if (column == at && column < end)
            *(type *)(to + column++ * p.x.column_stride) = values[i];
    }
    HC_SHORT_LOOP
    for (; column < end; column++)
        *(type *)(to + column * p.x.column_stride) = 0;
}

HC_KERNEL(hc_expand, hc_cuda_expand, 128) {
    if (p.x.dtype == HC_F64)
        hc_expand_block<double>(p);
    else
        hc_expand_block<float>(p);
}

HC_KERNEL(hc_sgemm_kept, hc_cuda_sgemm_kept, 256) {
    enum { X_ROWS = 32, W_ROWS = 64, WINDOW = 64, LD = X_ROWS + 1, EACH = W_ROWS / 8 };
    const hc_cuda_sgemm &g = p.gemm;
    float (*x)[LD] = (float (*)[LD])hc_shared();
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32, n = p.format.n, m = p.format.m;
    const int64_t x_first = (int64_t)blockIdx.x * X_ROWS, w_first = (int64_t)blockIdx.y * W_ROWS + warp * EACH;
    const int blocks = WINDOW / m, window = blocks * m, bits = hc_position_bits(m);
    float sums[EACH] = {};
    for (int64_t k = 0; k < g.k; k += window) {
        hc_barrier();
        for (int i = thread; i < X_ROWS * window; i += 256) {
            const int64_t at = k + i % window, row = x_first + i / window;
            x[i % window][i / window] =
                at < g.k && row < g.m ? hc_load_value(g.x.data + hc_rows_offset(&g.x, row, at), g.x.dtype) : 0.0f;
        }
        hc_barrier();
        const int64_t first = k / m * n;
        const int count = (int)hc_min(blocks * n, p.geometry.columns - first), columns = (int)hc_min(window, g.k - k);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t row = w_first + i;
            if (row >= g.n)
                continue;
            const float *w = g.w + row * p.geometry.columns + first;
            const uint8_t *metadata = p.metadata.data + row * p.metadata.row_stride;
            float sum = sums[i];
            for (int t = 0; t < count; t++) {
                const int at = t / n * m + hc_kept_position(metadata, (first + t) * bits, bits, m);
                if (at < columns) /* the last block may end behind the row */
                    sum = fmaf(x[at][lane], w[t], sum);
            }
            sums[i] = sum;
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t row = x_first + lane, column = w_first + i;
        if (row >= g.m || column >= g.n)
            continue;
        *(float *)(g.y + row * g.y_row + column * g.y_column) = g.bias ? sums[i] + g.bias[column] : sums[i];
    }
}
