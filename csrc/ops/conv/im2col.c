/* Convolution as the textbook's matmul, "im2col": windows are stored as rows, a block of them at a time, and
 * multiplied by the filters. It is here for comparison: it has the bits of `implicit`, which stores no windows.
 *
 * Memory: BLOCK_BYTES of windows, at least one row of them, and the drivers' bound.
 */
#include "base/threads.h"
#include "ops/conv/windows.h"
#include "ops/product/plan.h"

enum { BLOCK_BYTES = 16 << 20, TASK_ROWS = 64 };

typedef struct {
    const hc_convolution *conv;
    int64_t group, first, rows, columns;
    float *windows;
} hc_block;

static int64_t columns_of(const hc_convolution *conv) {
    return conv->shape.r * conv->shape.s * conv->shape.group_channels;
}

static int64_t rows_at_once(const hc_convolution *conv) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t fit = BLOCK_BYTES / (columns_of(conv) * (int64_t)sizeof(float));
    return hc_max(1, hc_min(fit, s->n * s->out_height * s->out_width));
}

const char *hc_conv_im2col_refuses(const hc_convolution *conv) {
    return columns_of(conv) == 0 ? "there is nothing to sum" : NULL;
}

hc_conv_work hc_conv_im2col_work(const hc_convolution *conv) {
    hc_conv_work work = hc_window_work(conv);
    work.moved = hc_conv_moved(conv);
    work.bytes += rows_at_once(conv) * columns_of(conv) * (int64_t)sizeof(float);
    return work;
}

static void store_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_block *b = context;
    const int64_t row = task * TASK_ROWS;
    hc_window_rows(b->conv, b->group, b->first + row, hc_min(TASK_ROWS, b->rows - row), b->windows + row * b->columns);
}

static hc_status multiply(const hc_block *b, hc_error *error) {
    const hc_convolution *conv = b->conv;
    const hc_conv_shape *s = &conv->shape;
    const int64_t filters = s->filters / conv->window->groups, size = sizeof(float);
    const hc_dense_context windows = {.rows = {.data = (char *)b->windows,
                                               .n_dims = 1,
                                               .shape = {b->rows},
                                               .stride = {b->columns * size},
                                               .rows = b->rows},
                                      .dtype = HC_F32,
                                      .n_column_dims = 1,
                                      .column_shape = {b->columns},
                                      .column_stride = {size}};
    hc_source a;
    hc_dense_source(&a, &windows);
    hc_filters context;
    const hc_source w = hc_filter_source(conv, b->group * filters, filters, &context);
    hc_product product = {.run = conv->run,
                          .order = HC_ORDER_CHAIN,
                          .x = &a,
                          .w = &w,
                          .out = hc_answer_rows(conv->out, s, 0, s->n, b->group * filters)};
    product.out.first = b->first;
    product.out.rows = b->rows;
    return hc_multiply(&product, error);
}

hc_status hc_conv_im2col_run(const hc_convolution *conv, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t all = s->n * s->out_height * s->out_width, at_once = rows_at_once(conv);
    hc_block b = {.conv = conv, .columns = columns_of(conv)};
    b.windows = hc_alloc_aligned(at_once * b.columns * (int64_t)sizeof(float));
    if (!b.windows)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for windows");
    hc_status status = HC_OK;
    for (b.group = 0; b.group < conv->window->groups; b.group++)
        for (b.first = 0; status == HC_OK && b.first < all; b.first += at_once) {
            b.rows = hc_min(at_once, all - b.first);
            hc_parallel(conv->run->n_threads, hc_ceil_div(b.rows, TASK_ROWS), store_task, &b);
            status = multiply(&b, error);
        }
    hc_free_aligned(b.windows);
    return status;
}
