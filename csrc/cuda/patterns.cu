/* Kernels of N:M patterns, for all formats: decoded values among zeros, and floats times decoded values.
 *
 * Floats times rows of an N:M pattern, many rows of x: one chain of fma over the kept values, ascending, as hc_sgemm has over all.
 *
 * A block has 64 rows of x, two a lane, and 64 rows of w, 8 a warp. A window of whole blocks is in shared memory: columns of x, and
 * kept values with their columns, which all lanes of a warp read at once.
 */
#include "cuda/codec.h"

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

HC_KERNEL(hc_sgemm_kept, hc_cuda_sgemm_kept, 256) {
    enum { X_ROWS = 64, W_ROWS = 64, WINDOW = 32, LD = X_ROWS + 2, EACH = W_ROWS / 8 };
    struct kept_value {
        float value;
        int32_t column; /* of the window; not less than its columns where the last block ends behind the row */
    };
    const hc_cuda_sgemm &g = p.gemm;
    float (*x)[LD] = (float (*)[LD])hc_shared();
    kept_value(*w)[W_ROWS] = (kept_value(*)[W_ROWS])(x + WINDOW);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32, n = p.format.n, m = p.format.m;
    const int64_t x_first = (int64_t)blockIdx.x * X_ROWS, w_first = (int64_t)blockIdx.y * W_ROWS;
    const int blocks = WINDOW / m, window = blocks * m, bits = hc_position_bits(m);
    /* four threads load a row of x, and four a row of w */
    const int of_row = thread % 4, row = thread / 4;
    const char *from = g.x.data + (x_first + row < g.m ? hc_rows_offset(&g.x, x_first + row, 0) : 0);
    const int64_t w_row = hc_min(w_first + row, g.n - 1);
    const float *values = g.w + w_row * p.geometry.columns;
    const uint8_t *metadata = p.metadata.data + w_row * p.metadata.row_stride;
    float sums[EACH][2] = {};
    for (int64_t k = 0; k < g.k; k += window) {
        const int64_t first = k / m * n;
        const int count = (int)hc_min(blocks * n, p.geometry.columns - first), columns = (int)hc_min(window, g.k - k);
        hc_barrier();
        for (int c = of_row; c < window; c += 4)
            x[c][row] = c < columns && x_first + row < g.m
                            ? hc_load_value(from + (k + c) * g.x.column_stride, g.x.dtype)
                            : 0.0f;
        HC_SHORT_LOOP
        for (int t = of_row; t < count; t += 4)
            w[t][row] = {values[first + t], t / n * m + hc_kept_position(metadata, (first + t) * bits, bits, m)};
        hc_barrier();
        HC_SHORT_LOOP
        for (int t = 0; t < count; t++)
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const kept_value one = w[t][warp * EACH + i];
                if (one.column >= columns)
                    continue;
                const float *at = &x[one.column][2 * lane];
                sums[i][0] = fmaf(at[0], one.value, sums[i][0]);
                sums[i][1] = fmaf(at[1], one.value, sums[i][1]);
            }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int64_t y_row = x_first + 2 * lane + j, column = w_first + warp * EACH + i;
            if (y_row < g.m && column < g.n)
                *(float *)(g.y + y_row * g.y_row + column * g.y_column) =
                    g.bias ? sums[i][j] + g.bias[column] : sums[i][j];
        }
}
