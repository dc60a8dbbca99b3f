/* Blocks of rows of x side by side in lanes: which unit lies where, what tasks there are, and the way into `out`. */
#include "ops/rows/blocks.h"

#include <string.h>

enum { STORED = 8, UNIT = 16 };

int64_t hc_lanes_block_of(const hc_lanes_blocks *blocks, int64_t unit) {
    int64_t block = 0;
    while (hc_lanes_first_unit(blocks, block + 1) <= unit)
        block++;
    return block;
}

void hc_lanes_walk(hc_lanes_blocks *blocks, int64_t rows, int64_t groups, hc_task *pack, hc_task *multiply, void *job) {
    const int n_threads = blocks->n_threads;
    for (int64_t first = 0; first < rows; first += blocks->most) {
        blocks->first_row = first;
        blocks->rows = hc_min(blocks->most, rows - first);
        blocks->units = hc_ceil_div(blocks->rows, blocks->unit);
        blocks->n = hc_ceil_div(blocks->units, HC_LANES_X);
        blocks->parts = groups >= 2 * n_threads ? 1 : hc_ceil_div(2 * n_threads, groups);
        blocks->parts = n_threads == 1 ? 1 : hc_min(blocks->parts, blocks->n);
        hc_parallel(n_threads, blocks->units, pack, job);
        hc_parallel(n_threads, groups * blocks->parts, multiply, job);
    }
}

/* STORED rows of `out` at once: their lines, often in one set of L1, stay there until they are whole. */
void hc_lanes_store(hc_pack_x32_fn *transpose, const hc_rows *out, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t ld, const float *values) {
    const int64_t step = out->n_dims ? out->stride[0] : 0;
    if (out->n_dims <= 1 && out->column_stride == sizeof(float) && step >= 0 && step % 4 == 0 &&
        step / 4 <= INT32_MAX) {
        for (int64_t i = 0; i < rows; i += STORED) {
            char *to = hc_row(out, row + i) + column * 4;
            for (int64_t j = 0; j < columns; j += UNIT)
                transpose(values + j * ld + i, ld * 4, (int)hc_min(UNIT, columns - j), hc_min(STORED, rows - i),
                          to + j * 4, (int)(step / 4), 0);
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        char *to = hc_row(out, row + i) + column * out->column_stride;
        for (int64_t j = 0; j < columns; j++, to += out->column_stride)
            memcpy(to, values + j * ld + i, sizeof(float));
    }
}
