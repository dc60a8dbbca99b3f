/* Windows of floats, filters and outputs as rows; windows.h. */
#include "ops/conv/windows.h"

#include "ops/product/plan.h"

#include <string.h>

hc_rows hc_answer_rows(const hc_view *out, const hc_conv_shape *s, int64_t first_image, int64_t images,
                       int64_t first_filter) {
    return (hc_rows){.data = (char *)out->data + first_image * out->strides[0] + first_filter * out->strides[1],
                     .n_dims = 3,
                     .shape = {images, s->out_height, s->out_width},
                     .stride = {out->strides[0], out->strides[2], out->strides[3]},
                     .rows = images * s->out_height * s->out_width,
                     .column_stride = out->strides[1]};
}

hc_source hc_filter_source(const hc_convolution *conv, int64_t first, int64_t filters, hc_filters *context) {
    const hc_operand *w = conv->w;
    const hc_conv_shape *s = &conv->shape;
    hc_source source;
    if (w->packed) {
        context->packed =
            (hc_packed_context){conv->run, &w->packed->format, &s->geometry, &w->packed->components, first};
        hc_packed_source(&source, &context->packed, filters);
        if (filters == s->filters)
            source.prepacked = w->packed->prepacked;
    } else {
        const hc_view *v = w->dense;
        context->dense = (hc_dense_context){.rows = {.data = (char *)v->data + first * v->strides[0],
                                                     .n_dims = 1,
                                                     .shape = {filters},
                                                     .stride = {v->strides[0]},
                                                     .rows = filters},
                                            .dtype = v->dtype,
                                            .n_column_dims = 3,
                                            .column_shape = {s->r, s->s, s->group_channels},
                                            .column_stride = {v->strides[2], v->strides[3], v->strides[1]}};
        if (s->group_channels == 1 && v->strides[2] == s->s * v->strides[3]) { /* turned filters are one run as well */
            const int64_t shape[3] = {1, 1, s->r * s->s}, stride[3] = {0, 0, v->strides[3]};
            memcpy(context->dense.column_shape, shape, sizeof shape);
            memcpy(context->dense.column_stride, stride, sizeof stride);
        }
        hc_dense_source(&source, &context->dense);
    }
    return source;
}

/* The windows of one group of channels, which begins at x. */
typedef struct {
    const hc_convolution *conv;
    hc_view x;
} hc_group_windows;

static hc_group_windows group_of(const hc_convolution *conv, int64_t group, int64_t group_step) {
    hc_group_windows windows = {conv, *conv->x};
    windows.x.data = (char *)windows.x.data + group * group_step;
    return windows;
}

static void window_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column,
                          int64_t columns, float *values, int64_t ld) {
    const hc_group_windows *c = source->context;
    const int64_t length = c->conv->shape.group_channels, *strides = c->x.strides;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = hc_corner_of(c->conv, first_row + r);
        float *row = values + r * ld;
        for (int64_t done = 0; done < columns;) {
            const int64_t run = (first_column + done) / length, inside = (first_column + done) % length;
            const int64_t count = hc_min(length - inside, columns - done);
            int64_t h, w;
            if (hc_tap_pixel(c->conv, &corner, run, &h, &w)) {
                const char *data = (const char *)c->x.data + corner.image * strides[0] + inside * strides[1] +
                                   h * strides[2] + w * strides[3];
                hc_read_floats(data, c->x.dtype, strides[1], count, row + done);
            } else {
                memset(row + done, 0, (size_t)count * sizeof *row);
            }
            done += count;
        }
    }
}

hc_source hc_window_source(const hc_convolution *conv, int64_t images) {
    const hc_conv_shape *s = &conv->shape;
    return (hc_source){.rows = images * s->out_height * s->out_width,
                       .columns = s->r * s->s * s->group_channels,
                       .runs = s->r * s->s,
                       .run_length = s->group_channels};
}

static hc_source float_source(const hc_group_windows *windows) {
    hc_source source = hc_window_source(windows->conv, windows->conv->shape.n);
    source.floats = window_floats;
    source.context = windows;
    return source;
}

void hc_window_rows(const hc_convolution *conv, int64_t group, int64_t first, int64_t rows, float *values) {
    const hc_group_windows windows = group_of(conv, group, conv->shape.group_channels * conv->x->strides[1]);
    const hc_source source = float_source(&windows);
    source.floats(&source, first, rows, 0, source.columns, values, source.columns);
}

hc_status hc_multiply_windows(const hc_convolution *conv, int64_t group_step, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t filters = s->filters / conv->window->groups;
    hc_status status = HC_OK;
    for (int64_t g = 0; status == HC_OK && g < conv->window->groups; g++) {
        hc_filters context;
        const hc_source w = hc_filter_source(conv, g * filters, filters, &context);
        const hc_group_windows windows = group_of(conv, g, group_step);
        const hc_source x = float_source(&windows);
        const hc_product product = {.run = conv->run,
                                    .order = HC_ORDER_CHAIN,
                                    .x = &x,
                                    .w = &w,
                                    .out = hc_answer_rows(conv->out, s, 0, s->n, g * filters)};
        status = hc_multiply(&product, error);
    }
    return status;
}

hc_conv_work hc_window_work(const hc_convolution *conv) {
    enum { LANES = 16 /* filters that take as long as one */, DRIVERS_BYTES = 64 << 20 };
    const hc_conv_shape *s = &conv->shape;
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    const double values = answers * (double)(s->r * s->s * s->group_channels) * (double)conv->window->groups;
    const int64_t filled = hc_round_up(s->filters / conv->window->groups, LANES);
    return (hc_conv_work){.products = values * (double)filled, .values = values, .bytes = DRIVERS_BYTES};
}
