/* Weights that keep n of every m times 1 to 8 vectors, in the order of few.c with what is not kept left out:
 *
 *   groups      p = fmaf chain over the group's kept codes from +0; acc[g % 16] = fmaf(s_g, p, acc[g % 16])
 *   no groups   acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]), k the whole column; folded in halves, times the row's scale
 *
 * Threads share the weight rows; each decodes TILE kept columns of a row at a time.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/few_stored.h"
#include "ops/sparse.h"
#include "sparsity/nm.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, TILE = 2048, MAX_VECTORS = 8, LANES = 64 };

typedef struct {
    const hc_run *run;
    const hc_packed *weights;
    const hc_geometry *geometry;
    int64_t first_row, rows, n_vectors;
    const float *x;
    int64_t ldx;
    bool has_groups, is_plain;
    hc_few_kept_fn *kernel;
    hc_masks_nm_fn *masks;
    hc_few_quads_fn *quads; /* 2:4, or NULL */
    const hc_rows *out;
} hc_sparse_few_job;

typedef struct {
    float codes[TILE], scales[TILE], row_scale;
    uint8_t position[TILE];
    uint64_t masks[TILE * HC_MAX_M / 64 + 1];
    float sums[MAX_VECTORS][LANES], p[MAX_VECTORS];
} hc_sparse_few_state;

static float fold(float *lanes, int n) {
    if (n == LANES) { /* loops of lengths that compilers know */
        for (int i = 0; i < LANES / 2; i++)
            lanes[i] = lanes[i] + lanes[i + LANES / 2];
        for (int i = 0; i < LANES / 4; i++)
            lanes[i] = lanes[i] + lanes[i + LANES / 4];
    }
    for (int i = 0; i < 8; i++)
        lanes[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        lanes[i] = lanes[i] + lanes[i + 4];
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/* Kept columns [first, first + count) with groups; first is a block's. */
static void add_groups(const hc_sparse_few_job *job, hc_sparse_few_state *state, int64_t first, int64_t count) {
    const hc_geometry *g = job->geometry;
    const int n = job->weights->format.n, m = job->weights->format.m;
    for (int64_t v = 0; v < job->n_vectors; v++) {
        const float *x = job->x + v * job->ldx;
        float *sums = state->sums[v], p = state->p[v];
        for (int64_t t = first; t < first + count; t++) {
            const int64_t column = t / n * m + state->position[t - first], group = t / g->group;
            if (column < g->whole_length)
                p = fmaf(x[column], state->codes[t - first], p);
            if ((t + 1) % g->group == 0 || t + 1 == g->columns) {
                sums[group % 16] = fmaf(state->scales[group - first / g->group], p, sums[group % 16]);
                p = 0;
            }
        }
        state->p[v] = p;
    }
}

/* Whole columns from a block on that begins a word of 64, without groups. */
static void add_columns(const hc_sparse_few_job *job, hc_sparse_few_state *state, const uint8_t *metadata,
                        const float *codes, const float *end, int64_t block, int64_t columns) {
    const int n = job->weights->format.n, m = job->weights->format.m;
    const int64_t words = job->quads ? columns / 64 : 0, blocks = words * 64 / m, rest = columns - words * 64;
    if (rest > 0)
        hc_sparse_masks(job->masks, metadata, job->geometry->columns, n, m, block + blocks, rest, state->masks);
    for (int64_t v = 0; v < job->n_vectors;) {
        const int vectors = job->n_vectors - v >= 4 ? 4 : job->n_vectors - v >= 2 ? 2 : 1;
        const float *x = job->x + v * job->ldx + block * m;
        if (words > 0)
            job->quads(words, metadata + block / 2, codes, x, job->ldx, vectors, state->sums[v]);
        if (rest > 0)
            job->kernel(hc_ceil_div(rest, 64), state->masks, codes + blocks * n, end, x + words * 64, job->ldx, vectors,
                        state->sums[v]);
        v += vectors;
    }
}

static void one_row(const hc_sparse_few_job *job, hc_sparse_few_state *state, int64_t row) {
    const hc_geometry *g = job->geometry;
    const hc_format *format = &job->weights->format;
    const hc_components *parts = &job->weights->components;
    const int n = format->n, m = format->m;
    const int64_t at_once = TILE / (n * LANES) * n * LANES; /* so many whole blocks begin at lane 0 */
    const uint8_t *metadata = hc_part(parts, HC_METADATA, row);
    memset(state->sums, 0, (size_t)job->n_vectors * sizeof *state->sums);
    memset(state->p, 0, sizeof state->p);
    state->row_scale = 1;
    for (int64_t first = 0; first < g->columns; first += at_once) {
        const int64_t count = hc_min(at_once, g->columns - first), block = first / n, column = block * m;
        const hc_tile tile = {row, 1, first, hc_min(at_once, g->padded - first)};
        const hc_code_tile out = {state->codes, TILE, state->scales, TILE, &state->row_scale};
        const float *codes = state->codes, *end = state->codes + TILE;
        if (job->is_plain && (uintptr_t)hc_part(parts, HC_CODES, row) % sizeof *codes == 0) {
            codes = (const float *)hc_part(parts, HC_CODES, row) + first;
            end = codes + (g->columns - first);
        } else {
            hc_decode_codes_tile(job->run, format, g, parts, &tile, &out);
        }
        if (job->has_groups) {
            hc_nm_positions(metadata, g->columns, m, first, count, state->position);
            add_groups(job, state, first, count);
            continue;
        }
        add_columns(job, state, metadata, codes, end, block, hc_min(count / n * m, g->whole_length - column));
    }
}

static void few_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_sparse_few_job *job = context;
    hc_sparse_few_state state;
    const int64_t first = task * ROWS, end = hc_min(first + ROWS, job->rows);
    for (int64_t row = first; row < end; row++) {
        one_row(job, &state, job->first_row + row);
        for (int64_t v = 0; v < job->n_vectors; v++)
            hc_few_store(job->out, row, v, fold(state.sums[v], job->has_groups ? 16 : LANES) * state.row_scale);
    }
}

hc_status hc_sparse_few(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry, int64_t first_row,
                        int64_t rows, const float *x, int64_t ldx, int64_t n_vectors, const hc_rows *out,
                        hc_error *error) {
    hc_sparse_few_job job = {.run = run,
                             .weights = weights,
                             .geometry = geometry,
                             .first_row = first_row,
                             .rows = rows,
                             .n_vectors = n_vectors,
                             .x = x,
                             .ldx = ldx,
                             .out = out};
    const hc_format_ops *ops = hc_format_find(weights->format.family);
    job.has_groups = ops->has_groups(&weights->format);
    bool served = rows == 0 || n_vectors == 0;
    hc_status status = HC_OK;
    if (job.has_groups && !served)
        status = hc_sparse_few_quads(run, weights, geometry, first_row, rows, x, ldx, n_vectors, out, &served, error);
    if (job.has_groups && !served && status == HC_OK)
        status = hc_sparse_few_groups(run, weights, geometry, first_row, rows, x, ldx, n_vectors, out, &served, error);
    if (status != HC_OK)
        return status;
    if (served)
        return HC_OK;
    job.is_plain = ops->is_plain && ops->is_plain(&weights->format);
    job.kernel = (hc_few_kept_fn *)hc_kernel_pick("few_kept", run->isa, NULL)->fn;
    const hc_kernel *quads = hc_kernel_pick("few_quads", run->isa, NULL);
    if (quads && weights->format.n == 2 && weights->format.m == 4)
        job.quads = (hc_few_quads_fn *)quads->fn;
    job.masks = hc_sparse_masks_line(run);
    const int64_t n_tasks = hc_ceil_div(rows, ROWS);
    hc_parallel((int)hc_min(run->n_threads, n_tasks), n_tasks, few_task, &job);
    return HC_OK;
}
