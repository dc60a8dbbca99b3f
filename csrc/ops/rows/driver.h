/* What the paths of rows share: blocks of rows of x that meet groups of rows of weights, and the tasks of both. */
#ifndef HC_ROWS_DRIVER_H
#define HC_ROWS_DRIVER_H

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/product/product.h"

/* x is brought into the path's order a portion at a time. Blocks of whole units of it, as even as can be, meet weights at
 * once. Tasks share groups of weights, and blocks where groups are few. */
typedef struct {
    int unit, portion, n_threads; /* unit, portion: rows */
    int most_units;               /* of a block */
    int64_t group_rows;           /* of weights */
    int64_t most;                 /* rows at hand, at most */
    int64_t first_row;            /* the rows at hand: */
    int64_t rows, units, n;       /* n: blocks */
    int64_t parts;                /* of the blocks; a group has a task for each */
} hc_row_blocks;

static inline int64_t hc_row_first_unit(const hc_row_blocks *blocks, int64_t block) {
    return blocks->units * block / blocks->n;
}
/* The block of a unit. */
int64_t hc_row_block_of(const hc_row_blocks *blocks, int64_t unit);

/* What a task of `multiply` is: weights from row `first` on, blocks [from, to). */
typedef struct {
    int64_t first, from, to;
} hc_row_task;
hc_row_task hc_row_task_of(const hc_row_blocks *blocks, int64_t task);

/* Threads that have private memory of so many bytes each. */
int hc_row_threads(const hc_run *run, int64_t private_bytes);

/* Rows of weights in a group: at most `rows`, a multiple of `step`, and few enough for all threads to have some. */
int64_t hc_row_group(const hc_run *run, int64_t weights, int64_t rows, int64_t step);

/* All rows of x: pack(job, portion, thread) for each portion at hand, then multiply(job, task, thread). */
void hc_row_walk(hc_row_blocks *blocks, const hc_product *product, hc_task *pack, hc_task *multiply, void *job);

#endif
