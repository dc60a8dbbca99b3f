/* Weights times few float vectors. Rows are read as they are stored, or decoded one at a time. x is ordered for the
 * kernel once; then every call processes four rows and up to four vectors.
 */
#include "base/threads.h"
#include "ops/gemv/gemv.h"

#include <math.h>
#include <string.h>

enum { FEWER = 2, MAX_CHUNKS = HC_GEMV_BLOCK / FEWER, TASK_BYTES = 64 << 10, NEAR_BYTES = 32 << 10 };

typedef struct {
    const hc_gemv_weights *weights;
    const hc_geometry *geometry;    /* of the kernel's rows */
    const hc_gemv_densified *whole; /* the dense rows of a pattern, or NULL */
    bool has_groups, reads_scales;  /* the kernel reads scales as they are stored */
    void (*kernel)(const hc_gemv_floats_args *args);
    int n_chunks, chunk_vectors[MAX_CHUNKS]; /* for the kernel: 1, 2 or 4 */
    int at_once;                             /* vectors of a chunk, if that many are left */
    float *x[MAX_CHUNKS];
    int64_t n_vectors, task_rows, scratch_bytes;
    uint8_t *scratch;
    const hc_rows *out;
} hc_floats_job;

static void float_rows(void *context, int64_t task, int thread) {
    const hc_floats_job *job = context;
    const hc_gemv_weights *weights = job->weights;
    const int64_t first = task * job->task_rows, last = hc_min(first + job->task_rows, weights->rows);
    uint8_t *scratch = job->scratch + thread * job->scratch_bytes;
    const int64_t row_scratch = job->scratch_bytes / HC_GEMV_ROWS;
    float sums[HC_GEMV_ROWS * HC_GEMV_VECTORS];
    hc_gemv_floats_args args = {.bits = weights->bits,
                                .flip = weights->flip,
                                .zero = weights->zero,
                                .unit = ldexpf(1, -weights->form.fraction_bits),
                                .exponent_bits = weights->form.exponent_bits,
                                .special_bits = weights->form.special_bits,
                                .scale_bits = job->reads_scales ? hc_gemv_scale_bits(&weights->form) : 32,
                                .columns = job->geometry->columns,
                                .group = job->geometry->group,
                                .groups = job->geometry->groups,
                                .out = sums};
    for (int64_t row = first; row < last; row += HC_GEMV_ROWS) {
        hc_gemv_row rows[HC_GEMV_ROWS];
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            if (r > 0 && row + r >= last) {
                rows[r] = rows[r - 1];
                continue;
            }
            uint8_t *at = scratch + r * row_scratch;
            hc_gemv_row_load(weights, row + r, !job->reads_scales, at, NULL, &rows[r]);
            if (job->whole)
                hc_gemv_densified_row(job->whole, weights, row + r,
                                      at + hc_round_up(weights->scratch_bytes, HC_CACHE_LINE), &rows[r]);
        }
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            args.codes[r] = rows[r].codes;
            args.scales[r] = job->reads_scales ? hc_part(weights->packed->components, HC_SCALES,
                                                         weights->packed->first_row + hc_min(row + r, last - 1))
                                               : (const uint8_t *)rows[r].scales;
            args.zeros[r] = rows[r].zeros;
            args.minima[r] = rows[r].minima;
            args.table[r] = rows[r].table;
            args.next[r] =
                weights->decodes || job->whole ? rows[r].codes : hc_gemv_row_codes(weights, row + r + HC_GEMV_ROWS);
        }
        for (int chunk = 0; chunk < job->n_chunks; chunk++) {
            const int n_vectors = args.n_vectors = job->chunk_vectors[chunk];
            args.x = job->x[chunk];
            job->kernel(&args);
            for (int r = 0; r < HC_GEMV_ROWS && row + r < last; r++) {
                const bool is_row = !job->has_groups && !weights->has_minima && rows[r].scales;
                const float scale = is_row ? rows[r].scales[0] : rows[r].row_scale;
                for (int v = 0; v < n_vectors && chunk * job->at_once + v < job->n_vectors; v++)
                    hc_gemv_store(job->out, row + r, chunk * job->at_once + v, sums[r * n_vectors + v] * scale);
            }
        }
    }
}

/* Writes n vectors in the order of gemv_rows, interleaved with the others of n_vectors. */
static void order_rows(int bits, const float *x, int64_t ldx, int64_t columns, int n, int n_vectors, float *out) {
    int place[64];
    for (int k = 0; k < 64; k++)
        place[k] = bits >= 16 ? k : bits == 8 ? k % 4 * 16 + k / 4 : k % 8 * 8 + k / 8;
    for (int v = 0; v < n; v++)
        for (int64_t k = 0; k < columns; k += 64) {
            float *to = out + (k / 64 * n_vectors + v) * 64;
            const float *from = x + v * ldx + k;
            const bool is_whole = columns - k >= 64;
            for (int i = 0; is_whole && bits == 8 && i < 16; i++) /* 64 values with constant places */
                for (int j = 0; j < 4; j++)
                    to[j * 16 + i] = from[i * 4 + j];
            for (int i = 0; is_whole && bits == 4 && i < 8; i++)
                for (int j = 0; j < 8; j++)
                    to[j * 8 + i] = from[i * 8 + j];
            if (is_whole && bits >= 16)
                memcpy(to, from, 64 * sizeof(float));
            for (int64_t i = 0; !is_whole && i < columns - k; i++)
                to[place[i]] = from[i];
        }
}

bool hc_gemv_fits(const hc_product *product, const hc_geometry *geometry) {
    const bool has_groups = hc_has_groups(product->w_packed->format);
    const int64_t places =
        has_groups ? hc_round_up(geometry->groups, 16) * geometry->group : hc_round_up(geometry->columns, 64);
    return places * product->x->rows <= HC_WORK_BYTES / (int64_t)sizeof(float);
}

hc_status hc_gemv_multiply(const hc_product *product, hc_gemv_weights *weights, hc_gemv_densified *densified,
                           hc_error *error) {
    const hc_packed_context *packed = product->w_packed;
    const hc_geometry *geometry = densified ? &densified->geometry : packed->geometry;
    const hc_run *run = product->run;
    const int64_t n_vectors = product->x->rows, ldx = product->ld_vectors;
    hc_floats_job job = {.weights = weights,
                         .n_vectors = n_vectors,
                         .out = &product->out,
                         .geometry = geometry,
                         .whole = densified,
                         .has_groups = hc_has_groups(packed->format)};
    int64_t row_scratch = hc_round_up(weights->scratch_bytes, HC_CACHE_LINE);
    if (densified)
        row_scratch += hc_gemv_densified_bytes(densified, weights);
    job.reads_scales = job.has_groups && !weights->decodes && hc_gemv_scale_bits(&weights->form) != 0;
    const int64_t places =
        job.has_groups ? hc_round_up(geometry->groups, 16) * geometry->group : hc_round_up(geometry->columns, 64);
    job.kernel = weights->has_minima ? HC_PICK(gemv_values, run)
                 : job.has_groups    ? HC_PICK(gemv_groups, run)
                                     : HC_PICK(gemv_rows, run);
    job.task_rows = hc_round_up(hc_max(TASK_BYTES / hc_max(weights->row_bytes, 1), 1), HC_GEMV_ROWS);
    job.scratch_bytes = HC_GEMV_ROWS * row_scratch;
    const int64_t n_tasks = hc_ceil_div(weights->rows, job.task_rows);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);

    /* Without groups the kernel reads x for each row of weights, so x must stay in L1. With 4096 columns, 8 vectors and
     * int8 a multiply-add takes 0.035 ns with chunks of four and 0.015 with chunks of two (one thread, Zen 5,
     * 2026-11). Kernels of AVX2 compute the values of codes with minima for every chunk: 8 vectors take 0.83 of the time
     * with chunks of four. With AVX-512 they take 1.16 (one thread, Zen 4, 2026-11). */
    const bool decodes_chunks = weights->has_minima && !(run->isa & HC_ISA_AVX512);
    const bool is_far =
        !job.has_groups && !decodes_chunks && places * HC_GEMV_VECTORS * (int64_t)sizeof(float) > NEAR_BYTES;
    job.at_once = is_far ? FEWER : HC_GEMV_VECTORS;
    int64_t x_values = 0;
    for (int64_t v = 0; v < n_vectors; v += job.at_once) {
        const int64_t n = hc_min(n_vectors - v, job.at_once);
        job.chunk_vectors[job.n_chunks] = n == 3 ? 4 : (int)n;
        x_values += places * job.chunk_vectors[job.n_chunks++];
    }
    float *ordered = hc_alloc_aligned(x_values * (int64_t)sizeof(float));
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    hc_status status = HC_OK;
    if (ordered && job.scratch) {
        if (job.whole) /* codes of the last group that belong to no column */
            memset(job.scratch, 0, (size_t)(job.scratch_bytes * n_threads));
        memset(ordered, 0, (size_t)x_values * sizeof(float));
        float *next = ordered;
        for (int chunk = 0; chunk < job.n_chunks; next += places * job.chunk_vectors[chunk++]) {
            const int64_t v = chunk * job.at_once;
            job.x[chunk] = next;
            const float *x = product->vectors + v * ldx;
            const int n = (int)hc_min(n_vectors - v, job.at_once), of = job.chunk_vectors[chunk];
            if (job.has_groups)
                hc_gemv_order_groups(run, x, ldx, geometry->columns, geometry->group, n, of, next);
            else
                order_rows(weights->has_minima && weights->bits == 8 ? 32 : weights->bits, x, ldx, geometry->columns, n,
                           of, next);
        }
        hc_parallel(n_threads, n_tasks, float_rows, &job);
    } else {
        status = hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)n_vectors);
    }
    hc_free_aligned(job.scratch);
    hc_free_aligned(ordered);
    return status;
}

const char *hc_gemv_float_refuses(const hc_product *p) {
    hc_gemv_weights weights;
    const char *reason = hc_gemv_refuses(p);
    if (reason)
        return reason;
    if (p->w->sparse)
        return "the weights have a pattern";
    if (!hc_gemv_weights_init(&weights, p, true) || !hc_gemv_fits(p, p->w_packed->geometry))
        return "rows too long to keep one in the cache";
    return NULL;
}

hc_work hc_gemv_float_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns, vectors = (double)p->x->rows;
    const hc_geometry *geometry = p->w_packed->geometry;
    hc_stored_form form;
    const bool decodes = hc_gemv_decodes(p->w_packed, true, &form);
    /* rows and the lanes of groups that are missing are multiplied, too */
    const double filled = hc_has_groups(p->w_packed->format)
                              ? (double)(hc_groups_in_lanes(p, geometry->groups) * geometry->group)
                              : (double)p->w->columns;
    return (hc_work){.codes = decodes ? 0 : codes,
                     .decoded = decodes ? codes : 0,
                     .unpacked = hc_unpacked(p) ? codes : 0,
                     .products = (double)hc_round_up(p->w->rows, HC_GEMV_ROWS) * filled * vectors,
                     .groups = hc_groups(p) * vectors,
                     .values = hc_values_and_results(p, vectors, 64)};
}

hc_status hc_gemv_float_run(const hc_product *p, hc_error *error) {
    hc_gemv_weights weights;
    hc_gemv_weights_init(&weights, p, true);
    return hc_gemv_multiply(p, &weights, NULL, error);
}
