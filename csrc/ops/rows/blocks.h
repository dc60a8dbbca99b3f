/* Rows of x side by side in lanes: what the paths share that pack them so. */
#ifndef HC_ROWS_BLOCKS_H
#define HC_ROWS_BLOCKS_H

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/product/product.h"

/* Units of rows of x are packed at once, and blocks of at most HC_LANES_X units meet weights at once. Tasks share groups of
 * weights, and blocks where groups are few. */
typedef struct {
    int unit, n_threads;    /* unit: rows */
    int64_t most;           /* rows at hand at most, a multiple of a block's */
    int64_t first_row;      /* the rows at hand: */
    int64_t rows, units, n; /* n: blocks */
    int64_t parts;          /* of the blocks; a group has a task for each */
} hc_lanes_blocks;

static inline int64_t hc_lanes_first_unit(const hc_lanes_blocks *blocks, int64_t block) {
    return blocks->units * block / blocks->n;
}
int64_t hc_lanes_block_of(const hc_lanes_blocks *blocks, int64_t unit);

/* All of `rows` rows of x: pack(job, unit, thread) for each unit at hand, then multiply(job, group * parts + part, thread). */
void hc_lanes_walk(hc_lanes_blocks *blocks, int64_t rows, int64_t groups, hc_task *pack, hc_task *multiply, void *job);

/* Rows [row, row + rows) of `out`, from `column` on, from values (columns, ld) that lie transposed. */
void hc_lanes_store(hc_pack_x32_fn *transpose, const hc_rows *out, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t ld, const float *values);

#endif
