/* Encoding: blocks of rows, each by the best kernel that takes them, else by the format's definition. Decoding: the same
 * choice for a tile. */
#include "ops/check.h"
#include "ops/codec/blocks.h"
#include "ops/codec/clip.h"
#include "ops/codec/learn.h"
#include "ops/codec/rows.h"

#include "base/float_env.h"
#include "base/layout.h"
#include "base/threads.h"

#include <stdio.h>
#include <string.h>

/* The kernels of a format, the best SIMD set first; each is asked until one does not decline. */
typedef const hc_format_simd *const *hc_simd_sets;

static bool runs(const hc_format_simd *set, uint32_t isa) { return (set->needs & ~isa) == 0; }

/* One pass over the whole array; every thread gathers in a state of its own. */
typedef struct {
    hc_blocks blocks;
    uint32_t isa;
    int pass;
    struct {
        _Alignas(HC_CACHE_LINE) hc_encode_state state;
    } thread[HC_MAX_THREADS];
} hc_observation;

static void observe_task(void *context, int64_t task, int thread) {
    hc_observation *job = context;
    const hc_encoder *encoder = job->blocks.encoder;
    hc_float_rows x;
    const float *thresholds;
    if (!hc_blocks_load(&job->blocks, task, thread, &x, &thresholds))
        return;
    hc_encode_state *state = &job->thread[thread].state;
    int64_t row = HC_DECLINED;
    for (hc_simd_sets set = hc_format_simd_sets(encoder->format.family); *set && row == HC_DECLINED; set++)
        if (runs(*set, job->isa) && (*set)->observe)
            row = (*set)->observe(&encoder->format, &encoder->geometry, job->pass, &x, thresholds, state);
    if (row == HC_DECLINED)
        row = encoder->ops->observe(&encoder->format, &encoder->geometry, job->pass, &x, thresholds, state);
    if (row != HC_DONE)
        atomic_store(&job->blocks.illegal, true);
}

static hc_status observe(hc_encoder *encoder, const hc_run *run, hc_error *error) {
    for (int pass = 0; pass < encoder->ops->passes(&encoder->format); pass++) {
        hc_observation job = {.isa = run->isa, .pass = pass};
        hc_status status = hc_blocks_init(&job.blocks, encoder, run, 0, hc_rows_with_values(encoder), 0, error);
        if (status != HC_OK)
            return status;
        for (int i = 0; i < job.blocks.n_threads; i++)
            job.thread[i].state = encoder->state;
        hc_parallel(job.blocks.n_threads, job.blocks.n_blocks, observe_task, &job);
        status = hc_blocks_finish(&job.blocks, error);
        if (status != HC_OK)
            return status;
        for (int i = 0; i < job.blocks.n_threads; i++)
            if (job.thread[i].state.maximum > encoder->state.maximum)
                encoder->state.maximum = job.thread[i].state.maximum;
        const hc_float_env saved = hc_float_env_enter();
        encoder->ops->finish(&encoder->format, pass, &encoder->state);
        hc_float_env_leave(saved);
    }
    return HC_OK;
}

/* All values in the order of the rows; false where one is NaN and a pattern has no place for it. */
static bool gather_whole(const hc_encoder *encoder, char *values, char *scratch) {
    const hc_geometry *g = &encoder->geometry;
    const hc_pruner *pruner = &encoder->pruner;
    if (encoder->format.m == 0) {
        hc_row_view view;
        hc_rows_init(&view, encoder->x, g, encoder->n_axes, encoder->axes);
        hc_rows_gather(&view, 0, g->rows, 0, g->padded, values, g->padded);
        return true;
    }
    const hc_kept_rows kept = {.dtype = hc_rows_dtype(&pruner->x),
                               .values = values,
                               .ld = g->padded,
                               .metadata = (uint8_t *)scratch + pruner->scratch_bytes}; /* of one row after the other */
    return hc_prune_rows(pruner, g->rows, scratch, &kept);
}

/* The threshold of all values. Memory: 12 bytes a value, 16 of float64. An illegal value is left to the passes, which
 * meet it again. */
static hc_status find_whole_threshold(hc_encoder *encoder, hc_error *error) {
    const hc_geometry *g = &encoder->geometry;
    const hc_dtype dtype = encoder->x->dtype == HC_F64 ? HC_F64 : HC_F32;
    const int64_t n = g->rows * g->padded;
    void *values = hc_alloc_aligned(n * hc_dtype_size(dtype));
    const int64_t pruning = encoder->pruner.scratch_bytes + encoder->pruner.row_bytes;
    double *scratch = hc_alloc_aligned(hc_max(n * (int64_t)sizeof *scratch, pruning));
    hc_status status = HC_OK;
    if (values && scratch && n > 0 && gather_whole(encoder, values, (char *)scratch)) {
        const hc_float_rows x = {values, dtype, n, 0, 1};
        const hc_geometry row = {1, 1, n, n, 1, 1, n, n, n, n};
        const hc_float_env saved = hc_float_env_enter();
        hc_clip_thresholds(&encoder->clip, &encoder->format, &row, &x, scratch, &encoder->threshold);
        hc_float_env_leave(saved);
    } else if (!values || !scratch) {
        status =
            hc_fail(error, HC_MEMORY, "%s: no memory for the threshold of %lld values", encoder->name, (long long)n);
    }
    hc_free_aligned(scratch);
    hc_free_aligned(values);
    return status;
}

static hc_status init_pruner(hc_encoder *encoder, const hc_run *run, hc_error *error) {
    const hc_geometry *g = &encoder->geometry;
    const hc_format *format = &encoder->format;
    if (format->m == 0)
        return HC_OK;
    hc_geometry whole = {0};
    int64_t row_bytes;
    const hc_status status = hc_geometry_of_axes(NULL, 1, encoder->x->ndim, encoder->x->shape, encoder->n_axes,
                                                 encoder->axes, &whole, error);
    if (status != HC_OK)
        return status;
    hc_geometry blocks = whole;
    if (!hc_prune_geometry(format->n, format->m, &blocks, &row_bytes))
        return hc_fail(error, HC_VALUE, "%s: the sizes of %s overflow", encoder->name, encoder->argument);
    hc_pruner_init(&encoder->pruner, run, encoder->x, NULL, format->n, format->m, &whole, encoder->n_axes,
                   encoder->axes);
    if (g->padded != g->columns)
        encoder->pruner.padded_run = g->groups_per_run * g->group;
    return HC_OK;
}

hc_status hc_encoder_init(hc_encoder *encoder, const hc_run *run, const char *name, const char *argument,
                          const hc_view *x, const hc_view *importance, const hc_format *format, int n_axes,
                          const int *axes, const hc_clip *clip, hc_error *error) {
    char full[64];
    snprintf(full, sizeof full, "%s: %s", name, argument);
    *encoder = (hc_encoder){.x = x, .format = *format, .n_axes = n_axes, .name = name, .argument = argument};
    hc_status status = hc_check_view(full, x, error);
    if (status == HC_OK)
        status = hc_format_geometry(format, x->ndim, x->shape, n_axes, axes, &encoder->geometry, error);
    if (status == HC_OK && format->m > 0 && importance)
        status = hc_fail(error, HC_VALUE, "%s: importance is for all values, a pattern keeps some of them", name);
    if (status == HC_OK && clip)
        status = hc_clip_check(clip, format, name, error);
    if (status == HC_OK && importance)
        status = hc_check_importance(name, importance, x, format, error);
    if (status != HC_OK)
        return status;
    memcpy(encoder->axes, axes, (size_t)n_axes * sizeof *axes);
    status = init_pruner(encoder, run, error);
    if (status != HC_OK)
        return status;
    encoder->ops = hc_format_find(format->family);
    encoder->importance = importance;
    encoder->state.geometry = &encoder->geometry;
    if (clip)
        encoder->clip = *clip;
    const int64_t shared = encoder->ops->shared ? encoder->ops->shared(format, &encoder->geometry) : 0;
    if (shared > 0 && !(encoder->state.shared = hc_alloc_aligned(shared * (int64_t)sizeof(float))))
        return hc_fail(error, HC_MEMORY, "%s: no memory for %lld numbers of %s", name, (long long)shared,
                       encoder->ops->name);
    if (encoder->clip.kind != HC_CLIP_ABSMAX && encoder->ops->clip_domain(format) == HC_CLIP_WHOLE)
        status = find_whole_threshold(encoder, error);
    if (status == HC_OK)
        status = observe(encoder, run, error);
    return status == HC_OK ? hc_learn_tensor(encoder, run, error) : status;
}

void hc_encoder_free(hc_encoder *encoder) {
    hc_free_aligned(encoder->state.shared);
    encoder->state.shared = NULL;
}

void hc_encoder_share(const hc_encoder *encoder, const hc_components *out) {
    if (encoder->ops->share)
        encoder->ops->share(&encoder->format, &encoder->geometry, &encoder->state, out);
}

int64_t hc_encode_block(const hc_encoder *encoder, uint32_t isa, const hc_float_rows *x, const float *thresholds,
                        const hc_components *out) {
    int64_t row = HC_DECLINED;
    for (hc_simd_sets set = hc_format_simd_sets(encoder->format.family); *set && row == HC_DECLINED; set++)
        if (runs(*set, isa) && (*set)->encode)
            row = (*set)->encode(&encoder->format, &encoder->geometry, &encoder->state, x, thresholds, out);
    if (row != HC_DECLINED)
        return row;
    return encoder->ops->encode(&encoder->format, &encoder->geometry, &encoder->state, x, thresholds, out);
}

typedef struct {
    hc_blocks blocks;
    const hc_components *out;
    uint32_t isa;
} hc_encode_job;

static void encode_task(void *context, int64_t task, int thread) {
    hc_encode_job *job = context;
    hc_float_rows x;
    const float *thresholds;
    if (!hc_blocks_load(&job->blocks, task, thread, &x, &thresholds))
        return;
    hc_blocks_metadata(&job->blocks, thread, &x, job->out);
    hc_learn_rows(&job->blocks, thread, &x, job->out);
    if (hc_encode_block(job->blocks.encoder, job->isa, &x, thresholds, job->out) != HC_DONE)
        atomic_store(&job->blocks.illegal, true);
}

int64_t hc_rows_with_values(const hc_encoder *encoder) {
    return encoder->geometry.padded > 0 ? encoder->geometry.rows : 0;
}

/* Rows without a value: whatever is stored of them is 0. */
static void clear_rows(const hc_encoder *encoder, int64_t rows, const hc_components *out) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    encoder->ops->layout(&encoder->format, &encoder->geometry, layout);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const int64_t bytes = layout[i].present && layout[i].per_row ? hc_component_bytes(&layout[i]) : 0;
        const hc_component *part = &out->part[i];
        if (bytes > 0 && part->row_stride == bytes)
            memset(part->data, 0, (size_t)(rows * bytes));
        for (int64_t row = 0; bytes > 0 && part->row_stride != bytes && row < rows; row++)
            memset(hc_part(out, (hc_component_id)i, row), 0, (size_t)bytes);
    }
}

hc_status hc_encoder_rows(const hc_encoder *encoder, const hc_run *run, int64_t first_row, int64_t rows,
                          hc_components *out, hc_error *error) {
    out->first_row = first_row;
    hc_encoder_share(encoder, out);
    if (encoder->geometry.padded == 0) {
        clear_rows(encoder, rows, out);
        rows = 0; /* what all rows share is written nevertheless */
    }
    hc_encode_job job = {.out = out, .isa = run->isa};
    const hc_status status = hc_blocks_init(&job.blocks, encoder, run, first_row, rows, 0, error);
    if (status != HC_OK)
        return status;
    hc_parallel(job.blocks.n_threads, job.blocks.n_blocks, encode_task, &job);
    return hc_blocks_finish(&job.blocks, error);
}

hc_status hc_components_alloc(const hc_format *format, const hc_geometry *geometry, int64_t rows,
                              hc_components *components, hc_error *error) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_format_layout(format, geometry, layout);
    memset(components, 0, sizeof *components);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        const int64_t bytes = hc_component_bytes(&layout[i]);
        hc_component *part = &components->part[i];
        part->row_stride = layout[i].per_row ? bytes : 0;
        part->data = hc_alloc_aligned(layout[i].per_row ? bytes * rows : bytes);
        if (!part->data) {
            hc_components_free(components);
            return hc_fail(error, HC_MEMORY, "no memory for %lld packed rows of %lld values", (long long)rows,
                           (long long)geometry->padded);
        }
    }
    return HC_OK;
}

void hc_components_free(hc_components *components) {
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        hc_free_aligned(components->part[i].data);
    memset(components, 0, sizeof *components);
}

void hc_decode_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    if (tile->rows == 0 || tile->columns == 0) /* then there may be no memory either */
        return;
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (runs(*set, run->isa) && (*set)->values &&
            (*set)->values(format, geometry, components, tile, values, ld) == HC_DONE)
            return;
    hc_format_find(format->family)->decode(format, geometry, components, tile, values, ld);
}

void hc_decode_int_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, hc_int_mode mode,
                        const hc_int_tile *out) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (runs(*set, run->isa) && (*set)->integers &&
            (*set)->integers(format, geometry, components, tile, mode, out) == HC_DONE)
            return;
    hc_format_find(format->family)->decode_int(format, geometry, components, tile, mode, out);
}

void hc_decode_codes_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                          const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (runs(*set, run->isa) && (*set)->codes && (*set)->codes(format, geometry, components, tile, out) == HC_DONE)
            return;
    hc_format_find(format->family)->decode_codes(format, geometry, components, tile, out);
}
