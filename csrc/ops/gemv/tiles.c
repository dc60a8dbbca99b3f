/* Packed weights times some vectors, any format: y[v, i] = sum_k x_v[k] * w_i[k], rows of `out` are vectors and its
 * columns weight rows. Every tile is decoded first. This is the plain form of the order of all paths of few float
 * vectors.
 *
 *   groups      p = fmaf chain over the group's codes from +0; acc[g % 16] = fmaf(s_g, p, acc[g % 16])
 *             no groups: acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]); then folded in halves, times the row's scale
 *
 * Padding columns of the last group are skipped. Threads share the weight rows. Memory: TILE columns of a block of ROWS
 * weights for each thread.
 */
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, TILE = 2048, LANES = 64 };

typedef struct {
    const hc_product *product;
    bool has_groups;
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} hc_gemv_job;

/* State of one row times one vector between two tiles. */
typedef struct {
    float lanes[LANES], p;
} hc_gemv_state;

static void add_groups(hc_gemv_state *state, const float *x, const float *codes, const float *scales, int64_t first,
                       int64_t columns, int64_t group) {
    const int64_t first_group = first / group;
    for (int64_t k = first; k < first + columns; k++) {
        state->p = fmaf(x[k], codes[k - first], state->p);
        const int64_t g = k / group;
        if ((k + 1) % group == 0) {
            state->lanes[g % 16] = fmaf(scales[g - first_group], state->p, state->lanes[g % 16]);
            state->p = 0;
        }
    }
}

static void float_rows(void *context, int64_t task, int thread) {
    const hc_gemv_job *job = context;
    const hc_product *product = job->product;
    const hc_packed_context *weights = product->w_packed;
    const hc_geometry *geometry = weights->geometry;
    const int64_t first = task * ROWS, rows = hc_min(ROWS, product->w->rows - first), columns = geometry->columns;
    const int64_t n_vectors = product->x->rows;
    char *scratch = job->scratch + thread * job->scratch_bytes;
    hc_gemv_state *states = (hc_gemv_state *)scratch;
    float *codes = (float *)(states + ROWS * HC_GEMV_BLOCK), *scales = codes + ROWS * TILE;
    float row_scale[ROWS];
    for (int i = 0; i < ROWS; i++)
        row_scale[i] = 1;
    for (int64_t i = 0; i < rows; i++)
        memset(states + i * HC_GEMV_BLOCK, 0, (size_t)n_vectors * sizeof *states);
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t count = hc_min(TILE, columns - c);
        const hc_tile tile = {weights->first_row + first, rows, c, hc_min(TILE, geometry->padded - c)};
        const hc_code_tile out = {codes, TILE, scales, TILE, row_scale};
        hc_decode_codes_tile(weights->run, weights->format, geometry, weights->components, &tile, &out);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t v = 0; v < n_vectors; v++) {
                hc_gemv_state *state = states + i * HC_GEMV_BLOCK + v;
                const float *x = product->vectors + v * product->ld_vectors;
                if (job->has_groups)
                    add_groups(state, x, codes + i * TILE, scales + i * TILE, c, count, geometry->group);
                else
                    for (int64_t k = 0; k < count; k++)
                        state->lanes[(c + k) % LANES] =
                            fmaf(x[c + k], codes[i * TILE + k], state->lanes[(c + k) % LANES]);
                if (job->has_groups && c + count == columns && columns % geometry->group != 0) {
                    const int64_t g = columns / geometry->group, first_group = c / geometry->group;
                    state->lanes[g % 16] = fmaf(scales[i * TILE + g - first_group], state->p, state->lanes[g % 16]);
                }
            }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < n_vectors; v++) {
            hc_gemv_state *state = states + i * HC_GEMV_BLOCK + v;
            hc_gemv_store(&product->out, first + i, v,
                          hc_gemv_fold(state->lanes, job->has_groups ? 16 : LANES) * row_scale[i]);
        }
}

const char *hc_gemv_float_tiles_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    return reason ? reason : p->w->sparse ? "the weights have a pattern" : NULL;
}

/* The slowest path; it supports every format without a pattern. */
hc_work hc_gemv_float_tiles_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns;
    return (hc_work){.decoded = codes,
                     .unpacked = hc_unpacked(p) ? codes : 0,
                     .products = codes * (double)p->x->rows,
                     .groups = (double)p->w->rows * (double)p->x->rows};
}

hc_status hc_gemv_float_tiles_run(const hc_product *p, hc_error *error) {
    const hc_format *format = p->w_packed->format;
    hc_gemv_job job = {.product = p, .has_groups = hc_has_groups(format)};
    const int64_t bytes = ROWS * (HC_GEMV_BLOCK * (int64_t)sizeof(hc_gemv_state) + 2 * TILE * (int64_t)sizeof(float));
    const int64_t n_tasks = hc_ceil_div(p->w->rows, ROWS);
    const int n_threads = (int)hc_min(hc_min(p->run->n_threads, HC_MAX_THREADS), n_tasks);
    job.scratch_bytes = hc_round_up(bytes, HC_CACHE_LINE);
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    if (!job.scratch)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for the tiles of %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, float_rows, &job);
    hc_free_aligned(job.scratch);
    return HC_OK;
}
