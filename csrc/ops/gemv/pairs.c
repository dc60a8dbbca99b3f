/* Weights in a pattern and a format with groups, times 1 to 8 float vectors, whole rows at a time: codes are decoded, the
 * x that they meet is put beside them, and groups go side by side. The order is that of nonzeros.c:
 *
 *   p = fmaf chain over the group's kept codes from +0; acc[g % 16] = fmaf(s_g, p, acc[g % 16])
 *
 * Memory: ROWS decoded rows and one of x for each thread.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROWS = 8, TASK_ROWS = 32, MAX_VECTORS = 8, GROUPS = 8, ROW_BYTES = 1 << 18 };

typedef struct {
    const hc_packed_context *weights;
    int64_t rows, n_vectors, values, groups; /* of a row in scratch: both rounded up */
    const float *x;
    int64_t ldx;
    hc_sparse_masks *masks;
    hc_compress_x32_fn *gather;
    hc_gemv_nm_pairs_fn *pairs;
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
    const hc_rows *out;
} hc_pairs_job;

/* One row times one vector: codes and x of `count` kept columns, the last group's chain by definition if it is short. */
static float multiply(const hc_pairs_job *job, const float *codes, const float *x, const float *scales, int64_t count) {
    const int64_t group = job->weights->geometry->group, whole = count / group;
    float sums[16] = {0};
    job->pairs(group, whole, codes, x, scales, sums);
    for (int64_t g = whole; g < job->weights->geometry->groups; g++) {
        float p = 0;
        for (int64_t t = g * group; t < hc_min((g + 1) * group, count); t++)
            p = fmaf(x[t], codes[t], p);
        sums[g % 16] = fmaf(scales[g], p, sums[g % 16]);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] = sums[i] + sums[i + half];
    return sums[0];
}

static void group_rows(void *context, int64_t task, int thread) {
    const hc_pairs_job *job = context;
    const hc_geometry *g = job->weights->geometry;
    const hc_format *format = job->weights->format;
    const hc_components *parts = job->weights->components;
    float *codes = (float *)(job->scratch + thread * job->scratch_bytes), *scales = codes + ROWS * job->values;
    float *x = scales + ROWS * job->groups, row_scale[ROWS];
    uint64_t *masks = (uint64_t *)(x + job->values);
    const int64_t last = hc_min((task + 1) * TASK_ROWS, job->rows);
    for (int64_t block = task * TASK_ROWS; block < last; block += ROWS) {
        const int64_t n_rows = hc_min(ROWS, last - block);
        const hc_tile tile = {job->weights->first_row + block, n_rows, 0, g->padded};
        const hc_code_tile decoded = {codes, job->values, scales, job->groups, row_scale};
        for (int i = 0; i < ROWS; i++)
            row_scale[i] = 1;
        hc_decode_codes_tile(job->weights->run, format, g, parts, &tile, &decoded);
        for (int64_t i = 0; i < n_rows; i++) {
            hc_sparse_masks_of(job->masks, hc_part(parts, HC_METADATA, job->weights->first_row + block + i), g->columns,
                               0, g->whole_length, masks);
            for (int64_t v = 0; v < job->n_vectors; v++) {
                const int64_t count = job->gather(g->whole_length, masks, job->x + v * job->ldx, x);
                const float y = multiply(job, codes + i * job->values, x, scales + i * job->groups, count);
                hc_gemv_store(job->out, block + i, v, y * row_scale[i]);
            }
        }
    }
}

const char *hc_gemv_pairs_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    if (reason)
        return reason;
    const hc_geometry *g = p->w_packed->geometry;
    if (!p->w->sparse)
        return "the weights have no pattern";
    if (!hc_format_find(p->w_packed->format->family)->has_groups(p->w_packed->format))
        return "the weights have no groups";
    const bool fits = g->padded * (int64_t)sizeof(float) <= ROW_BYTES && g->group <= ROW_BYTES / 64;
    return fits ? NULL : "rows too long to keep one in the cache";
}

hc_work hc_gemv_pairs_work(const hc_product *p) {
    const double rows = (double)p->w->rows, vectors = (double)p->x->rows;
    const double kept = (double)p->w_packed->geometry->columns;
    return (hc_work){.decoded = rows * kept,
                     .unpacked = hc_unpacked(p) ? rows * kept : 0,
                     .spread = rows * (double)p->w->columns * vectors,
                     .products = rows * kept * vectors,
                     .groups = hc_groups(p) * vectors};
}

hc_status hc_gemv_pairs_run(const hc_product *p, hc_error *error) {
    const hc_packed_context *weights = p->w_packed;
    const hc_geometry *geometry = weights->geometry;
    const hc_run *run = p->run;
    const int64_t rows = p->w->rows;
    hc_pairs_job job = {.weights = weights,
                        .rows = rows,
                        .n_vectors = p->x->rows,
                        .x = p->vectors,
                        .ldx = p->ld_vectors,
                        .out = &p->out};
    hc_sparse_masks masks;
    hc_sparse_masks_init(&masks, run, weights->format->n, weights->format->m);
    job.masks = &masks;
    job.gather = HC_PICK(compress_x32, run);
    job.pairs = HC_PICK(gemv_nm_pairs, run);
    /* what kernels read behind the last group, or write behind the last value */
    job.values = hc_round_up((hc_round_up(geometry->groups, GROUPS) * geometry->group) + 16, 16);
    job.groups = hc_round_up(geometry->groups, 16);
    const int64_t floats = ROWS * (job.values + job.groups) + job.values;
    const int64_t words = hc_ceil_div(geometry->whole_length, 64) + 1;
    job.scratch_bytes = hc_round_up(floats * (int64_t)sizeof(float) + words * 8, HC_CACHE_LINE);
    const int64_t n_tasks = hc_ceil_div(rows, TASK_ROWS);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), hc_max(n_tasks, 1));
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    if (!job.scratch)
        return hc_fail(error, HC_MEMORY, "matmul: no memory for the rows of %d threads", n_threads);
    memset(job.scratch, 0, (size_t)(job.scratch_bytes * n_threads));
    hc_parallel(n_threads, n_tasks, group_rows, &job);
    hc_free_aligned(job.scratch);
    return HC_OK;
}
