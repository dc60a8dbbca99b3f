/* Weights that keep n of every m times 1 to 8 vectors, in the order GEMV of product.h without the zeros of the pattern:
 *
 *   groups      p = fmaf chain over the group's nonzero codes from +0; acc[g % 16] = fmaf(s_g, p, acc[g % 16])
 *   no groups   acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]), k the whole column; folded in halves, times the row's scale
 *
 * Threads share the weight rows; each decodes TILE nonzeros of ROWS of them at a time.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4, TASK_ROWS = 16, TILE = 2048, MAX_VECTORS = 8, LANES = 64, STRIPE = 8 }; /* STRIPE: words of x in L1 */

typedef struct {
    const hc_packed_context *weights;
    int64_t rows, n_vectors;
    const float *x;
    int64_t ldx;
    /* with more than one vector: STRIPE words of each vector of x in turn, since rows of x may share cache sets */
    float *stripes;
    bool has_groups, is_plain;
    hc_gemv_nm_fn *kernel;
    hc_sparse_masks *masks;
    hc_gemv_24_fn *quads; /* 2:4 and one vector, or NULL */
    const hc_rows *out;
    struct hc_nonzeros_state *states; /* ROWS a thread */
} hc_nonzeros_job;

/* One row, between two tiles. */
typedef struct hc_nonzeros_state {
    float tile[TILE], scales[TILE], row_scale;
    const float *codes, *end; /* the next ones, in the tile or as they are stored */
    uint64_t masks[TILE * HC_MAX_M / 64 + 1];
    float sums[MAX_VECTORS][LANES], p[MAX_VECTORS];
} hc_nonzeros_state;

/* Adds nonzeros [first, first + count) with groups; first is the start of a block. */
static void add_groups(const hc_nonzeros_job *job, hc_nonzeros_state *state, const uint8_t *metadata, int64_t first,
                       int64_t count) {
    const hc_geometry *g = job->weights->geometry;
    const int n = job->weights->format->n, m = job->weights->format->m;
    uint8_t position[TILE];
    hc_nm_positions(metadata, g->columns, m, first, count, position);
    for (int64_t v = 0; v < job->n_vectors; v++) {
        const float *x = job->x + v * job->ldx;
        float *sums = state->sums[v], p = state->p[v];
        for (int64_t t = first; t < first + count; t++) {
            const int64_t column = t / n * m + position[t - first], group = t / g->group;
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

/* Adds whole words of 2:4 times one vector; returns the number of columns. */
static int64_t add_quads(const hc_nonzeros_job *job, hc_nonzeros_state *state, const uint8_t *metadata, int64_t column,
                         int64_t columns) {
    const int64_t words = job->quads ? columns / 64 : 0;
    if (words > 0)
        job->quads(words, metadata + column / 8, state->codes, job->x + column, job->ldx, 1, state->sums[0]);
    state->codes += words * 32;
    return words * 64;
}

/* Adds columns from a multiple of 64 on, for some rows without groups: a stripe of them at a time, for all rows and
 * vectors. */
static void add_columns(const hc_nonzeros_job *job, hc_nonzeros_state *states, int64_t rows, int64_t column,
                        int64_t columns) {
    const int64_t words = hc_ceil_div(columns, 64);
    for (int64_t word = 0, some; word < words; word += some) {
        const int64_t at = column / 64 + word, stripe = at / STRIPE * STRIPE * 64;
        some = job->stripes ? hc_min(STRIPE - at % STRIPE, words - word) : words;
        const float *x = job->stripes ? job->stripes + stripe * job->n_vectors + at * 64 - stripe : job->x + at * 64;
        const int64_t ldx = job->stripes ? STRIPE * 64 : job->ldx;
        for (int64_t r = 0; r < rows; r++) {
            hc_nonzeros_state *state = states + r;
            const float *next = state->codes;
            for (int64_t v = 0; v < job->n_vectors;) {
                const int64_t left = job->n_vectors - v;
                const int vectors = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
                next = job->kernel(some, state->masks + word, state->codes, state->end, x + v * ldx, ldx, vectors,
                                   state->sums[v]);
                v += vectors;
            }
            state->codes = next;
        }
    }
}

/* Decodes nonzeros [first, first + count) of a row, and, without groups, their columns. */
static void load(const hc_nonzeros_job *job, hc_nonzeros_state *state, int64_t row, int64_t first, int64_t count) {
    const hc_geometry *g = job->weights->geometry;
    const hc_components *parts = job->weights->components;
    const hc_tile tile = {row, 1, first, hc_min(count, g->padded - first)};
    const hc_code_tile out = {state->tile, TILE, state->scales, TILE, &state->row_scale};
    state->codes = state->tile;
    state->end = state->tile + TILE;
    if (job->is_plain && (uintptr_t)hc_part(parts, HC_CODES, row) % sizeof *state->codes == 0) {
        state->codes = (const float *)hc_part(parts, HC_CODES, row) + first;
        state->end = (const float *)hc_part(parts, HC_CODES, g->rows - 1) + g->columns;
    } else {
        hc_decode_codes_tile(job->weights->run, job->weights->format, g, parts, &tile, &out);
    }
}

static void gemv_rows(const hc_nonzeros_job *job, hc_nonzeros_state *states, int64_t first_row, int64_t rows) {
    const hc_geometry *g = job->weights->geometry;
    const int n = job->weights->format->n, m = job->weights->format->m;
    const int64_t at_once = TILE / (n * LANES) * n * LANES; /* whole blocks, so that the next ones begin at lane 0 */
    for (int64_t r = 0; r < rows; r++) {
        memset(states[r].sums, 0, (size_t)job->n_vectors * sizeof *states->sums);
        memset(states[r].p, 0, sizeof states->p);
        states[r].row_scale = 1;
    }
    for (int64_t first = 0; first < g->columns; first += at_once) {
        const int64_t count = hc_min(at_once, g->columns - first), column = first / n * m;
        const int64_t columns = hc_min(count / n * m, g->whole_length - column);
        int64_t done = 0;
        for (int64_t r = 0; r < rows; r++) {
            hc_nonzeros_state *state = states + r;
            const uint8_t *metadata = hc_part(job->weights->components, HC_METADATA, first_row + r);
            load(job, state, first_row + r, first, at_once);
            if (job->has_groups) {
                add_groups(job, state, metadata, first, count);
                continue;
            }
            done = add_quads(job, state, metadata, column, columns);
            hc_sparse_masks_of(job->masks, metadata, g->columns, (column + done) / m, columns - done, state->masks);
        }
        if (!job->has_groups && done < columns)
            add_columns(job, states, rows, column + done, columns - done);
    }
}

static void gemv_task(void *context, int64_t task, int thread) {
    const hc_nonzeros_job *job = context;
    hc_nonzeros_state *states = job->states + thread * ROWS;
    const int64_t end = hc_min((task + 1) * TASK_ROWS, job->rows);
    for (int64_t row = task * TASK_ROWS; row < end; row += ROWS) {
        const int64_t rows = hc_min(ROWS, end - row);
        gemv_rows(job, states, job->weights->first_row + row, rows);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t v = 0; v < job->n_vectors; v++) {
                const float sum = hc_gemv_fold(states[r].sums[v], job->has_groups ? 16 : LANES);
                hc_gemv_store(job->out, row + r, v, sum * states[r].row_scale);
            }
    }
}

const char *hc_gemv_nonzeros_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    return reason ? reason : p->w->sparse ? NULL : "the weights have no pattern";
}

hc_work hc_gemv_nonzeros_work(const hc_product *p) {
    const hc_format *format = p->w_packed->format;
    const hc_stored_form form = hc_form_of(format);
    const double rows = (double)p->w->rows, vectors = (double)p->x->rows;
    const double kept = rows * (double)p->w_packed->geometry->columns, columns = rows * (double)p->w->columns;
    const double unpacked = hc_unpacked(p) ? kept : 0;
    if (hc_has_groups(format)) /* one code after the other */
        return (hc_work){.decoded = kept, .unpacked = unpacked, .wide = kept * vectors, .groups = rows * vectors};
    const bool is_plain = hc_form_is_plain(&form);
    return (hc_work){.codes = is_plain ? kept : 0,
                     .decoded = is_plain ? 0 : kept,
                     .unpacked = unpacked,
                     .spread = columns,
                     .products = kept * vectors,
                     .groups = rows * vectors};
}

hc_status hc_gemv_nonzeros_run(const hc_product *p, hc_error *error) {
    const hc_packed_context *weights = p->w_packed;
    const hc_geometry *geometry = weights->geometry;
    const hc_format *format = weights->format;
    const hc_stored_form form = hc_form_of(format);
    const hc_run *run = p->run;
    const int64_t rows = p->w->rows, n_vectors = p->x->rows, ldx = p->ld_vectors;
    const float *x = p->vectors;
    hc_nonzeros_job job = {.weights = weights,
                           .rows = rows,
                           .n_vectors = n_vectors,
                           .x = x,
                           .ldx = ldx,
                           .has_groups = hc_has_groups(format),
                           .is_plain = hc_form_is_plain(&form),
                           .kernel = HC_PICK(gemv_nm, run),
                           .out = &p->out};
    if (format->n == 2 && format->m == 4 && n_vectors == 1)
        job.quads = HC_PICK(gemv_24, run);
    hc_sparse_masks masks;
    hc_sparse_masks_init(&masks, run, format->n, format->m);
    job.masks = &masks;
    if (n_vectors > 1 && !job.has_groups) {
        const int64_t columns = hc_round_up(geometry->whole_length, STRIPE * 64);
        job.stripes = hc_alloc_aligned(columns * n_vectors * (int64_t)sizeof(float));
        if (!job.stripes)
            return hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)n_vectors);
        memset(job.stripes, 0, (size_t)(columns * n_vectors) * sizeof *x);
        for (int64_t k = 0; k < geometry->whole_length; k += STRIPE * 64)
            for (int64_t v = 0; v < n_vectors; v++)
                memcpy(job.stripes + k * n_vectors + v * STRIPE * 64, x + v * ldx + k,
                       (size_t)hc_min(geometry->whole_length - k, STRIPE * 64) * sizeof *x);
    }
    const int64_t n_tasks = hc_ceil_div(rows, TASK_ROWS);
    const int n_threads = (int)hc_min(run->n_threads, n_tasks);
    job.states = hc_alloc_aligned(n_threads * ROWS * (int64_t)sizeof *job.states);
    if (job.states)
        hc_parallel(n_threads, n_tasks, gemv_task, &job);
    hc_free_aligned(job.stripes);
    hc_free_aligned(job.states);
    return job.states ? HC_OK : hc_fail(error, HC_MEMORY, "matmul: not enough memory for %d rows of weights", ROWS);
}
