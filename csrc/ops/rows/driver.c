/* Blocks of rows of x and groups of weights: the units of each block, the tasks, and the loop over all of them. */
#include "ops/rows/driver.h"

hc_row_task hc_row_task_of(const hc_row_blocks *blocks, int64_t task) {
    const int64_t part = task % blocks->parts;
    return (hc_row_task){.first = task / blocks->parts * blocks->group_rows,
                         .from = blocks->n * part / blocks->parts,
                         .to = blocks->n * (part + 1) / blocks->parts};
}

int hc_row_threads(const hc_run *run, int64_t private_bytes) {
    return (int)hc_max(hc_min(run->n_threads, HC_WORK_BYTES / private_bytes), 1);
}

int64_t hc_row_group(const hc_run *run, int64_t weights, int64_t rows, int64_t step) {
    if (run->n_threads > 1)
        rows = hc_min(rows, hc_ceil_div(weights, 2 * run->n_threads));
    return hc_max(rows / step, 1) * step;
}

void hc_row_walk(hc_row_blocks *blocks, const hc_product *product, hc_task *pack, hc_task *multiply, void *job) {
    const int n_threads = blocks->n_threads;
    const int64_t groups = hc_ceil_div(product->w->rows, blocks->group_rows);
    for (int64_t first = 0; first < product->x->rows; first += blocks->most) {
        blocks->first_row = first;
        blocks->rows = hc_min(blocks->most, product->x->rows - first);
        blocks->units = hc_ceil_div(blocks->rows, blocks->unit);
        blocks->n = hc_ceil_div(blocks->units, blocks->most_units);
        blocks->parts = groups >= 2 * n_threads ? 1 : hc_ceil_div(2 * n_threads, groups);
        blocks->parts = n_threads == 1 ? 1 : hc_min(blocks->parts, blocks->n);
        hc_parallel(n_threads, hc_ceil_div(blocks->rows, blocks->portion), pack, job);
        hc_parallel(n_threads, groups * blocks->parts, multiply, job);
    }
}
