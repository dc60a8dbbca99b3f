/* Packed weights times 1 to 8 vectors, any format: y[v, i] = sum_k x_v[k] * w_i[k], rows of `out` are vectors and its
 * columns weight rows. Here every tile is decoded first; what can be read as it is stored goes to gemv_floats.c and
 * gemv_integers.c, which give the same bits.
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
#include "ops/codec/encoder.h"
#include "ops/gemv/stored.h"
#include "ops/product/choose.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, TILE = 2048, MAX_VECTORS = 8, LANES = 64 };

typedef struct {
    const hc_run *run;
    const hc_packed *weights;
    const hc_geometry *geometry;
    int64_t first_row, rows, n_vectors;
    const hc_rows *out;
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
    /* floats */
    const float *x;
    int64_t ldx;
    bool has_groups;
    /* integers */
    hc_product_kind kind;
    const hc_packed *vectors;
    const hc_geometry *x_geometry;
    int64_t first_vector;
} hc_gemv_job;

/* lanes[i] with lanes[i + n / 2], and so on down to one; n is a power of two. */
static float fold(float *lanes, int n) {
    for (int half = n / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
}

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
    const hc_geometry *geometry = job->geometry;
    const int64_t first = task * ROWS, rows = hc_min(ROWS, job->rows - first), columns = geometry->columns;
    char *scratch = job->scratch + thread * job->scratch_bytes;
    hc_gemv_state *states = (hc_gemv_state *)scratch;
    float *codes = (float *)(states + ROWS * MAX_VECTORS), *scales = codes + ROWS * TILE;
    float row_scale[ROWS];
    for (int i = 0; i < ROWS; i++)
        row_scale[i] = 1;
    memset(states, 0, ROWS * MAX_VECTORS * sizeof *states);
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t count = hc_min(TILE, columns - c);
        const hc_tile tile = {job->first_row + first, rows, c, hc_min(TILE, geometry->padded - c)};
        const hc_code_tile out = {codes, TILE, scales, TILE, row_scale};
        hc_decode_codes_tile(job->run, &job->weights->format, geometry, &job->weights->components, &tile, &out);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t v = 0; v < job->n_vectors; v++) {
                hc_gemv_state *state = states + i * MAX_VECTORS + v;
                const float *x = job->x + v * job->ldx;
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
        for (int64_t v = 0; v < job->n_vectors; v++) {
            hc_gemv_state *state = states + i * MAX_VECTORS + v;
            hc_gemv_store(job->out, first + i, v, fold(state->lanes, job->has_groups ? 16 : LANES) * row_scale[i]);
        }
}

/* One integer operand, decoded tile by tile. */
typedef struct {
    const hc_packed *packed;
    const hc_geometry *geometry;
    hc_int_form form;
    int64_t first_row, rows;
    int8_t *limbs;                  /* 3 x rows x TILE */
    int32_t *values;                /* rows x TILE */
    float *group_scale, *row_scale; /* rows x TILE; rows */
} hc_gemv_side;

static char *side_init(hc_gemv_side *side, hc_product_kind kind, char *scratch) {
    const hc_int_mode mode = kind == HC_PRODUCT_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    hc_format_find(side->packed->format.family)->int_form(&side->packed->format, mode, &side->form);
    side->values = (int32_t *)scratch;
    side->group_scale = (float *)(side->values + ROWS * TILE);
    side->row_scale = side->group_scale + ROWS * TILE;
    side->limbs = (int8_t *)(side->row_scale + ROWS);
    return (char *)(side->limbs + 3 * ROWS * TILE);
}

static void side_load(const hc_gemv_side *side, const hc_run *run, hc_product_kind kind, int64_t first,
                      int64_t columns) {
    const hc_tile tile = {side->first_row, side->rows, first, hc_min(TILE, side->geometry->padded - first)};
    const hc_int_tile out = {{side->limbs, side->limbs + ROWS * TILE, side->limbs + 2 * ROWS * TILE},
                             TILE,
                             side->group_scale,
                             TILE,
                             side->row_scale};
    hc_decode_int_tile(run, &side->packed->format, side->geometry, &side->packed->components, &tile,
                       kind == HC_PRODUCT_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED, &out);
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
    const int64_t first = task * ROWS, rows = hc_min(ROWS, job->rows - first), columns = job->geometry->columns;
    char *scratch = job->scratch + thread * job->scratch_bytes;
    hc_gemv_state *states = (hc_gemv_state *)scratch;
    hc_gemv_side w = {
        .packed = job->weights, .geometry = job->geometry, .first_row = job->first_row + first, .rows = rows};
    hc_gemv_side x = {
        .packed = job->vectors, .geometry = job->x_geometry, .first_row = job->first_vector, .rows = job->n_vectors};
    scratch = side_init(&w, job->kind, (char *)(states + ROWS * MAX_VECTORS));
    side_init(&x, job->kind, scratch);
    memset(states, 0, ROWS * MAX_VECTORS * sizeof *states);
    memset(w.row_scale, 0, ROWS * sizeof *w.row_scale);
    memset(x.row_scale, 0, ROWS * sizeof *x.row_scale);
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t count = hc_min(TILE, columns - c);
        side_load(&w, job->run, job->kind, c, count);
        side_load(&x, job->run, job->kind, c, count);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t v = 0; v < job->n_vectors; v++) {
                hc_gemv_state *state = states + i * MAX_VECTORS + v;
                const int32_t *a = w.values + i * TILE, *b = x.values + v * TILE;
                for (int64_t j = 0, end; j < count; j = end) {
                    end = count;
                    const int64_t gw = (c + j) / w.geometry->group, gx = (c + j) / x.geometry->group;
                    if (job->kind == HC_PRODUCT_GROUPED)
                        end = hc_min(end, hc_min((gw + 1) * w.geometry->group, (gx + 1) * x.geometry->group) - c);
                    for (int64_t k = j; k < end; k++)
                        state->integer += (int64_t)a[k] * b[k];
                    const bool closes =
                        (c + end) % w.geometry->group == 0 || (c + end) % x.geometry->group == 0 || c + end == columns;
                    if (job->kind == HC_PRODUCT_GROUPED && closes) {
                        const float scale = x.group_scale[v * TILE + gx - c / x.geometry->group] *
                                            w.group_scale[i * TILE + gw - c / w.geometry->group];
                        state->p = fmaf(scale, (float)state->integer, state->p);
                        state->integer = 0;
                    }
                }
            }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < job->n_vectors; v++) {
            const hc_gemv_state *state = states + i * MAX_VECTORS + v;
            hc_gemv_store(job->out, first + i, v,
                          job->kind == HC_PRODUCT_GROUPED
                              ? state->p
                              : (float)((double)x.row_scale[v] * (double)w.row_scale[i] * (double)state->integer));
        }
}

static hc_status run_job(hc_gemv_job *job, hc_task *task, int64_t scratch_bytes, hc_error *error) {
    const int64_t n_tasks = hc_ceil_div(job->rows, ROWS);
    const int n_threads = (int)hc_min(hc_min(job->run->n_threads, HC_MAX_THREADS), hc_max(n_tasks, 1));
    job->scratch_bytes = hc_round_up(scratch_bytes, HC_CACHE_LINE);
    job->scratch = hc_alloc_aligned(job->scratch_bytes * n_threads);
    if (!job->scratch)
        return hc_fail(error, HC_MEMORY, "matmul: no memory for the tiles of %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, task, job);
    hc_free_aligned(job->scratch);
    return HC_OK;
}

hc_status hc_gemv_floats(const hc_run *run, const hc_packed *weights, const hc_geometry *geometry, int64_t first_row,
                         int64_t rows, const float *x, int64_t ldx, int64_t n_vectors, const hc_rows *out,
                         hc_error *error) {
    HC_ASSUME(geometry->runs == 1 && n_vectors <= MAX_VECTORS);
    if (hc_only_explains(HC_PATH_GEMV))
        return HC_OK;
    if (weights->format.m > 0)
        return hc_sparse_gemv(run, weights, geometry, first_row, rows, x, ldx, n_vectors, out, error);
    hc_gemv_job job = {.run = run,
                       .weights = weights,
                       .geometry = geometry,
                       .first_row = first_row,
                       .rows = rows,
                       .n_vectors = n_vectors,
                       .out = out,
                       .x = x,
                       .ldx = ldx};
    job.has_groups = hc_format_find(weights->format.family)->has_groups(&weights->format);
    bool served = rows == 0 || n_vectors == 0;
    hc_status status = HC_OK;
    if (!served)
        status = hc_gemv_floats_stored(run, weights, geometry, first_row, rows, x, ldx, n_vectors, out, &served, error);
    if (served || status != HC_OK)
        return status;
    const int64_t bytes = ROWS * (MAX_VECTORS * (int64_t)sizeof(hc_gemv_state) + 2 * TILE * (int64_t)sizeof(float));
    return run_job(&job, float_rows, bytes, error);
}

hc_status hc_gemv_integers(const hc_run *run, hc_product_kind kind, const hc_packed *weights,
                           const hc_geometry *geometry, int64_t first_row, int64_t rows, const hc_packed *x,
                           const hc_geometry *x_geometry, int64_t first_vector, int64_t n_vectors, const hc_rows *out,
                           hc_error *error) {
    HC_ASSUME(geometry->runs == 1 && x_geometry->runs == 1 && n_vectors <= MAX_VECTORS);
    if (hc_only_explains(HC_PATH_GEMV_INTEGERS))
        return HC_OK;
    hc_gemv_job job = {.run = run,
                       .weights = weights,
                       .geometry = geometry,
                       .first_row = first_row,
                       .rows = rows,
                       .n_vectors = n_vectors,
                       .out = out,
                       .kind = kind,
                       .vectors = x,
                       .x_geometry = x_geometry,
                       .first_vector = first_vector};
    bool served = rows == 0 || n_vectors == 0;
    hc_status status = HC_OK;
    if (!served)
        status = hc_gemv_integers_stored(run, kind, weights, geometry, first_row, rows, x, x_geometry, first_vector,
                                         n_vectors, out, &served, error);
    if (served || status != HC_OK)
        return status;
    const int64_t side = ROWS * (TILE * (int64_t)(sizeof(int32_t) + sizeof(float) + 3) + (int64_t)sizeof(float));
    const int64_t bytes = ROWS * MAX_VECTORS * (int64_t)sizeof(hc_gemv_state) + 2 * side;
    return run_job(&job, integer_rows, bytes, error);
}
