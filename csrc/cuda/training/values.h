/* Values of a block's chunks with their indices in C order, for kernels of training. */
#ifndef HC_CUDA_TRAINING_VALUES_H
#define HC_CUDA_TRAINING_VALUES_H

#include "cuda/codec.h"

/* Offset of a padded column from the start of its row. Rows of one run, as most are, need no division. */
static inline HC_DEVICE int64_t hc_column_offset(const hc_row_view &view, int64_t column) {
    if (view.runs.n == 0)
        return column * view.column_stride;
    const int64_t run = HC_ROW_QUOTIENT(column, view.padded_run);
    return hc_dims_offset(&view.runs, run) + (column - run * view.padded_run) * view.column_stride;
}

static inline HC_DEVICE int64_t hc_value_offset(const hc_row_view &view, int64_t row, int64_t column) {
    return hc_dims_offset(&view.rows, row) + hc_column_offset(view, column);
}

/* False for what pads a run. */
static inline HC_DEVICE bool hc_is_value(const hc_row_view &view, int64_t column) {
    const int64_t run = view.runs.n == 0 ? 0 : HC_ROW_QUOTIENT(column, view.padded_run);
    return column - run * view.padded_run < view.run_length;
}

static inline HC_DEVICE double hc_load_double(const char *from, int dtype) {
    return dtype == HC_F64 ? *(const double *)from : (double)hc_load_value(from, dtype);
}

static inline HC_DEVICE float hc_load_single(const char *from, int dtype) {
    return dtype == HC_F64 ? (float)*(const double *)from : hc_load_value(from, dtype);
}

/* Calls visit(chunk, its slot, column of the chunk, address, index in C order) for the values of the block's chunks, neighbouring
 * threads for neighbouring values. The offsets of `order` are indices. */
template <typename visitor>
static inline HC_DEVICE void hc_for_each_value(const hc_cuda_chunks &chunks, const hc_geometry &geometry,
                                               const hc_row_view &view, const hc_row_view &order, visitor visit) {
    const int team = hc_team();
    for (int slot = (int)threadIdx.x / team; slot < chunks.threads; slot += (int)blockDim.x / team) {
        const hc_chunk at = hc_chunk_of(chunks, geometry, slot);
        if (at.columns == 0)
            break;
        const char *from = view.data + hc_dims_offset(&view.rows, at.row);
        const int64_t first = hc_dims_offset(&order.rows, at.row);
        HC_SHORT_LOOP
        for (int c = (int)threadIdx.x % team; c < at.columns; c += team)
            if (hc_is_value(view, at.first + c))
                visit(at, slot, c, from + hc_column_offset(view, at.first + c),
                      first + hc_column_offset(order, at.first + c));
    }
}

#endif
