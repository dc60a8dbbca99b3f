/* Weights of 2:4 with 4-bit codes and group scales, times 1 to 8 float vectors, read as they are stored. The order is
 * that of nonzeros.c. The kernel processes whole groups of four rows. If the row ends inside its last group, the
 * definition computes that group.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"
#include "sparsity/nm.h"

#include <math.h>
#include <string.h>

enum { MAX_CHUNKS = 2, LANES = 16, LONGEST = 64, TASK_ROWS = 32 };

typedef struct {
    hc_gemv_weights weights;
    hc_gemv_24_groups_fn *kernel;
    int64_t whole, places, values; /* groups; floats of a vector, of all in the kernel's order */
    int n_chunks, chunk_vectors[MAX_CHUNKS];
    float *ordered[MAX_CHUNKS];
    const float *x;
    int64_t ldx, n_vectors;
    uint8_t *scratch;
    int64_t scratch_bytes; /* of one thread */
    const hc_rows *out;
} hc_24_job;

/* Adds the part after the whole groups: at most one group. */
static void add_last(const hc_24_job *job, int64_t row, const float *x, float *sums) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_packed_context *packed = weights->packed;
    const hc_geometry *g = packed->geometry;
    const hc_components *parts = packed->components;
    const int64_t first = job->whole * g->group, count = g->columns - first;
    float codes[LONGEST], scale = 0, row_scale = 1, p = 0;
    uint8_t position[LONGEST];
    const hc_tile tile = {packed->first_row + row, 1, first, g->padded - first};
    const hc_code_tile decoded = {codes, LONGEST, &scale, 1, &row_scale};
    hc_decode_codes_tile(packed->run, packed->format, g, parts, &tile, &decoded);
    hc_nm_positions(hc_part(parts, HC_METADATA, packed->first_row + row), g->columns, 4, first, count, position);
    for (int64_t t = 0; t < count; t++) {
        const int64_t column = (first + t) / 2 * 4 + position[t];
        if (column < g->whole_length)
            p = fmaf(x[column], codes[t], p);
    }
    sums[job->whole % LANES] = fmaf(scale, p, sums[job->whole % LANES]);
}

static void rows_24(void *context, int64_t task, int thread) {
    const hc_24_job *job = context;
    const hc_gemv_weights *weights = &job->weights;
    const hc_packed_context *packed = weights->packed;
    const hc_geometry *g = packed->geometry;
    const hc_components *parts = packed->components;
    const int64_t last = hc_min((task + 1) * TASK_ROWS, weights->rows);
    const int scale_bits = hc_gemv_scale_bits(&weights->form) == 4 ? 4 : 0; /* others are loaded as float32 */
    uint8_t *scratch = job->scratch + thread * job->scratch_bytes;
    for (int64_t row = task * TASK_ROWS; row < last; row += HC_GEMV_ROWS) {
        hc_gemv_row rows[HC_GEMV_ROWS];
        hc_gemv_24_floats_args args = {.floats = {.bits = 4,
                                                  .flip = weights->flip,
                                                  .zero = weights->zero,
                                                  .unit = 1,
                                                  .scale_bits = scale_bits ? scale_bits : 32,
                                                  .columns = g->columns,
                                                  .group = g->group,
                                                  .groups = job->whole}};
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            const int64_t at = hc_min(row + r, last - 1);
            hc_gemv_row_load(weights, at, !scale_bits, scratch + r * weights->scratch_bytes, NULL, &rows[r]);
            args.floats.codes[r] = rows[r].codes;
            args.floats.scales[r] =
                scale_bits ? hc_part(parts, HC_SCALES, packed->first_row + at) : (const uint8_t *)rows[r].scales;
            args.floats.table[r] = rows[r].table;
            args.floats.next[r] = hc_gemv_row_codes(weights, row + r + HC_GEMV_ROWS);
            args.metadata[r] = hc_part(parts, HC_METADATA, packed->first_row + at);
        }
        for (int chunk = 0; chunk < job->n_chunks; chunk++) {
            const int n_vectors = job->chunk_vectors[chunk];
            float sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][LANES];
            args.floats.n_vectors = n_vectors;
            args.floats.x = job->ordered[chunk];
            args.floats.out = sums[0];
            job->kernel(&args);
            for (int r = 0; r < HC_GEMV_ROWS && row + r < last; r++)
                for (int i = 0; i < n_vectors && chunk * HC_GEMV_VECTORS + i < job->n_vectors; i++) {
                    const int64_t v = chunk * HC_GEMV_VECTORS + i;
                    float *lanes = sums[r * n_vectors + i];
                    if (job->whole < g->groups)
                        add_last(job, row + r, job->x + v * job->ldx, lanes);
                    hc_gemv_store(job->out, row + r, v, hc_gemv_fold(lanes, LANES) * rows[r].row_scale);
                }
        }
    }
}

/* Number of groups that the kernel processes, and floats of x. */
static void size(hc_24_job *job, const hc_product *p) {
    const hc_geometry *g = p->w_packed->geometry;
    const int64_t span = 2 * g->group;
    job->whole = hc_min(g->columns / g->group, g->whole_length / span);
    job->places = hc_round_up(job->whole, LANES) * span;
    for (int64_t v = 0; v < p->x->rows; v += HC_GEMV_VECTORS) {
        const int64_t n = hc_min(p->x->rows - v, HC_GEMV_VECTORS);
        job->chunk_vectors[job->n_chunks] = n == 3 ? 4 : (int)n;
        job->values += job->places * job->chunk_vectors[job->n_chunks++];
    }
}

const char *hc_gemv_float_24_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    if (reason)
        return reason;
    const hc_format *format = p->w_packed->format;
    const hc_geometry *g = p->w_packed->geometry;
    hc_24_job job = {.places = 0};
    if (format->n != 2 || format->m != 4)
        return "the weights' pattern is not 2:4";
    if (!HC_PICK(gemv_24_groups, p->run))
        return "no kernel of these instruction sets";
    if (!hc_has_groups(format) || (g->group != 16 && g->group != 32 && g->group != 64) || g->columns < g->group ||
        !hc_gemv_weights_init(&job.weights, p, false) || job.weights.bits != 4 || job.weights.form.has_zero_points)
        return "no codes of 4 bits in groups of 16, 32 or 64, without zero points";
    size(&job, p);
    return job.values > HC_WORK_BYTES / (int64_t)sizeof(float) ? "rows too long to keep one in the cache" : NULL;
}

hc_work hc_gemv_float_24_work(const hc_product *p) {
    hc_24_job job = {.places = 0};
    size(&job, p); /* groups are in LANES lanes, of which the last may be empty */
    const double codes = (double)p->w->rows * (double)job.places, vectors = (double)p->x->rows;
    return (hc_work){.codes = codes,
                     .products = codes * vectors,
                     .groups = hc_groups(p) * vectors,
                     .values = hc_values_and_results(p, vectors, 40)};
}

hc_status hc_gemv_float_24_run(const hc_product *p, hc_error *error) {
    const int64_t n_vectors = p->x->rows, ldx = p->ld_vectors, rows = p->w->rows;
    const float *x = p->vectors;
    const hc_run *run = p->run;
    hc_24_job job = {
        .kernel = HC_PICK(gemv_24_groups, run), .x = x, .ldx = ldx, .n_vectors = n_vectors, .out = &p->out};
    hc_gemv_weights_init(&job.weights, p, false);
    size(&job, p);
    const int64_t places = job.places, values = job.values, span = 2 * p->w_packed->geometry->group;
    const int64_t n_tasks = hc_ceil_div(rows, TASK_ROWS);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    job.scratch_bytes = hc_round_up(HC_GEMV_ROWS * job.weights.scratch_bytes, HC_CACHE_LINE);
    float *ordered = hc_alloc_aligned(values * (int64_t)sizeof(float));
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    hc_status status = HC_OK;
    if (ordered && job.scratch) {
        memset(ordered, 0, (size_t)values * sizeof(float));
        float *next = ordered;
        for (int chunk = 0; chunk < job.n_chunks; next += places * job.chunk_vectors[chunk++]) {
            const int64_t v = chunk * HC_GEMV_VECTORS;
            job.ordered[chunk] = next;
            hc_gemv_order_groups(run, x + v * ldx, ldx, job.whole * span, span,
                                 (int)hc_min(n_vectors - v, HC_GEMV_VECTORS), job.chunk_vectors[chunk], next);
        }
        hc_parallel(n_threads, n_tasks, rows_24, &job);
    } else {
        status = hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)n_vectors);
    }
    hc_free_aligned(job.scratch);
    hc_free_aligned(ordered);
    return status;
}
