/* Shared by the paths of rows: blocks of rows of x, groups of rows of weights, and the tasks that multiply them. */
#ifndef HC_ROWS_DRIVER_H
#define HC_ROWS_DRIVER_H

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/product/product.h"

/* x is converted to the path's order one portion at a time. A block consists of whole units of the portion, all blocks
 * are about equally long, and each is multiplied at once. Tasks share groups of weights, and blocks if there are few
 * groups. */
typedef struct {
    int unit, portion, n_threads; /* unit, portion: rows */
    int most_units;               /* of a block */
    int64_t group_rows;           /* of weights */
    int64_t most;                 /* rows at hand, at most */
    int64_t first_row;            /* the rows at hand: */
    int64_t rows, units, n;       /* n: blocks */
    int64_t parts;                /* number of parts of the blocks; a group has one task per part */
} hc_row_blocks;

static inline int64_t hc_row_first_unit(const hc_row_blocks *blocks, int64_t block) {
    return blocks->units * block / blocks->n;
}
/* The block of a unit: the last one whose first unit is not after it. */
static inline int64_t hc_row_block_of(const hc_row_blocks *blocks, int64_t unit) {
    return ((unit + 1) * blocks->n - 1) / blocks->units;
}

/* A task of `multiply`: weights from row `first` on, blocks [from, to). */
typedef struct {
    int64_t first, from, to;
} hc_row_task;
hc_row_task hc_row_task_of(const hc_row_blocks *blocks, int64_t task);

/* Number of threads if each has private_bytes of private memory. */
int hc_row_threads(const hc_run *run, int64_t private_bytes);

/* Rows of weights in a group: at most `rows`, a multiple of `step`, and few enough that every thread has a group. */
int64_t hc_row_group(const hc_run *run, int64_t weights, int64_t rows, int64_t step);

/* Walks all rows of x: pack(job, portion, thread) for each portion, then multiply(job, task, thread). */
void hc_row_walk(hc_row_blocks *blocks, const hc_product *product, hc_task *pack, hc_task *multiply, void *job);

#endif
