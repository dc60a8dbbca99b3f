/* Steps of rounding whose gradient is wanted (cuda/training/training.cu), and of stochastic rounding. */
#include "cuda/formats/families.h"
#include "cuda/steps.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <math.h>
#include <string.h>

enum { THREADS = 128, PASS_THREADS = 256, PASS_BLOCKS = 4096, LANES = HC_WARP };

/* Rows whose offsets are the indices of the values in C order. */
static void init_order(hc_row_view *order, const hc_view *x, const hc_geometry *geometry, int n_axes, const int *axes) {
    hc_view indices = *x;
    int64_t stride = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        indices.strides[i] = stride;
        stride *= x->shape[i];
    }
    hc_rows_init(order, &indices, geometry, n_axes, axes);
}

hc_status hc_cuda_add_note(const hc_view *x, const hc_cuda_note *note, const float *thresholds, const hc_format *format,
                           const hc_geometry *geometry, int n_axes, const int *axes, hc_cuda_plan *plan,
                           hc_error *error) {
    hc_cuda_note_values p = {.geometry = *geometry, .thresholds = thresholds, .note = *note};
    const hc_status status = hc_cuda_plan_chunks(format, geometry, sizeof(float), false, &p.chunks, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&p.x, x, geometry, n_axes, axes);
    init_order(&p.order, x, geometry, n_axes, axes);
    hc_cuda_step *step = hc_cuda_add_step(plan, "training", "hc_note", hc_ceil_div(p.chunks.all, p.chunks.threads), 1,
                                          THREADS, 0, sizeof p);
    step->params.note = p;
    return HC_OK;
}

/* Levels that no parameters have room for, to the workspace. */
static const double *add_levels(const hc_levels *levels, hc_cuda_plan *plan) {
    double value[HC_CUDA_LEVELS];
    for (int i = 0; i < HC_CUDA_LEVELS; i++)
        value[i] = i < levels->n ? levels->table[i] : (double)INFINITY;
    return hc_cuda_add_table(plan, value, sizeof value);
}

hc_status hc_cuda_plan_chance(const hc_view *x, const hc_cuda_clip *clip, const hc_packed *q, const hc_levels *levels,
                              float infinity, uint64_t seed, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                              hc_error *error) {
    hc_cuda_chance p = {.format = hc_cuda_stored_like(&q->format, HC_CUDA_CHANCE),
                        .parts = q->components,
                        .seed = seed,
                        .infinity = infinity};
    hc_status status = hc_cuda_plan_quantize(x, clip, q, workspace, plan, error);
    if (status == HC_OK)
        status = hc_cuda_packed_geometry(q, &p.geometry, error);
    const hc_format_ops *ops = hc_format_find(q->format.family);
    if (status == HC_OK && ops->unit && ops->unit(&q->format) > 1)
        status = hc_fail(error, HC_UNSUPPORTED,
                         "the CUDA kernels do not support stochastic rounding to this format: use the CPU");
    if (status == HC_OK)
        status = hc_cuda_plan_chunks(&q->format, &p.geometry, sizeof(float), false, &p.chunks, error);
    if (status != HC_OK)
        return status;
    if (levels->n > 0)
        p.table = add_levels(levels, plan);
    p.n = levels->n;
    p.fraction = levels->fraction;
    p.least = levels->least;
    p.low = levels->low;
    p.high = levels->high;
    hc_rows_init(&p.x, x, &p.geometry, q->n_axes, q->axes);
    hc_rows_init(&p.y, out, &p.geometry, q->n_axes, q->axes);
    init_order(&p.order, x, &p.geometry, q->n_axes, q->axes);
    const int64_t each = hc_max(p.chunks.groups, 1) * 3 * (int64_t)sizeof(double);
    const int64_t fit = HC_CUDA_SHARED_BYTES / each;
    p.chunks.threads = (int32_t)hc_min(p.chunks.threads, fit >= HC_WARP ? fit / HC_WARP * HC_WARP : fit);
    const hc_cuda_entry kernel = hc_cuda_kernel_of(&q->format, HC_CUDA_CHANCE);
    hc_cuda_step *step = hc_cuda_add_step(plan, kernel.module, kernel.name, hc_ceil_div(p.chunks.all, p.chunks.threads),
                                          1, p.chunks.threads, p.chunks.threads * each, sizeof p);
    step->params.chance = p;
    return HC_OK;
}

hc_status hc_cuda_plan_pass(const hc_view *g, const void *note, hc_cuda_note_kind kind, float *out, hc_cuda_plan *plan,
                            hc_error *error) {
    hc_cuda_pass p = {.kind = kind, .note = note, .y = out};
    hc_geometry geometry;
    const int last = g->ndim - 1;
    hc_cuda_begin(plan, NULL);
    const hc_status status = hc_geometry_of_axes(NULL, 1, g->ndim, g->shape, 1, &last, &geometry, error);
    if (status != HC_OK)
        return status;
    p.n = geometry.rows * geometry.columns;
    if (p.n == 0)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not take empty arrays: use the CPU");
    hc_rows_init(&p.g, g, &geometry, 1, &last);
    const hc_dims *rows = &p.g.rows;
    p.is_flat = rows->n == 0 || (rows->n == 1 && rows->stride[0] == p.g.run_length * p.g.column_stride);
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "training", "hc_pass", hc_min(hc_ceil_div(p.n, PASS_THREADS), PASS_BLOCKS), 1, PASS_THREADS, 0, sizeof p);
    step->params.pass = p;
    return HC_OK;
}

/* The axes in ascending order where a group is the whole row: its values then lie in C order. */
static hc_status order_axes(const hc_view *x, const hc_format *format, int n_axes, const int *axes, int *ordered,
                            hc_geometry *geometry, hc_error *error) {
    int n = 0;
    for (int i = 0; format->group == 0 && i < x->ndim; i++)
        for (int j = 0; j < n_axes; j++)
            if (axes[j] == i)
                ordered[n++] = i;
    if (format->group != 0)
        memcpy(ordered, axes, (size_t)n_axes * sizeof *axes);
    const hc_status status = hc_format_geometry(format, x->ndim, x->shape, n_axes, ordered, geometry, error);
    return status == HC_OK ? hc_cuda_refuse(format, geometry, true, error) : status;
}

static double largest_of(const hc_format *format) { return (double)(((int64_t)1 << (format->bits - 1)) - 1); }

hc_status hc_cuda_plan_steps(const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                             const hc_view *scales, float *out, float *slope, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_steps p = {.largest = largest_of(format), .y = out, .slope = slope};
    int ordered[HC_MAX_DIMS];
    hc_cuda_begin(plan, NULL);
    hc_status status = order_axes(x, format, n_axes, axes, ordered, &p.geometry, error);
    if (status == HC_OK)
        status = hc_cuda_plan_chunks(format, &p.geometry, sizeof(float), false, &p.chunks, error);
    if (status != HC_OK)
        return status;
    if (scales->ndim != 2 || scales->shape[0] != p.geometry.rows || scales->shape[1] != p.geometry.groups)
        return hc_fail(error, HC_VALUE, "scale: expected %lld x %lld values", (long long)p.geometry.rows,
                       (long long)p.geometry.groups);
    p.scales = (hc_cuda_scales){scales->data, scales->strides[0], scales->strides[1], scales->dtype,
                                hc_form_of(format).scale == HC_SCALE_F16};
    hc_rows_init(&p.x, x, &p.geometry, n_axes, ordered);
    init_order(&p.order, x, &p.geometry, n_axes, ordered);
    hc_cuda_step *step = hc_cuda_add_step(plan, "training", "hc_steps", hc_ceil_div(p.chunks.all, p.chunks.threads), 1,
                                          THREADS, 0, sizeof p);
    step->params.steps = p;
    return HC_OK;
}

hc_status hc_cuda_plan_slope_sums(const hc_view *g, const hc_format *format, int n_axes, const int *axes,
                                  const float *slope, float *out, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_slope_sums p = {.largest = largest_of(format), .slope = slope, .to = out};
    int ordered[HC_MAX_DIMS];
    hc_cuda_begin(plan, NULL);
    const hc_status status = order_axes(g, format, n_axes, axes, ordered, &p.geometry, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&p.g, g, &p.geometry, n_axes, ordered);
    init_order(&p.order, g, &p.geometry, n_axes, ordered);
    const int64_t blocks = hc_ceil_div(p.geometry.rows * p.geometry.groups, LANES);
    if (blocks > INT32_MAX)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not sum so many groups: use the CPU");
    hc_cuda_step *step = hc_cuda_add_step(plan, "training", "hc_slope_sums", blocks, 1, LANES,
                                          LANES * (LANES + 1) * (int64_t)sizeof(double), sizeof p);
    step->params.slope_sums = p;
    return HC_OK;
}
