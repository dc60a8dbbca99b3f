/* Convolution as a product, "implicit": a row of the left side is the window under one answer pixel, columns r, s, c ascending; a
 * row of the right side is a filter. The windows are gathered while panels are packed, never stored whole.
 *
 * Memory: the drivers' bound, and for activations= the codes of IMAGE_BYTES worth of images (one image at least).
 */
#include "ops/conv/rounded.h"
#include "ops/product/plan.h"

#include <string.h>

enum { IMAGE_BYTES = 8 << 20 };

/* The windows of one convolution group over images [first, first + n). Row: ((image * P) + p) * Q + q. */
typedef struct {
    const hc_conv_shape *shape;
    const hc_window *window;
    int64_t group; /* of the convolution */
    hc_view x;     /* floats: (image, channel, h, w) */
    /* integers: limbs of the images as (image, group, h, w, channel), and their scales */
    int8_t *limb[3];
    float *group_scale, *row_scale;
    int64_t image_columns, image_groups, pixel_groups, group_size;
} hc_window_context;

typedef struct {
    int64_t image, h, w; /* of the window's first tap, may lie outside */
} hc_corner;

static hc_corner corner_of(const hc_window_context *c, int64_t row) {
    const hc_conv_shape *s = c->shape;
    hc_corner corner;
    corner.w = row % s->out_width * c->window->stride[1] - c->window->pad_before[1];
    row /= s->out_width;
    corner.h = row % s->out_height * c->window->stride[0] - c->window->pad_before[0];
    corner.image = row / s->out_height;
    return corner;
}

/* The pixel under tap `run` (r * S + s); false outside the image, where everything is 0. */
static bool pixel_of(const hc_window_context *c, const hc_corner *corner, int64_t run, int64_t *h, int64_t *w) {
    *h = corner->h + run / c->shape->s * c->window->dilation[0];
    *w = corner->w + run % c->shape->s * c->window->dilation[1];
    return *h >= 0 && *h < c->shape->height && *w >= 0 && *w < c->shape->width;
}

static void window_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column,
                          int64_t columns, float *values, int64_t ld) {
    const hc_window_context *c = source->context;
    const int64_t length = c->shape->group_channels;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = corner_of(c, first_row + r);
        float *row = values + r * ld;
        for (int64_t done = 0; done < columns;) {
            const int64_t run = (first_column + done) / length, inside = (first_column + done) % length;
            const int64_t count = hc_min(length - inside, columns - done);
            int64_t h, w;
            if (pixel_of(c, &corner, run, &h, &w)) {
                const int64_t *strides = c->x.strides;
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

static void window_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_window_context *c = source->context;
    const int64_t length = c->shape->group_channels;
    const int n_limbs = source->form[mode].n_limbs;
    for (int64_t r = 0; r < rows; r++) {
        const hc_corner corner = corner_of(c, first_row + r);
        if (mode == HC_INT_FOLDED)
            out->row_scale[r] = c->row_scale[corner.image];
        else if (c->group_size == 0)
            out->group_scale[r * out->groups_ld] = c->group_scale[corner.image];
        int64_t group = 0;
        for (int64_t done = 0; done < columns;) {
            const int64_t run = (first_column + done) / length, inside = (first_column + done) % length;
            const int64_t count = hc_min(length - inside, columns - done);
            int64_t h, w;
            const bool in = pixel_of(c, &corner, run, &h, &w);
            const int64_t pixel = in ? (c->group * c->shape->height + h) * c->shape->width + w : 0;
            for (int i = 0; i < n_limbs; i++) {
                int8_t *to = out->limb[i] + r * out->ld + done;
                if (in)
                    memcpy(to, c->limb[i] + corner.image * c->image_columns + pixel * length + inside, (size_t)count);
                else
                    memset(to, 0, (size_t)count);
            }
            if (mode == HC_INT_GROUPED && c->group_size > 0) {
                const int64_t first = inside / c->group_size, last = (inside + count - 1) / c->group_size;
                float *to = out->group_scale + r * out->groups_ld + group;
                const float *from = c->group_scale + corner.image * c->image_groups + pixel * c->pixel_groups + first;
                for (int64_t g = first; g <= last; g++)
                    to[g - first] = in ? from[g - first] : 0.0f;
                group += last - first + 1;
            }
            done += count;
        }
    }
}

static hc_source window_source(const hc_window_context *context, int64_t images) {
    const hc_conv_shape *s = context->shape;
    return (hc_source){.rows = images * s->out_height * s->out_width,
                       .columns = s->r * s->s * s->group_channels,
                       .floats = window_floats,
                       .runs = s->r * s->s,
                       .run_length = s->group_channels,
                       .context = context};
}

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
        hc_dense_source(&source, &context->dense);
    }
    return source;
}

/* The view of one convolution group of floats (image, channel, h, w). */
static hc_view group_view(const hc_view *x, int64_t group, int64_t group_channels) {
    hc_view view = *x;
    view.data = (char *)x->data + group * group_channels * x->strides[1];
    return view;
}

/* Codes of some images, and what was made of them: integers and their scales, or floats. */
typedef struct {
    hc_components codes;
    int8_t *limbs;
    float *scales, *values;
} hc_image_buffers;

static void free_images(hc_image_buffers *buffers) {
    hc_components_free(&buffers->codes);
    hc_free_aligned(buffers->limbs);
    hc_free_aligned(buffers->scales);
    hc_free_aligned(buffers->values);
}

/* Decoded images (image, group, h, w, channel) of one convolution group. */
static hc_view decoded_view(float *values, int64_t image_columns, int64_t group, const hc_conv_shape *s) {
    const int64_t size = sizeof *values, pixel = s->group_channels * size;
    return (hc_view){.data = values + group * s->height * s->width * s->group_channels,
                     .dtype = HC_F32,
                     .ndim = 4,
                     .strides = {image_columns * size, size, s->width * pixel, pixel}};
}

/* Quantizes x image by image (a row is an image: group, h, w, c) and multiplies integers, or decoded values where the
 * formats have no integers in common. */
static hc_status quantized_conv(const hc_convolution *conv, hc_error *error) {
    const hc_run *run = conv->run;
    const hc_view *x = conv->x, *out = conv->out;
    const hc_operand *w = conv->w;
    const hc_window *window = conv->window;
    const hc_format *activations = conv->activations;
    const hc_conv_shape *s = &conv->shape;
    const int64_t per_group = s->group_channels;
    const hc_view grouped = {
        .data = x->data,
        .dtype = x->dtype,
        .ndim = 5,
        .shape = {s->n, window->groups, per_group, s->height, s->width},
        .strides = {x->strides[0], per_group * x->strides[1], x->strides[1], x->strides[2], x->strides[3]}};
    static const int AXES[] = {1, 3, 4, 2};
    hc_geometry geometry = {0};
    hc_status status = hc_check_encoding("conv2d: activations: x", &grouped, activations, 4, AXES, &geometry, error);
    if (status != HC_OK)
        return status;
    hc_encoder encoder;
    hc_encoder_init(&encoder, run, "conv2d: activations", "x", &grouped, activations, &geometry, 4, AXES);
    status = hc_encoder_observe(&encoder, run, error);
    if (status != HC_OK) {
        hc_encoder_free(&encoder);
        return status;
    }
    const int64_t columns = geometry.whole_columns;
    const int64_t images_at_once = hc_max(1, hc_min(s->n, IMAGE_BYTES / hc_max(4 * columns, 1)));
    const bool integers = hc_has_integers(&encoder.format) && w->packed && hc_has_integers(&w->packed->format);
    hc_image_buffers buffers = {0};
    if (integers) {
        hc_int_form folded, grouped;
        encoder.ops->int_form(&encoder.format, HC_INT_FOLDED, &folded);
        encoder.ops->int_form(&encoder.format, HC_INT_GROUPED, &grouped);
        buffers.limbs = hc_alloc_aligned(hc_max(folded.n_limbs, grouped.n_limbs) * images_at_once * columns);
        buffers.scales = hc_alloc_aligned(images_at_once * (geometry.groups + 1) * 4);
    } else {
        buffers.values = hc_alloc_aligned(images_at_once * columns * (int64_t)sizeof(float));
    }
    status = hc_components_alloc(&encoder.format, &geometry, images_at_once, &buffers.codes, error);
    if (status == HC_OK && (integers ? !buffers.limbs || !buffers.scales : !buffers.values))
        status = hc_fail(error, HC_MEMORY, "conv2d: no memory for the codes of an image");
    for (int64_t first = 0; status == HC_OK && first < s->n; first += images_at_once) {
        const int64_t images = hc_min(images_at_once, s->n - first);
        status = hc_encoder_rows(&encoder, run, first, images, &buffers.codes, error);
        const hc_packed_context packed = {run, &encoder.format, &geometry, &buffers.codes, 0};
        hc_source whole;
        hc_packed_source(&whole, &packed, images);
        const int64_t filters = s->filters / window->groups;
        const int64_t pixel_groups =
            whole.group ? hc_ceil_div(per_group, whole.group) : 1; /* without those of padding */
        hc_int_mode decoded = (hc_int_mode)-1;
        if (status == HC_OK && !integers)
            whole.floats(&whole, 0, images, 0, columns, buffers.values, columns);
        for (int64_t g = 0; status == HC_OK && g < window->groups; g++) {
            hc_filters filter_context;
            const hc_source b = hc_filter_source(conv, g * filters, filters, &filter_context);
            const hc_order kind = integers ? hc_order_of(&whole, &b) : HC_ORDER_CHAIN;
            const hc_int_mode mode = kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
            hc_window_context context = {
                .shape = s,
                .window = window,
                .group = g,
                .x = decoded_view(buffers.values, columns, g, s),
                .limb = {buffers.limbs, buffers.limbs + images * columns, buffers.limbs + 2 * images * columns},
                .group_scale = buffers.scales,
                .row_scale = buffers.scales,
                .image_columns = columns,
                .image_groups = geometry.groups,
                .pixel_groups = pixel_groups,
                .group_size = whole.group};
            if (integers && decoded != mode) {
                const hc_int_tile tile = {.limb = {context.limb[0], context.limb[1], context.limb[2]},
                                          .ld = columns,
                                          .group_scale = mode == HC_INT_GROUPED ? buffers.scales : NULL,
                                          .groups_ld = geometry.groups,
                                          .row_scale = mode == HC_INT_FOLDED ? buffers.scales : NULL};
                whole.integers(&whole, mode, 0, images, 0, columns, &tile);
                decoded = mode;
            }
            hc_source a = window_source(&context, images);
            if (integers) {
                a.integers = window_integers;
                a.form[mode] = whole.form[mode];
                a.group = whole.group;
            }
            const hc_product product = {
                .run = run, .order = kind, .x = &a, .w = &b, .out = hc_answer_rows(out, s, first, images, g * filters)};
            status = hc_multiply(&product, error);
        }
    }
    free_images(&buffers);
    hc_encoder_free(&encoder);
    return status;
}

void hc_window_rows(const hc_convolution *conv, int64_t group, int64_t first, int64_t rows, float *values) {
    const hc_conv_shape *s = &conv->shape;
    const hc_window_context context = {
        .shape = s, .window = conv->window, .group = group, .x = group_view(conv->x, group, s->group_channels)};
    const hc_source windows = window_source(&context, s->n);
    windows.floats(&windows, first, rows, 0, windows.columns, values, windows.columns);
}

static hc_status float_conv(const hc_convolution *conv, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t filters = s->filters / conv->window->groups;
    hc_status status = HC_OK;
    for (int64_t g = 0; status == HC_OK && g < conv->window->groups; g++) {
        hc_filters filter_context;
        const hc_source b = hc_filter_source(conv, g * filters, filters, &filter_context);
        const hc_window_context context = {
            .shape = s, .window = conv->window, .group = g, .x = group_view(conv->x, g, s->group_channels)};
        const hc_source a = window_source(&context, s->n);
        const hc_product product = {.run = conv->run,
                                    .order = HC_ORDER_CHAIN,
                                    .x = &a,
                                    .w = &b,
                                    .out = hc_answer_rows(conv->out, s, 0, s->n, g * filters)};
        status = hc_multiply(&product, error);
    }
    return status;
}

const char *hc_conv_implicit_refuses(const hc_convolution *conv) {
    (void)conv;
    return NULL;
}

/* Gathering a window costs as much as GATHER products a value, once for all filters; on an AMD EPYC of family 26 (Zen 5),
 * 2026-11, 3x3 of 64 channels and filters takes 1.9 times the product that it becomes, of 512 1.6. */
hc_conv_work hc_conv_implicit_work(const hc_convolution *conv) {
    enum { GATHER = 48, LANES = 16 };
    const hc_conv_shape *s = &conv->shape;
    const double answers = (double)s->n * (double)(s->out_height * s->out_width);
    const double columns = (double)(s->r * s->s * s->group_channels);
    const int64_t filled = hc_round_up(s->filters / conv->window->groups, LANES);
    return (hc_conv_work){answers * columns * (double)((filled + GATHER) * conv->window->groups), 64 << 20};
}

hc_status hc_conv_implicit_run(const hc_convolution *conv, hc_error *error) {
    return conv->activations ? quantized_conv(conv, error) : float_conv(conv, error);
}
