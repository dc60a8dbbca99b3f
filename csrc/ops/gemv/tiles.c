/* Packed weights times 1 to 8 vectors, any format: y[v, i] = sum_k x_v[k] * w_i[k], rows of `out` are vectors and its
 * columns weight rows. Every tile is decoded first. This is the plain form of the order that all paths of few vectors keep.
 *
 *   floats    groups: p = fmaf chain over the group's codes from +0; acc[g % 16] = fmaf(s_g, p, acc[g % 16])
 *             no groups: acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]); then folded in halves, times the row's scale
 *   FOLDED    S exact in int64, y = float32((float64(s_x) * float64(s_w)) * float64(S))
 *   GROUPED   acc = fmaf(float32(s_x * s_w), float32(dot), acc), segments ascending
 *
 * Columns that only pad the last group do not exist. Threads share the weight rows. Memory: TILE columns of a block
 * of ROWS weights for each thread.
 */
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, TILE = 2048, MAX_VECTORS = 8, LANES = 64 };

typedef struct {
    const hc_product *product;
    bool has_groups; /* of floats */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} hc_gemv_job;

/* What is known of one row times one vector between two tiles. */
typedef struct {
    float lanes[LANES], p;
    int64_t integer; /* S, or the dot of the segment at hand */
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
    float *codes = (float *)(states + ROWS * MAX_VECTORS), *scales = codes + ROWS * TILE;
    float row_scale[ROWS];
    for (int i = 0; i < ROWS; i++)
        row_scale[i] = 1;
    memset(states, 0, ROWS * MAX_VECTORS * sizeof *states);
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t count = hc_min(TILE, columns - c);
        const hc_tile tile = {weights->first_row + first, rows, c, hc_min(TILE, geometry->padded - c)};
        const hc_code_tile out = {codes, TILE, scales, TILE, row_scale};
        hc_decode_codes_tile(weights->run, weights->format, geometry, weights->components, &tile, &out);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t v = 0; v < n_vectors; v++) {
                hc_gemv_state *state = states + i * MAX_VECTORS + v;
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
            hc_gemv_state *state = states + i * MAX_VECTORS + v;
            hc_gemv_store(&product->out, first + i, v,
                          hc_gemv_fold(state->lanes, job->has_groups ? 16 : LANES) * row_scale[i]);
        }
}

/* One integer operand, decoded tile by tile. */
typedef struct {
    const hc_packed_context *packed;
    hc_int_form form;
    int64_t first_row, rows;
    int8_t *limbs;                  /* 3 x rows x TILE */
    int32_t *values;                /* rows x TILE */
    float *group_scale, *row_scale; /* rows x TILE; rows */
} hc_gemv_side;

static char *side_init(hc_gemv_side *side, hc_order kind, char *scratch) {
    const hc_int_mode mode = kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    hc_format_find(side->packed->format->family)->int_form(side->packed->format, mode, &side->form);
    side->values = (int32_t *)scratch;
    side->group_scale = (float *)(side->values + ROWS * TILE);
    side->row_scale = side->group_scale + ROWS * TILE;
    side->limbs = (int8_t *)(side->row_scale + ROWS);
    return (char *)(side->limbs + 3 * ROWS * TILE);
}

static void side_load(const hc_gemv_side *side, hc_order kind, int64_t first, int64_t columns) {
    const hc_tile tile = {side->first_row, side->rows, first, hc_min(TILE, side->packed->geometry->padded - first)};
    const hc_int_tile out = {{side->limbs, side->limbs + ROWS * TILE, side->limbs + 2 * ROWS * TILE},
                             TILE,
                             side->group_scale,
                             TILE,
                             side->row_scale};
    hc_decode_int_tile(side->packed->run, side->packed->format, side->packed->geometry, side->packed->components, &tile,
                       kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED, &out);
    const int top = side->form.n_limbs - 1;
    for (int64_t i = 0; i < side->rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int32_t value = side->limbs[(top * ROWS + i) * TILE + j];
            for (int limb = top - 1; limb >= 0; limb--)
                value = value * 256 + (uint8_t)side->limbs[(limb * ROWS + i) * TILE + j];
            side->values[i * TILE + j] = value;
        }
}

static void integer_rows(void *context, int64_t task, int thread) {
    const hc_gemv_job *job = context;
    const hc_product *product = job->product;
    const hc_order kind = product->order;
    const int64_t first = task * ROWS, rows = hc_min(ROWS, product->w->rows - first), columns = product->w->columns;
    const int64_t n_vectors = product->x->rows;
    const int64_t w_group = product->w_packed->geometry->group, x_group = product->x_packed->geometry->group;
    char *scratch = job->scratch + thread * job->scratch_bytes;
    hc_gemv_state *states = (hc_gemv_state *)scratch;
    hc_gemv_side w = {.packed = product->w_packed, .first_row = product->w_packed->first_row + first, .rows = rows};
    hc_gemv_side x = {.packed = product->x_packed, .first_row = product->x_packed->first_row, .rows = n_vectors};
    scratch = side_init(&w, kind, (char *)(states + ROWS * MAX_VECTORS));
    side_init(&x, kind, scratch);
    memset(states, 0, ROWS * MAX_VECTORS * sizeof *states);
    memset(w.row_scale, 0, ROWS * sizeof *w.row_scale);
    memset(x.row_scale, 0, ROWS * sizeof *x.row_scale);
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t count = hc_min(TILE, columns - c);
        side_load(&w, kind, c, count);
        side_load(&x, kind, c, count);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t v = 0; v < n_vectors; v++) {
                hc_gemv_state *state = states + i * MAX_VECTORS + v;
                const int32_t *a = w.values + i * TILE, *b = x.values + v * TILE;
                for (int64_t j = 0, end; j < count; j = end) {
                    end = count;
                    const int64_t gw = (c + j) / w_group, gx = (c + j) / x_group;
                    if (kind == HC_ORDER_GROUPED)
                        end = hc_min(end, hc_min((gw + 1) * w_group, (gx + 1) * x_group) - c);
                    for (int64_t k = j; k < end; k++)
                        state->integer += (int64_t)a[k] * b[k];
                    const bool closes = (c + end) % w_group == 0 || (c + end) % x_group == 0 || c + end == columns;
                    if (kind == HC_ORDER_GROUPED && closes) {
                        const float scale =
                            x.group_scale[v * TILE + gx - c / x_group] * w.group_scale[i * TILE + gw - c / w_group];
                        state->p = fmaf(scale, (float)state->integer, state->p);
                        state->integer = 0;
                    }
                }
            }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < n_vectors; v++) {
            const hc_gemv_state *state = states + i * MAX_VECTORS + v;
            hc_gemv_store(&product->out, first + i, v,
                          kind == HC_ORDER_GROUPED
                              ? state->p
                              : (float)((double)x.row_scale[v] * (double)w.row_scale[i] * (double)state->integer));
        }
}

static hc_status run_job(hc_gemv_job *job, hc_task *task, int64_t scratch_bytes, hc_error *error) {
    const hc_run *run = job->product->run;
    const int64_t n_tasks = hc_ceil_div(job->product->w->rows, ROWS);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    job->scratch_bytes = hc_round_up(scratch_bytes, HC_CACHE_LINE);
    job->scratch = hc_alloc_aligned(job->scratch_bytes * n_threads);
    if (!job->scratch)
        return hc_fail(error, HC_MEMORY, "matmul: no memory for the tiles of %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, task, job);
    hc_free_aligned(job->scratch);
    return HC_OK;
}

/* The slowest way, and one that any format without a pattern takes. */
static hc_work work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns;
    return (hc_work){.decoded = codes, .unpacked = hc_unpacked(p) ? codes : 0, .products = codes * (double)p->x->rows};
}

const char *hc_gemv_float_tiles_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    return reason ? reason : p->w->sparse ? "the weights have a pattern" : NULL;
}

hc_work hc_gemv_float_tiles_work(const hc_product *p) { return work(p); }

hc_status hc_gemv_float_tiles_run(const hc_product *p, hc_error *error) {
    const hc_format *format = p->w_packed->format;
    hc_gemv_job job = {.product = p, .has_groups = hc_format_find(format->family)->has_groups(format)};
    const int64_t bytes = ROWS * (MAX_VECTORS * (int64_t)sizeof(hc_gemv_state) + 2 * TILE * (int64_t)sizeof(float));
    return run_job(&job, float_rows, bytes, error);
}

const char *hc_gemv_int_tiles_refuses(const hc_product *p) {
    const char *reason = hc_gemv_few_refuse(p);
    return reason ? reason : p->w->sparse ? "the weights have a pattern" : NULL;
}

hc_work hc_gemv_int_tiles_work(const hc_product *p) { return work(p); }

hc_status hc_gemv_int_tiles_run(const hc_product *p, hc_error *error) {
    hc_gemv_job job = {.product = p};
    const int64_t side = ROWS * (TILE * (int64_t)(sizeof(int32_t) + sizeof(float) + 3) + (int64_t)sizeof(float));
    const int64_t bytes = ROWS * MAX_VECTORS * (int64_t)sizeof(hc_gemv_state) + 2 * side;
    return run_job(&job, integer_rows, bytes, error);
}
