/* Encoding: blocks of rows, each by the best kernel that accepts it, otherwise by the format's definition. */
#include "ops/codec/encoder.h"

#include "ops/codec/blocks.h"
#include "ops/codec/decode.h"
#include "ops/codec/learn.h"

#include "base/float_env.h"
#include "base/threads.h"

#include <string.h>

/* One pass over the whole array; every thread collects into a state of its own. */
typedef struct {
    hc_blocks blocks;
    uint32_t isa;
    int pass;
    struct hc_thread_state {
        _Alignas(HC_CACHE_LINE) hc_encode_state state;
    } *thread;
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
        if (hc_simd_runs(*set, job->isa) && (*set)->observe)
            row = (*set)->observe(&encoder->format, &encoder->geometry, job->pass, &x, thresholds, state);
    if (row == HC_DECLINED)
        row = encoder->ops->observe(&encoder->format, &encoder->geometry, job->pass, &x, thresholds, state);
    if (row != HC_DONE)
        atomic_store(&job->blocks.illegal, true);
}

static hc_status observe(hc_encoder *encoder, const hc_run *run, hc_error *error) {
    for (int pass = 0; pass < hc_passes(&encoder->format); pass++) {
        hc_observation job = {.isa = run->isa, .pass = pass};
        hc_status status = hc_blocks_init(&job.blocks, encoder, run, 0, hc_rows_with_values(encoder), 0, error);
        if (status != HC_OK)
            return status;
        const int n_threads = job.blocks.n_threads;
        job.thread = hc_alloc_aligned(n_threads * (int64_t)sizeof *job.thread);
        for (int i = 0; job.thread && i < n_threads; i++)
            job.thread[i].state = encoder->state;
        if (job.thread)
            hc_parallel(n_threads, job.blocks.n_blocks, observe_task, &job);
        status = hc_blocks_finish(&job.blocks, error);
        if (!job.thread)
            return hc_fail(error, HC_MEMORY, "%s: not enough memory for %d threads", encoder->name, n_threads);
        for (int i = 0; i < n_threads; i++)
            if (job.thread[i].state.maximum > encoder->state.maximum)
                encoder->state.maximum = job.thread[i].state.maximum;
        hc_free_aligned(job.thread);
        if (status != HC_OK)
            return status;
        const hc_float_env saved = hc_float_env_enter();
        encoder->ops->finish(&encoder->format, pass, &encoder->state);
        hc_float_env_leave(saved);
    }
    return HC_OK;
}

void hc_encoder_init(hc_encoder *encoder, const hc_run *run, const char *name, const char *argument, const hc_view *x,
                     const hc_format *format, const hc_geometry *geometry, int n_axes, const int *axes) {
    *encoder = (hc_encoder){.x = x,
                            .format = *format,
                            .ops = hc_format_find(format->family),
                            .geometry = *geometry,
                            .n_axes = n_axes,
                            .name = name,
                            .argument = argument};
    memcpy(encoder->axes, axes, (size_t)n_axes * sizeof *axes);
    encoder->state.geometry = &encoder->geometry;
    if (format->m == 0)
        return;
    hc_pruner_init(&encoder->pruner, run, x, NULL, format->n, format->m, geometry, n_axes, axes);
    if (geometry->padded != geometry->columns)
        encoder->pruner.padded_run = geometry->groups_per_run * geometry->group;
}

hc_status hc_encoder_check_rows(const hc_encoder *encoder, const hc_run *run, hc_error *error) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_format_layout(&encoder->format, &encoder->geometry, layout);
    for (int i = 0; run->one_order && i < HC_N_COMPONENTS; i++)
        if (layout[i].present && !layout[i].per_row)
            return hc_fail(error, HC_VALUE,
                           "%s is a format with a scale or codebook for the whole array, expected one for each row "
                           "under hc.use(order='one')",
                           encoder->name);
    return HC_OK;
}

hc_status hc_encoder_observe(hc_encoder *encoder, const hc_run *run, hc_error *error) {
    const int64_t shared = encoder->ops->shared ? encoder->ops->shared(&encoder->format, &encoder->geometry) : 0;
    if (shared > 0 && !(encoder->state.shared = hc_alloc_aligned(shared * (int64_t)sizeof(float))))
        return hc_fail(error, HC_MEMORY, "%s: not enough memory for %lld numbers of %s", encoder->name,
                       (long long)shared, encoder->ops->name);
    encoder->learn_row_bytes = hc_learn_row_bytes(encoder);
    const hc_status status = observe(encoder, run, error);
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
                        const hc_float_rows *weights, const hc_components *out) {
    int64_t row = HC_DECLINED;
    hc_encode_state state = encoder->state;
    state.weights = weights;
    const hc_geometry *geometry = &encoder->geometry;
    hc_geometry joined;
    hc_components codes = *out;
    hc_float_rows one = *x;
    if (hc_rows_join(&encoder->format, geometry, out, x->rows, x->row_stride, &joined)) {
        codes.part[HC_CODES].data = hc_part(out, HC_CODES, x->first_row);
        codes.part[HC_CODES].row_stride = 0; /* the row keeps its number: row 0 alone writes what all rows share */
        one.rows = 1;
        geometry = &joined, x = &one, out = &codes;
    }
    for (hc_simd_sets set = hc_format_simd_sets(encoder->format.family); *set && row == HC_DECLINED; set++)
        if (hc_simd_runs(*set, isa) && (*set)->encode)
            row = (*set)->encode(&encoder->format, geometry, &state, x, thresholds, out);
    if (row != HC_DECLINED)
        return row;
    return encoder->ops->encode(&encoder->format, geometry, &state, x, thresholds, out);
}

static int64_t weight_row_bytes(const hc_encoder *encoder) {
    const bool weighs = encoder->importance && encoder->ops->weighs && encoder->ops->weighs(&encoder->format);
    return weighs ? encoder->geometry.padded * hc_dtype_size(HC_F64) : 0;
}

typedef struct {
    hc_blocks blocks;
    const hc_components *out;
    uint32_t isa;
} hc_encode_job;

/* Loads the weights of the rows of x into the extra memory of the block; NULL if encoding uses no weights. */
static const hc_float_rows *load_weights(const hc_blocks *blocks, int thread, const hc_float_rows *x,
                                         hc_float_rows *weights) {
    const hc_encoder *encoder = blocks->encoder;
    if (weight_row_bytes(encoder) == 0)
        return NULL;
    hc_row_view view;
    hc_rows_init(&view, encoder->importance, &encoder->geometry, encoder->n_axes, encoder->axes);
    *weights = (hc_float_rows){.data = hc_blocks_extra(blocks, thread),
                               .dtype = hc_rows_dtype(&view),
                               .row_stride = encoder->geometry.padded,
                               .first_row = x->first_row,
                               .rows = x->rows};
    hc_rows_gather(&view, blocks->isa, blocks->first_row + x->first_row, x->rows, 0, encoder->geometry.padded,
                   hc_blocks_extra(blocks, thread), encoder->geometry.padded);
    return weights;
}

static void encode_task(void *context, int64_t task, int thread) {
    hc_encode_job *job = context;
    hc_float_rows x, weights;
    const float *thresholds;
    if (!hc_blocks_load(&job->blocks, task, thread, &x, &thresholds))
        return;
    hc_blocks_metadata(&job->blocks, thread, &x, job->out);
    hc_learn_rows(&job->blocks, job->isa, thread, &x, job->out);
    if (hc_encode_block(job->blocks.encoder, job->isa, &x, thresholds, load_weights(&job->blocks, thread, &x, &weights),
                        job->out) != HC_DONE)
        atomic_store(&job->blocks.illegal, true);
}

/* Rows without values: all of their stored bytes are 0. */
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
        rows = 0; /* the components that all rows share are written nevertheless */
    }
    hc_encode_job job = {.out = out, .isa = run->isa};
    const hc_status status =
        hc_blocks_init(&job.blocks, encoder, run, first_row, rows, weight_row_bytes(encoder), error);
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
            return hc_fail(error, HC_MEMORY, "not enough memory for %lld packed rows of %lld values", (long long)rows,
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
