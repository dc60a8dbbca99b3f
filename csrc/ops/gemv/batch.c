/* Weights with a pattern, in any format, times some float vectors in lanes. A nonzero code is read once and multiplied
 * by the values of its column in all vectors. The order is that of nonzeros.c.
 *
 *   panel[column][8]   x, with zeros after the last vector and after the last column
 *
 * Memory: the panel; four decoded rows and their columns for each thread.
 */
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <string.h>

enum { TASK_ROWS = 32, ROW_BYTES = 1 << 18, MAX_COLUMNS = 1 << 16, MOST = 64 };

typedef struct {
    const hc_packed_context *weights;
    int64_t rows, n_vectors, values, groups; /* of a row in scratch */
    bool has_groups;
    hc_gemv_nm_batch_fn *kernel;
    hc_indices_nm_fn *place; /* or NULL */
    float *panel;
    uint16_t *base; /* of each kept value's block */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
    const hc_rows *out;
} hc_batch_job;

static void place(const hc_batch_job *job, int64_t row, uint16_t *at) {
    const int m = job->weights->format->m;
    const int64_t kept = job->weights->geometry->columns, bytes = hc_ceil_div(kept * hc_position_bits(m), 8);
    const uint8_t *metadata = hc_part(job->weights->components, HC_METADATA, row);
    int64_t t = job->place ? job->place(m, metadata, bytes, job->base, kept, at) : 0;
    uint8_t position[256];
    for (int64_t some; t < kept; t += some) {
        some = hc_min((int64_t)sizeof position, kept - t);
        hc_nm_positions(metadata, kept, m, t, some, position);
        for (int64_t i = 0; i < some; i++)
            at[t + i] = (uint16_t)(job->base[t + i] + position[i]);
    }
}

static void fold_rows(const hc_batch_job *job, int64_t row, int64_t n_rows, float *sums, const float *row_scale) {
    const int lanes = job->has_groups ? 16 : MOST;
    for (int64_t r = 0; r < n_rows; r++) {
        float *sum = sums + r * lanes * HC_GEMV_BATCH;
        for (int half = lanes / 2 * HC_GEMV_BATCH; half >= HC_GEMV_BATCH; half /= 2)
            for (int i = 0; i < half; i++)
                sum[i] = sum[i] + sum[i + half];
        for (int64_t v = 0; v < job->n_vectors; v++)
            hc_gemv_store(job->out, row + r, v, sum[v] * row_scale[r]);
    }
}

static void batch_rows(void *context, int64_t task, int thread) {
    const hc_batch_job *job = context;
    const hc_geometry *g = job->weights->geometry;
    const hc_format *format = job->weights->format;
    const hc_components *parts = job->weights->components;
    float *codes = (float *)(job->scratch + thread * job->scratch_bytes), *scales = codes + HC_GEMV_ROWS * job->values;
    uint16_t *at = (uint16_t *)(scales + HC_GEMV_ROWS * job->groups);
    float sums[HC_GEMV_ROWS * MOST * HC_GEMV_BATCH];
    const int64_t last = hc_min((task + 1) * TASK_ROWS, job->rows);
    for (int64_t row = task * TASK_ROWS; row < last; row += HC_GEMV_ROWS) {
        const int64_t n_rows = hc_min(HC_GEMV_ROWS, last - row);
        const hc_tile tile = {job->weights->first_row + row, n_rows, 0, g->padded};
        float row_scale[HC_GEMV_ROWS] = {1, 1, 1, 1};
        const hc_code_tile decoded = {codes, job->values, scales, job->groups, row_scale};
        hc_gemv_nm_batch_args args = {.n_vectors = (int)job->n_vectors,
                                      .kept = g->columns,
                                      .group = job->has_groups ? g->group : 0,
                                      .panel = job->panel,
                                      .sums = sums};
        hc_decode_codes_tile(job->weights->run, format, g, parts, &tile, &decoded);
        memset(sums, 0, sizeof sums);
        for (int64_t r = 0; r < HC_GEMV_ROWS; r++) {
            const int64_t own = hc_min(r, n_rows - 1); /* the last rows again, whose sums are not used */
            args.codes[r] = codes + own * job->values;
            args.scales[r] = scales + own * job->groups;
            args.at[r] = at + own * job->values;
            if (own < r)
                continue;
            place(job, job->weights->first_row + row + r, at + r * job->values);
            /* a position after the last column is multiplied by a 0 of the panel: adding -0 changes no sum */
            for (int64_t t = g->columns - format->n; t < g->columns; t++)
                if (args.at[r][t] >= g->whole_length)
                    codes[r * job->values + t] = -0.0f;
        }
        job->kernel(&args);
        fold_rows(job, row, n_rows, sums, row_scale);
    }
}

const char *hc_gemv_batch_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    if (reason)
        return reason;
    const hc_geometry *g = p->w_packed->geometry;
    if (!p->w->sparse)
        return "the weights have no pattern";
    const int64_t columns = g->columns / p->w_packed->format->n * p->w_packed->format->m;
    return columns > MAX_COLUMNS || g->padded * (int64_t)sizeof(float) > ROW_BYTES
               ? "rows too long to keep one in the cache"
               : NULL;
}

/* All lanes are multiplied, for every number of vectors. */
hc_work hc_gemv_batch_work(const hc_product *p) {
    const hc_format *format = p->w_packed->format;
    const double codes = (double)p->w->rows * (double)p->w_packed->geometry->columns;
    const bool has_groups = hc_has_groups(format);
    return (hc_work){.decoded = codes,
                     .unpacked = hc_unpacked(p) ? codes : 0,
                     .groups = has_groups ? hc_groups(p) : 0,
                     .values = hc_values_and_results(p, HC_GEMV_BATCH, 30)};
}

hc_status hc_gemv_batch_run(const hc_product *p, hc_error *error) {
    const hc_packed_context *weights = p->w_packed;
    const hc_geometry *geometry = weights->geometry;
    const hc_format *format = weights->format;
    const hc_run *run = p->run;
    const int n = format->n, m = format->m;
    const int64_t blocks = geometry->columns / n, columns = blocks * m, kept = geometry->columns;
    const int64_t rows = p->w->rows, n_vectors = p->x->rows, ldx = p->ld_vectors;
    const float *x = p->vectors;
    hc_batch_job job = {
        .weights = weights, .rows = rows, .n_vectors = n_vectors, .has_groups = hc_has_groups(format), .out = &p->out};
    job.place = HC_PICK(indices_nm, run);
    job.kernel = HC_PICK(gemv_nm_batch, run);
    job.values = hc_round_up(geometry->padded, 16) + 32;
    job.groups = hc_round_up(geometry->groups, 16);
    job.scratch_bytes = hc_round_up(HC_GEMV_ROWS * (job.values * 6 + job.groups * 4), HC_CACHE_LINE);
    const int64_t n_tasks = hc_ceil_div(rows, TASK_ROWS);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), hc_max(n_tasks, 1));
    const int64_t panel_bytes = columns * HC_GEMV_BATCH * (int64_t)sizeof(float);
    job.panel = hc_alloc_aligned(panel_bytes + kept * (int64_t)sizeof *job.base);
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    hc_status status = HC_OK;
    if (job.panel && job.scratch) {
        memset(job.panel, 0, (size_t)panel_bytes);
        for (int64_t k = 0; k < geometry->whole_length; k++)
            for (int64_t v = 0; v < n_vectors; v++)
                job.panel[k * HC_GEMV_BATCH + v] = x[v * ldx + k];
        job.base = (uint16_t *)(job.panel + columns * HC_GEMV_BATCH);
        for (int64_t block = 0, t = 0; block < blocks; block++)
            for (int i = 0; i < n; i++, t++)
                job.base[t] = (uint16_t)(block * m);
        hc_parallel(n_threads, n_tasks, batch_rows, &job);
    } else {
        status = hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)n_vectors);
    }
    hc_free_aligned(job.scratch);
    hc_free_aligned(job.panel);
    return status;
}
