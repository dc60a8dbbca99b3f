/* Steps of a convolution: images and filters become rows of integers, or filters decode to floats (cuda/hc_cuda.h). */
#include "cuda/paths.h"

#include "formats/format.h"
#include "ops/codec/rows.h"

enum { TILE = 64, THREADS = 128, STEP_BYTES = 64, UNIT = 64 /* values of a count of rounds */ };
enum { PIECE = 16, K_BYTES = 32 /* of an mma */, MOST_GROUPS = 65535 };
enum { MOST_STRIDE = 1 << 24 /* bytes of a row: 128 rows of a block are at offsets of 32 bits */ };

static const int AXES[] = {1, 3, 4, 2};

static hc_cuda_conv conv_of(const hc_view *x, const hc_packed *w, const hc_window *window, bool relu, const float *bias,
                            const hc_view *out) {
    hc_cuda_conv conv = {.height = x->shape[2],
                         .width = x->shape[3],
                         .out_height = out->shape[2],
                         .out_width = out->shape[3],
                         .windows = x->shape[0] * out->shape[2] * out->shape[3],
                         .s = w->shape[3],
                         .taps = w->shape[2] * w->shape[3],
                         .filters = w->shape[0] / window->groups,
                         .channels = w->shape[1],
                         .groups = window->groups,
                         .bias = bias,
                         .relu = relu,
                         .y = out->data};
    for (int i = 0; i < 2; i++) {
        conv.stride[i] = window->stride[i];
        conv.pad[i] = window->pad_before[i];
        conv.dilation[i] = window->dilation[i];
    }
    for (int i = 0; i < 4; i++)
        conv.y_stride[i] = out->strides[i];
    return conv;
}

/* (image, group, channel, h, w), so that the groups of a format never cross those of channels. */
static hc_view with_groups(const hc_view *x, int64_t groups) {
    const int64_t depth = x->shape[1] / groups;
    return (hc_view){.data = x->data,
                     .dtype = x->dtype,
                     .ndim = 5,
                     .shape = {x->shape[0], groups, depth, x->shape[2], x->shape[3]},
                     .strides = {x->strides[0], depth * x->strides[1], x->strides[1], x->strides[2], x->strides[3]}};
}

/* Numbers of answers fit 32 bits, also those of the threads of the last block. */
static bool is_small(const hc_cuda_conv *conv) {
    return conv->windows * conv->filters * conv->groups <= UINT32_MAX - THREADS;
}

const char *hc_cuda_conv_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    return p->form.is_wide && !path->is_wide ? "a side has limbs, or sums pass 32 bits" : NULL;
}

/* Blocks of windows and filters, of each group of channels. */
static int64_t blocks_of(const hc_cuda_conv *conv, const hc_cuda_path *path) {
    return path->rows
               ? hc_ceil_div(conv->windows, path->rows) * hc_ceil_div(conv->filters, path->columns) * conv->groups
               : hc_ceil_div(conv->windows * conv->filters * conv->groups, path->threads);
}

hc_cuda_work hc_cuda_conv_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    const int64_t rounds = hc_ceil_div(blocks_of(p->conv, path), p->at_once);
    return (hc_cuda_work){.rounds = (double)rounds * (double)(p->conv->taps * p->conv->channels) / UNIT};
}

void hc_cuda_conv_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    const hc_cuda_conv *conv = p->conv;
    hc_cuda_step *step = hc_cuda_add_step(plan, "conv", path->kernel[0],
                                          path->rows ? hc_ceil_div(conv->windows, path->rows) : blocks_of(conv, path),
                                          path->rows ? hc_ceil_div(conv->filters, path->columns) : 1, path->threads,
                                          path->stages * (path->rows + path->columns) * path->step, 0);
    step->grid[2] = path->rows ? (uint32_t)conv->groups : 1;
}

/* The path of a convolution; is_wide: a side has limbs, or sums pass 32 bits. */
static hc_status choose(const hc_cuda_conv *conv, hc_cuda_section section, bool is_wide, const hc_cuda_plan *plan,
                        hc_cuda_product *p, const hc_cuda_path **path, hc_error *error) {
    hc_cuda_init_product(p, plan);
    p->section = section;
    p->m = conv->filters;
    p->n = conv->windows;
    p->conv = conv;
    p->form = (hc_cuda_form){.is_wide = is_wide};
    return hc_cuda_choose(p, plan, path, error);
}

/* x at any strides times filters that one step decodes. */
static hc_status add_floats(const hc_cuda_conv *conv, const hc_view *x, const hc_packed *packed,
                            const hc_geometry *geometry, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_conv_floats p = {.conv = *conv, .x = x->data, .x_dtype = x->dtype};
    hc_format whole = packed->format;
    whole.n = whole.m = 0;
    const void *decoded = NULL;
    hc_status status = hc_cuda_refuse(&whole, geometry, false, error);
    if (status == HC_OK)
        status = hc_cuda_decode_whole(packed, geometry, plan, &decoded, error);
    if (status != HC_OK)
        return status;
    p.w = decoded;
    for (int i = 0; i < 4; i++)
        p.x_stride[i] = x->strides[i];
    p.by_filters = conv->y_stride[1] < conv->y_stride[3];
    p.is_small = is_small(conv);
    p.has_fours = conv->channels % 4 == 0;
    p.has_16 = p.has_fours && x->dtype == HC_F32 && (uintptr_t)x->data % 16 == 0 && x->strides[1] == sizeof(float) &&
               x->strides[0] % 16 == 0 && x->strides[2] % 16 == 0 && x->strides[3] % 16 == 0;
    hc_cuda_product product;
    const hc_cuda_path *path;
    status = choose(conv, HC_CUDA_CONV_CHAIN, false, plan, &product, &path, error);
    if (status != HC_OK)
        return status;
    path->add(&product, path, plan);
    hc_cuda_step *step = &plan->step[plan->n - 1];
    step->params.conv_floats = p;
    step->params_bytes = sizeof p;
    return HC_OK;
}

/* x is rounded to values in the workspace, channels last. */
static hc_status add_rounded(const hc_cuda_conv *conv, const hc_view *x, const hc_format *activations,
                             const hc_geometry *geometry, const hc_packed *packed, const hc_geometry *of_w,
                             hc_cuda_plan *plan, hc_error *error) {
    const hc_view images = with_groups(x, conv->groups);
    hc_view rounded = *x;
    rounded.dtype = HC_F32;
    rounded.strides[1] = sizeof(float);
    rounded.strides[3] = x->shape[1] * rounded.strides[1];
    rounded.strides[2] = x->shape[3] * rounded.strides[3];
    rounded.strides[0] = x->shape[2] * rounded.strides[2];
    rounded.data = hc_cuda_reserve(plan, x->shape[0] * rounded.strides[0]);
    const hc_view y = with_groups(&rounded, conv->groups);
    const hc_cuda_result result = {.y = &y};
    const hc_status status =
        hc_cuda_add_quantize(&images, NULL, activations, geometry, 4, AXES, &result, -1, plan, error);
    return status == HC_OK ? add_floats(conv, &rounded, packed, of_w, plan, error) : status;
}

static hc_status add_integers(const hc_cuda_conv *conv, const hc_view *x, hc_cuda_side *a, hc_cuda_side *w,
                              hc_int_mode mode, hc_cuda_plan *plan, hc_error *error) {
    const int64_t group = mode == HC_INT_FOLDED ? a->geometry.whole_length : hc_cuda_segment_of(a, w);
    const int64_t images = x->shape[0], pixels = conv->groups * conv->height * conv->width;
    const int64_t most = (int64_t)a->form[mode].max_abs * w->form[mode].max_abs;
    const int64_t products = mode == HC_INT_FOLDED ? conv->taps * conv->channels : group;
    if (group <= 0 || hc_cuda_cuts_blocks(w, group) || products > INT64_MAX / most)
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not convolve with filters of these groups: use the CPU");
    const int x_limbs = a->form[mode].n_limbs, w_limbs = w->form[mode].n_limbs;
    const bool is_wide = x_limbs > 1 || w_limbs > 1 || products > INT32_MAX / most;
    hc_cuda_product product;
    const hc_cuda_path *path;
    hc_status status = choose(conv, mode == HC_INT_FOLDED ? HC_CUDA_CONV_FOLDED : HC_CUDA_CONV_GROUPED, is_wide, plan,
                              &product, &path, error);
    if (status != HC_OK)
        return status;
    hc_cuda_conv_integers p = {.conv = *conv, .mode = mode, .x_limbs = x_limbs, .w_limbs = w_limbs};
    p.is_small = is_small(conv);
    p.length = (int32_t)(!path->rows ? group : hc_round_up(group, mode == HC_INT_FOLDED ? PIECE : K_BYTES));
    p.pixel_segments = hc_ceil_div(conv->channels, group);
    p.pixel = p.pixel_segments * p.length;
    p.segments = conv->taps * p.pixel_segments;
    p.ld = hc_round_up(conv->taps * p.pixel, STEP_BYTES);
    p.image_segments = pixels * p.pixel_segments;
    p.image_bytes = hc_round_up(pixels * p.pixel, PIECE);
    p.x_limb_bytes = images * p.image_bytes;
    p.w_limb_bytes = w->geometry.rows * p.ld;
    if (p.ld >= MOST_STRIDE)
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not convolve with filters of %lld values: use the CPU",
                       (long long)w->geometry.whole_columns);
    float *x_scales = hc_cuda_reserve(plan, images * p.image_segments * (int64_t)sizeof(float));
    float *w_scales = hc_cuda_reserve(plan, w->geometry.rows * p.segments * (int64_t)sizeof(float));
    const int64_t cleared = plan->workspace_bytes;
    int8_t *x_integers = hc_cuda_reserve(plan, x_limbs * p.x_limb_bytes);
    int8_t *w_integers = hc_cuda_reserve(plan, w_limbs * p.w_limb_bytes);
    const hc_view view = with_groups(x, conv->groups);
    const hc_cuda_integer_rows both = {.mode = mode, .group = group, .length = p.length};
    hc_cuda_integer_rows of_x = both;
    of_x.segments = p.image_segments;
    of_x.ld = p.image_bytes;
    of_x.integers = x_integers;
    of_x.scales = x_scales;
    status = hc_cuda_add_quantized_integers(a, &view, 4, AXES, of_x, cleared, plan, error);
    if (status == HC_OK) {
        hc_cuda_integer_rows of_w = both;
        of_w.segments = p.segments;
        of_w.ld = p.ld;
        of_w.integers = w_integers;
        of_w.scales = w_scales;
        status = hc_cuda_add_integers(w, of_w, plan, error);
    }
    if (status != HC_OK)
        return status;
    p.x = x_integers;
    p.w = w_integers;
    p.x_scales = x_scales;
    p.w_scales = w_scales;
    path->add(&product, path, plan);
    hc_cuda_step *step = &plan->step[plan->n - 1];
    step->params.conv_integers = p;
    step->params_bytes = sizeof p;
    return HC_OK;
}

hc_status hc_cuda_plan_conv2d(const hc_view *x, const hc_format *activations, const hc_packed *packed,
                              const hc_window *window, bool relu, const float *bias, const hc_view *out,
                              void *workspace, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_begin(plan, workspace);
    const hc_cuda_conv conv = conv_of(x, packed, window, relu, bias, out);
    hc_cuda_side a = {.parts = {.first_row = 0}}, w = {.format = packed->format, .parts = packed->components};
    hc_status status = hc_cuda_packed_geometry(packed, &w.geometry, error);
    if (status != HC_OK)
        return status;
    if (conv.windows == 0 || conv.windows > INT32_MAX || w.geometry.rows == 0 || w.geometry.columns == 0 ||
        conv.groups > MOST_GROUPS || conv.filters > (int64_t)MOST_GROUPS * TILE || (x->dtype == HC_F64 && !activations))
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not convolve arrays of these shapes or float64: use the CPU");
    if (!activations)
        return add_floats(&conv, x, packed, &w.geometry, plan, error);
    if (activations->m > 0)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not convolve images in a pattern: use the CPU");
    const hc_view view = with_groups(x, conv.groups);
    a.format = *activations;
    status = hc_format_geometry(activations, view.ndim, view.shape, 4, AXES, &a.geometry, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(&a, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(&w, error);
    if (status != HC_OK)
        return status;
    const hc_int_mode mode =
        a.form[HC_INT_FOLDED].available && w.form[HC_INT_FOLDED].available ? HC_INT_FOLDED : HC_INT_GROUPED;
    const bool has_minima = a.form[mode].has_minima || w.form[mode].has_minima;
    if (a.form[mode].available && w.form[mode].available && !has_minima)
        return add_integers(&conv, x, &a, &w, mode, plan, error);
    return add_rounded(&conv, x, activations, &a.geometry, packed, &w.geometry, plan, error);
}
