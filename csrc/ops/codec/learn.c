/* The values and weights from which codebooks are learned. */
#include "ops/codec/learn.h"

#include "base/float_env.h"
#include "base/threads.h"
#include "base/watch.h"

#include <string.h>

static hc_learning learning_of(const hc_encoder *encoder) {
    return encoder->ops->learns ? encoder->ops->learns(&encoder->format) : HC_LEARN_NONE;
}

static hc_learn_fn *learn_of(const hc_encoder *encoder, uint32_t isa) {
    for (hc_simd_sets set = hc_format_simd_sets(encoder->format.family); *set; set++)
        if (hc_simd_runs(*set, isa) && (*set)->learn)
            return (*set)->learn;
    return encoder->ops->learn;
}

static int64_t values_of_row(const hc_encoder *encoder) {
    return encoder->ops->learn_count(&encoder->format, &encoder->geometry);
}

/* A row of importance, at `memory`; NULL if there is none. */
static const hc_float_rows *load_importance(const hc_blocks *blocks, int64_t row, void *memory, hc_float_rows *rows) {
    const hc_encoder *encoder = blocks->encoder;
    if (!encoder->importance)
        return NULL;
    hc_row_view view;
    hc_rows_init(&view, encoder->importance, &encoder->geometry, encoder->n_axes, encoder->axes);
    hc_rows_gather(&view, blocks->isa, row, 1, 0, encoder->geometry.padded, memory, encoder->geometry.padded);
    *rows = (hc_float_rows){.data = memory, .dtype = hc_rows_dtype(&view), .first_row = row, .rows = 1};
    return rows;
}

/* Start of each part of a row's memory. */
typedef struct {
    int64_t weights, importance, scratch, bytes;
} hc_row_memory;

static hc_row_memory row_memory(const hc_encoder *encoder) {
    const int64_t n = values_of_row(encoder), is_weighted = encoder->importance != NULL;
    hc_row_memory memory = {.weights = hc_round_up(n * 4, HC_CACHE_LINE)};
    memory.importance = memory.weights + hc_round_up(is_weighted * n * 8, HC_CACHE_LINE);
    memory.scratch = memory.importance + hc_round_up(is_weighted * encoder->geometry.padded * 8, HC_CACHE_LINE);
    memory.bytes = memory.scratch + encoder->ops->learn_bytes(&encoder->format, n, is_weighted);
    return memory;
}

int64_t hc_learn_row_bytes(const hc_encoder *encoder) {
    return learning_of(encoder) == HC_LEARN_ROW ? hc_round_up(row_memory(encoder).bytes, HC_CACHE_LINE) : 0;
}

void hc_learn_rows(const hc_blocks *blocks, uint32_t isa, int thread, const hc_float_rows *x,
                   const hc_components *out) {
    const hc_encoder *encoder = blocks->encoder;
    if (learning_of(encoder) != HC_LEARN_ROW)
        return;
    const hc_row_memory at = row_memory(encoder);
    hc_learn_fn *learn = learn_of(encoder, isa);
    char *memory = blocks->memory + thread * blocks->thread_bytes + blocks->learn_at;
    float *values = (float *)(void *)memory;
    double *weights = encoder->importance ? (double *)(void *)(memory + at.weights) : NULL;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_float_rows rows;
        const hc_float_rows *importance = load_importance(blocks, out->first_row + row, memory + at.importance, &rows);
        const int64_t n =
            encoder->ops->learn_values(&encoder->format, &encoder->geometry, x, importance, i, values, weights);
        learn(&encoder->format, values, weights, n, memory + at.scratch, hc_part(out, HC_CODEBOOK, row));
    }
}

typedef struct {
    hc_blocks blocks;
    float *values;
    double *weights;
    int64_t *count; /* values of each row; a row is stored as if all rows before it were full */
} hc_collect_job;

static void collect_task(void *context, int64_t task, int thread) {
    hc_collect_job *job = context;
    const hc_encoder *encoder = job->blocks.encoder;
    const int64_t n = values_of_row(encoder);
    hc_float_rows x, rows;
    const float *thresholds;
    if (!hc_blocks_load(&job->blocks, task, thread, &x, &thresholds))
        return;
    for (int64_t i = 0; i < x.rows; i++) {
        const int64_t row = x.first_row + i;
        const hc_float_rows *importance =
            load_importance(&job->blocks, row, hc_blocks_extra(&job->blocks, thread), &rows);
        job->count[row] =
            encoder->ops->learn_values(&encoder->format, &encoder->geometry, &x, importance, i, job->values + row * n,
                                       job->weights ? job->weights + row * n : NULL);
    }
}

/* Closes the gaps after rows that have fewer values; returns the total number of values. */
static int64_t close_gaps(const hc_collect_job *job, int64_t rows, int64_t n) {
    int64_t total = 0;
    for (int64_t row = 0; row < rows; total += job->count[row++]) {
        if (total == row * n)
            continue;
        const size_t count = (size_t)job->count[row];
        memmove(job->values + total, job->values + row * n, count * sizeof *job->values);
        if (job->weights)
            memmove(job->weights + total, job->weights + row * n, count * sizeof *job->weights);
    }
    return total;
}

hc_status hc_learn_tensor(hc_encoder *encoder, const hc_run *run, hc_error *error) {
    if (learning_of(encoder) != HC_LEARN_TENSOR)
        return HC_OK;
    const int64_t rows = hc_rows_with_values(encoder), n = rows * values_of_row(encoder);
    const bool is_weighted = encoder->importance != NULL;
    hc_collect_job job = {.values = hc_alloc_aligned(n * 4),
                          .weights = is_weighted ? hc_alloc_aligned(n * 8) : NULL,
                          .count = hc_alloc_aligned(rows * 8)};
    void *scratch = hc_alloc_aligned(encoder->ops->learn_bytes(&encoder->format, n, is_weighted));
    hc_status status = HC_OK;
    if (!job.values || !job.count || !scratch || (is_weighted && !job.weights))
        status = hc_fail(error, HC_MEMORY, "%s: not enough memory to learn a codebook of %lld values", encoder->name,
                         (long long)n);
    if (status == HC_OK)
        status =
            hc_blocks_init(&job.blocks, encoder, run, 0, rows, is_weighted ? encoder->geometry.padded * 8 : 0, error);
    if (status == HC_OK) {
        hc_parallel(job.blocks.n_threads, job.blocks.n_blocks, collect_task, &job);
        status = hc_blocks_finish(&job.blocks, error);
        status = hc_stopping() ? HC_STOPPED : status; /* the counts of skipped rows are no sizes */
    }
    if (status == HC_OK) {
        const hc_float_env saved = hc_float_env_enter();
        learn_of(encoder, run->isa)(&encoder->format, job.values, job.weights,
                                    close_gaps(&job, rows, values_of_row(encoder)), scratch, encoder->state.shared);
        hc_float_env_leave(saved);
    }
    hc_free_aligned(scratch);
    hc_free_aligned(job.count);
    hc_free_aligned(job.weights);
    hc_free_aligned(job.values);
    return status;
}
