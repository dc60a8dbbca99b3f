/* quantize, dequantize, fake_quantize, and the sums of errors. */
#include "ops/check.h"
#include "ops/codec/blocks.h"
#include "ops/codec/clip.h"
#include "ops/codec/decode.h"
#include "ops/codec/encoder.h"
#include "ops/codec/inside.h"
#include "ops/codec/learn.h"
#include "ops/product/operand.h"
#include "ops/product/sparse.h"

#include "base/convert.h"
#include "base/layout.h"
#include "base/threads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All work before the first row is encoded. The caller frees the encoder even if this fails. */
static hc_status start(hc_encoder *encoder, const hc_run *run, const char *name, const hc_view *x,
                       const hc_view *importance, const hc_format *format, int n_axes, const int *axes,
                       const hc_clip *clip, hc_error *error) {
    hc_geometry geometry = {0};
    char argument[64];
    snprintf(argument, sizeof argument, "%s: w", name);
    *encoder = (hc_encoder){0};
    hc_status status = hc_check_encoding(argument, x, format, n_axes, axes, &geometry, error);
    if (status == HC_OK && format->m > 0 && importance)
        status = hc_fail(error, HC_VALUE, "%s: importance is for all values, a pattern keeps some of them", name);
    if (status == HC_OK && clip)
        status = hc_clip_check(clip, format, name, error);
    if (status == HC_OK && importance)
        status = hc_check_importance(name, importance, x, format, error);
    if (status != HC_OK)
        return status;
    hc_encoder_init(encoder, run, name, "w", x, format, &geometry, n_axes, axes);
    encoder->importance = importance;
    if (clip)
        encoder->clip = *clip;
    status = hc_clip_whole(encoder, run->isa, error);
    return status == HC_OK ? hc_encoder_observe(encoder, run, error) : status;
}

hc_status hc_quantize_weighted(const hc_run *run, const hc_view *x, const hc_clip *clip, const hc_view *importance,
                               hc_packed *packed, hc_error *error) {
    if (x->ndim != packed->ndim || memcmp(x->shape, packed->shape, (size_t)x->ndim * sizeof *x->shape) != 0)
        return hc_fail(error, HC_VALUE, "quantize: x has another shape than the array");
    hc_encoder encoder;
    hc_status status =
        start(&encoder, run, "quantize", x, importance, &packed->format, packed->n_axes, packed->axes, clip, error);
    if (status == HC_OK)
        status = hc_encoder_rows(&encoder, run, 0, encoder.geometry.rows, &packed->components, error);
    hc_encoder_free(&encoder);
    return status;
}

hc_status hc_quantize(const hc_run *run, const hc_view *x, const hc_clip *clip, hc_packed *packed, hc_error *error) {
    return hc_quantize_weighted(run, x, clip, NULL, packed, error);
}

/* Decoding in tiles: rows x columns of about TILE_VALUES values, a share of L2. */
enum { TILE_VALUES = 1 << 14, ACROSS_ROWS = 64 };
typedef struct {
    const hc_run *run;
    const hc_packed *packed;
    hc_geometry geometry;
    hc_row_view view;
    bool direct;
    int64_t tile_rows, tile_columns, column_tiles, ld;
    int64_t first_row, rows, first_column, columns; /* of the slab; columns include padding */
    char *memory;
    int64_t thread_bytes;
} hc_decode_job;

static void decode_task(void *context, int64_t task, int thread) {
    const hc_decode_job *job = context;
    const hc_format *format = &job->packed->format;
    const hc_components *components = &job->packed->components;
    /* row of the slab; the column is also one of the slab */
    const int64_t row = task / job->column_tiles * job->tile_rows;
    const int64_t column = task % job->column_tiles * job->tile_columns;
    const hc_tile tile = {.first_row = job->first_row + row,
                          .rows = hc_min(job->tile_rows, job->rows - row),
                          .first_column = job->first_column + column,
                          .columns = hc_min(job->tile_columns, job->columns - column)};
    const int64_t size = hc_dtype_size(job->view.dtype);
    char *values = hc_offset(job->memory, thread * job->thread_bytes);
    int64_t ld = job->ld;
    hc_float_rows direct;
    if (job->direct && hc_rows_direct(&job->view, row, &direct)) {
        values = (char *)direct.data + column * size;
        ld = direct.row_stride;
    }
    if (job->view.dtype == HC_F32)
        hc_decode_tile(job->run, format, &job->geometry, components, &tile, (float *)values, ld);
    else
        hc_decode_f64_tile(job->run, format, &job->geometry, components, &tile, (double *)values, ld);
    if (!job->direct)
        hc_rows_scatter(&job->view, job->run->isa, row, tile.rows, column, tile.columns, values, ld);
}

/* Sizes of tiles: whole groups, or multiples of 8 columns inside a longer group. */
static void choose_tiles(hc_decode_job *job) {
    const hc_geometry *g = &job->geometry;
    const int64_t unit = g->group % 8 == 0 ? g->group : g->group * 8;
    const int64_t wanted = hc_rows_across(&job->view) ? TILE_VALUES / ACROSS_ROWS : TILE_VALUES;
    job->tile_columns = unit >= wanted || unit == 0 ? wanted : wanted / unit * unit;
    job->tile_columns = hc_max(hc_min(job->tile_columns, job->columns), 1);
    job->tile_rows = hc_min(hc_max(TILE_VALUES / job->tile_columns, 1), hc_max(job->rows, 1));
    job->column_tiles = hc_ceil_div(job->columns, job->tile_columns);
    job->ld = hc_rows_ld(job->tile_columns);
}

/* Converts indices [first, first + count) of axis 0 to rows and columns. */
static hc_status find_slab(hc_decode_job *job, int64_t first, int64_t count, hc_error *error) {
    const hc_packed *packed = job->packed;
    const hc_geometry *g = &job->geometry;
    job->rows = g->rows;
    job->columns = g->padded;
    if (first == 0 && (packed->ndim == 0 || count == packed->shape[0]))
        return HC_OK;
    bool is_reduced = false;
    for (int i = 0; i < packed->n_axes; i++)
        is_reduced = is_reduced || packed->axes[i] == 0;
    if (!is_reduced) {
        const int64_t each = g->rows / packed->shape[0];
        job->first_row = first * each;
        job->rows = count * each;
        return HC_OK;
    }
    const int64_t step = hc_slab_step(packed);
    if (packed->n_axes > 1 || first % step != 0 || (count % step != 0 && first + count != packed->shape[0]))
        return hc_fail(error, HC_VALUE, "dequantize: slabs along a reduction axis are multiples of %lld values of it",
                       (long long)step);
    job->first_column = first;
    job->columns = first + count == packed->shape[0] ? g->padded - first : count;
    return HC_OK;
}

int64_t hc_slab_step(const hc_packed *packed) {
    for (int i = 0; i < packed->n_axes; i++)
        if (packed->axes[i] == 0)
            return packed->n_axes > 1 ? hc_max(packed->shape[0], 1)
                                      : (int64_t)8 * hc_max(packed->format.group, 1) * hc_max(packed->format.m, 1);
    return 1;
}

hc_status hc_dequantize(const hc_run *run, const hc_packed *packed, const hc_view *out, hc_error *error) {
    return hc_dequantize_slab(run, packed, 0, packed->ndim ? packed->shape[0] : 1, out, error);
}

hc_status hc_dequantize_slab(const hc_run *run, const hc_packed *packed, int64_t first, int64_t count,
                             const hc_view *out, hc_error *error) {
    hc_decode_job job = {.run = run, .packed = packed};
    hc_status status = hc_check_packed("dequantize: q", packed, &job.geometry, error);
    if (status != HC_OK)
        return status;
    if (out->dtype != HC_F32 && out->dtype != HC_F64)
        return hc_fail(error, HC_TYPE, "dequantize: expected float32 or float64 out");
    bool fits = out->ndim == packed->ndim;
    for (int i = 0; fits && i < out->ndim; i++)
        fits = out->shape[i] == (i ? packed->shape[i] : count);
    if (!fits || first < 0 || count < 0 || (packed->ndim && first > packed->shape[0] - count))
        return hc_fail(error, HC_VALUE, "dequantize: out has another shape than the array");
    if ((status = hc_check_host("dequantize: out", out->device, error)) != HC_OK)
        return status;
    if (packed->format.m > 0)
        return hc_sparse_dequantize(run, packed, &job.geometry, first, count, out, error);
    status = find_slab(&job, first, count, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&job.view, out, &job.geometry, packed->n_axes, packed->axes);
    hc_float_rows direct;
    job.direct = hc_rows_direct(&job.view, 0, &direct);
    choose_tiles(&job);
    const int64_t n_tasks = hc_ceil_div(job.rows, job.tile_rows) * job.column_tiles;
    const int n_threads = (int)hc_min(run->n_threads, hc_max(n_tasks, 1));
    if (!job.direct) {
        job.thread_bytes = job.tile_rows * job.ld * hc_dtype_size(out->dtype);
        job.memory = hc_alloc_aligned(job.thread_bytes * n_threads);
        if (!job.memory)
            return hc_fail(error, HC_MEMORY, "dequantize: not enough memory for %d tiles", n_threads);
    }
    hc_parallel(n_threads, n_tasks, decode_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}

typedef struct {
    hc_blocks blocks;
    const hc_run *run;
    const hc_inside *inside; /* or NULL */
    hc_row_view out;
    hc_geometry whole; /* of the result: the encoded values, or with the zeros of a pattern */
    bool direct;
    int64_t ld;
    hc_component_layout layout[HC_N_COMPONENTS];
    char *shared; /* components that all rows share, one copy per thread, and whether the copy is filled */
    int64_t shared_bytes;
    bool is_filled[HC_MAX_THREADS];
} hc_fake_job;

/* Bytes of one packed row. Each component is rounded up, so that all of them stay aligned. */
static int64_t part_bytes(const hc_component_layout *layout) {
    return layout->present ? hc_round_up(hc_component_bytes(layout), 8) : 0;
}

static void fake_task(void *context, int64_t task, int thread) {
    hc_fake_job *job = context;
    const hc_encoder *encoder = job->blocks.encoder;
    hc_float_rows x;
    const float *thresholds;
    if (!hc_blocks_load(&job->blocks, task, thread, &x, &thresholds))
        return;
    char *memory = hc_blocks_extra(&job->blocks, thread), *shared = job->shared + thread * job->shared_bytes;
    const int64_t row = x.first_row;
    if (job->inside)
        hc_inside_rows(job->inside, encoder, job->run, &x, thresholds);
    hc_components packed = {.first_row = row};
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        char **from = job->layout[i].per_row ? &memory : &shared;
        packed.part[i].data = (uint8_t *)*from;
        packed.part[i].row_stride = job->layout[i].per_row ? part_bytes(&job->layout[i]) : 0;
        *from += part_bytes(&job->layout[i]) * (job->layout[i].per_row ? job->blocks.block_rows : 1);
    }
    x.first_row = 0;
    if (!job->is_filled[thread])
        hc_encoder_share(encoder, &packed);
    job->is_filled[thread] = true;
    hc_blocks_metadata(&job->blocks, thread, &x, &packed);
    hc_learn_rows(&job->blocks, job->run->isa, thread, &x, &packed);
    if (hc_encode_block(encoder, job->run->isa, &x, thresholds, NULL, &packed) != HC_DONE) {
        atomic_store(&job->blocks.illegal, true); /* in-place calls leave an invalid value in the array */
        return;
    }
    const hc_tile tile = {0, x.rows, 0, job->whole.padded};
    hc_float_rows direct;
    float *values = (float *)memory;
    int64_t ld = job->ld;
    if (job->direct && hc_rows_direct(&job->out, row, &direct)) {
        values = (float *)direct.data;
        ld = direct.row_stride;
    }
    if (encoder->format.m > 0) {
        const hc_packed_context context = {job->run, &encoder->format, &encoder->geometry, &packed, 0};
        hc_source source;
        hc_packed_source(&source, &context, x.rows);
        source.floats(&source, 0, x.rows, 0, tile.columns, values, ld);
    } else {
        hc_decode_tile(job->run, &encoder->format, &encoder->geometry, &packed, &tile, values, ld);
    }
    if (!job->direct)
        hc_rows_scatter(&job->out, job->run->isa, row, x.rows, 0, tile.columns, values, ld);
}

static hc_status fake_rows(hc_fake_job *job, const hc_encoder *encoder, const hc_view *out, hc_error *error) {
    hc_format_layout(&encoder->format, &encoder->geometry, job->layout);
    job->whole = encoder->geometry;
    if (encoder->format.m > 0)
        hc_geometry_of_axes(NULL, 1, out->ndim, out->shape, encoder->n_axes, encoder->axes, &job->whole,
                            error); /* as x was */
    hc_rows_init(&job->out, out, &job->whole, encoder->n_axes, encoder->axes);
    hc_float_rows direct;
    job->direct = hc_rows_direct(&job->out, 0, &direct);
    job->ld = hc_rows_ld(job->whole.padded);
    int64_t row_bytes = job->direct ? 0 : job->ld * (int64_t)sizeof(float);
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        *(job->layout[i].per_row ? &row_bytes : &job->shared_bytes) += part_bytes(&job->layout[i]);
    job->shared_bytes = hc_round_up(job->shared_bytes, HC_CACHE_LINE);
    hc_status status =
        hc_blocks_init(&job->blocks, encoder, job->run, 0, hc_rows_with_values(encoder), row_bytes, error);
    if (status != HC_OK)
        return status;
    job->shared = hc_alloc_aligned(job->shared_bytes * job->blocks.n_threads);
    if (job->shared)
        hc_parallel(job->blocks.n_threads, job->blocks.n_blocks, fake_task, job);
    status = hc_blocks_finish(&job->blocks, error);
    if (!job->shared)
        status =
            hc_fail(error, HC_MEMORY, "fake_quantize: not enough memory for %lld bytes", (long long)job->shared_bytes);
    hc_free_aligned(job->shared);
    return status;
}

/* The axis whose values are nearest in memory, along which formats without scales are encoded. */
static int nearest_axis(const hc_view *x) {
    int nearest = 0;
    for (int i = 1; i < x->ndim; i++)
        if (x->shape[nearest] < 2 || (x->shape[i] > 1 && llabs(x->strides[i]) <= llabs(x->strides[nearest])))
            nearest = i;
    return nearest;
}

hc_status hc_fake_quantize(const hc_run *run, const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                           const hc_clip *clip, const hc_inside *inside, const hc_view *out, hc_error *error) {
    if (out->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "fake_quantize: out must be float32");
    if (out->ndim != x->ndim || memcmp(out->shape, x->shape, (size_t)x->ndim * sizeof *x->shape) != 0)
        return hc_fail(error, HC_VALUE, "fake_quantize: out has another shape than x");
    hc_encoder encoder;
    hc_fake_job job = {.run = run, .inside = inside};
    hc_status status = hc_check_host("fake_quantize: out", out->device, error);
    if (status != HC_OK)
        return status;
    const hc_stored_form form = hc_form_of(format);
    const int nearest = nearest_axis(x);
    if (!inside && format->m == 0 && n_axes == 1 && hc_form_fits_any_axis(&form) && !hc_form_has_codebook(&form))
        axes = &nearest;
    status = start(&encoder, run, "fake_quantize", x, NULL, format, n_axes, axes, clip, error);
    if (status == HC_OK)
        status = fake_rows(&job, &encoder, out, error);
    hc_encoder_free(&encoder);
    return status;
}

/* Sums of COMPARE_BLOCK values each, index ascending in C order; then the sums of blocks are added in ascending
 * order. */
enum { COMPARE_BLOCK = 1 << 15, PIECE = 256 };
typedef struct {
    const hc_view *view[2];
    int64_t values, begun; /* of the first block, in earlier pieces */
    hc_error_sums *sums;
} hc_compare_job;

static void read_values(const hc_view *view, int64_t first, int64_t n, double *values) {
    const int last = view->ndim - 1;
    int64_t i = 0;
    while (i < n) {
        int64_t index = first + i, stride = 0, count = 1;
        const char *data = view->data;
        for (int d = last; d >= 0; d--) {
            const int64_t place = index % view->shape[d];
            data += place * view->strides[d];
            if (d == last) {
                stride = view->strides[d];
                count = hc_min(view->shape[d] - place, n - i);
            }
            index /= view->shape[d];
        }
        for (int64_t end = i + count; i < end; i++, data += stride)
            values[i] = view->dtype == HC_F64   ? hc_load_f64(data)
                        : view->dtype == HC_F32 ? (double)hc_load_f32(data)
                        : view->dtype == HC_F16 ? (double)hc_f16_to_f32(hc_load_u16(data))
                                                : (double)hc_bf16_to_f32(hc_load_u16(data));
    }
}

static void compare_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_compare_job *job = context;
    hc_error_sums sums = job->sums[task];
    const int64_t start = hc_max(task * COMPARE_BLOCK - job->begun, 0);
    const int64_t end = hc_min((task + 1) * COMPARE_BLOCK - job->begun, job->values);
    for (int64_t first = start; first < end; first += PIECE) {
        double x[PIECE], y[PIECE];
        const int64_t n = hc_min(PIECE, end - first);
        read_values(job->view[0], first, n, x);
        read_values(job->view[1], first, n, y);
        for (int64_t i = 0; i < n; i++) {
            if (isinf(x[i]) && x[i] == y[i])
                continue; /* no error, but their difference is NaN */
            const double difference = x[i] - y[i];
            sums.xx += x[i] * x[i];
            sums.ee += difference * difference;
            sums.xy += x[i] * y[i];
            sums.yy += y[i] * y[i];
            sums.max_abs = fabs(difference) > sums.max_abs ? fabs(difference) : sums.max_abs;
        }
    }
    job->sums[task] = sums;
}

static void add_sums(hc_error_sums *sums, const hc_error_sums *block) {
    sums->xx += block->xx;
    sums->ee += block->ee;
    sums->xy += block->xy;
    sums->yy += block->yy;
    sums->max_abs = fmax(sums->max_abs, block->max_abs);
}

hc_status hc_compare(const hc_run *run, const hc_view *x, const hc_view *y, hc_error_state *state, hc_error *error) {
    hc_status status = hc_check_view("error: x", x, error);
    if (status == HC_OK)
        status = hc_check_view("error: y", y, error);
    if (status != HC_OK)
        return status;
    if (x->ndim != y->ndim || memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) != 0)
        return hc_fail(error, HC_VALUE, "error: the two arrays differ in shape");
    hc_compare_job job = {.view = {x, y}, .values = hc_values(x), .begun = state->values % COMPARE_BLOCK};
    const int64_t n_tasks = hc_ceil_div(job.values + job.begun, COMPARE_BLOCK);
    if (job.values == 0)
        return HC_OK;
    job.sums = hc_alloc_aligned(n_tasks * (int64_t)sizeof *job.sums);
    if (!job.sums)
        return hc_fail(error, HC_MEMORY, "error: not enough memory for %lld sums", (long long)n_tasks);
    memset(job.sums, 0, (size_t)n_tasks * sizeof *job.sums);
    job.sums[0] = state->block;
    hc_parallel(run->n_threads, n_tasks, compare_task, &job);
    state->values += job.values;
    const bool is_open = state->values % COMPARE_BLOCK != 0;
    for (int64_t i = 0; i < n_tasks - is_open; i++)
        add_sums(&state->sums, &job.sums[i]);
    state->block = is_open ? job.sums[n_tasks - 1] : (hc_error_sums){0};
    hc_free_aligned(job.sums);
    return HC_OK;
}

hc_error_sums hc_compared(const hc_error_state *state) {
    hc_error_sums sums = state->sums;
    if (state->values % COMPARE_BLOCK != 0)
        add_sums(&sums, &state->block);
    return sums;
}
