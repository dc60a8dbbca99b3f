/* Pruning to N:M: rows of any view, tile by tile, to nonzeros and their positions. */
#include "ops/sparse/prune.h"

#include "base/convert.h"
#include "base/layout.h"
#include "base/threads.h"
#include "ops/check.h"
#include "sparsity/nm.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Values of a tile: x, its scores and its nonzeros stay in L2. Tiles begin at bytes of the metadata. */
enum { TILE_VALUES = 1 << 14, ACROSS_ROWS = 64 };

bool hc_prune_geometry(int n, int m, hc_geometry *g, int64_t *row_bytes) {
    int64_t values, bytes;
    g->group = m;
    g->groups_per_run = hc_ceil_div(g->run_length, m);
    if (!hc_mul_size(g->groups_per_run, g->runs, &g->groups) || !hc_mul_size(g->groups, m, &g->padded) ||
        !hc_mul_size(g->padded, hc_max(g->rows, 1), &values) || !hc_mul_size(values, 8, &bytes))
        return false;
    *row_bytes = hc_ceil_div(g->groups * n * hc_position_bits(m), 8);
    return true;
}

/* Memory of a tile: x in its dtype; scores; one row as float32 and its nonzeros with their positions. */
typedef struct {
    int64_t scores, single, kept, positions, bytes;
} hc_tile_memory;

static hc_tile_memory tile_memory(const hc_pruner *p) {
    const int64_t values = p->tile_rows * p->tile_columns, row = hc_round_up(p->tile_columns, HC_CACHE_LINE);
    const bool is_double = p->x.dtype == HC_F64;
    hc_tile_memory at = {.scores = hc_round_up(values * hc_rows_size(&p->x), HC_CACHE_LINE)};
    at.single = at.scores;
    if (p->has_scores)
        at.single += hc_round_up(values * hc_rows_size(&p->scores), HC_CACHE_LINE);
    at.kept = at.single + (is_double ? row * 4 : 0);
    at.positions = at.kept + (is_double ? row * 4 : 0);
    at.bytes = at.positions + (is_double ? row : 0);
    return at;
}

void hc_pruner_init(hc_pruner *p, const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m,
                    const hc_geometry *geometry, int n_axes, const int *axes) {
    *p = (hc_pruner){.isa = run->isa, .n = n, .m = m, .has_scores = scores != NULL};
    p->geometry = (hc_geometry){.rows = geometry->rows,
                                .runs = geometry->runs,
                                .run_length = geometry->whole_length,
                                .columns = geometry->whole_columns,
                                .whole_length = geometry->whole_length,
                                .whole_columns = geometry->whole_columns};
    hc_prune_geometry(n, m, &p->geometry, &p->row_bytes);
    hc_rows_init(&p->x, x, &p->geometry, n_axes, axes);
    if (scores)
        hc_rows_init(&p->scores, scores, &p->geometry, n_axes, axes);
    p->kept_run = p->padded_run = p->geometry.groups_per_run * n;
    const hc_kernel *line = HC_BEST(choose_nm, run);
    for (int i = 0; i + 1 < HC_CHOOSE_LINES; i++, line = hc_kernel_below(line, run->isa))
        p->choose[i] = line->fn.choose_nm;
    hc_float_rows direct;
    const bool is_direct = hc_rows_direct(&p->x, 0, &direct);
    const int64_t wanted = !is_direct && hc_rows_across(&p->x) ? TILE_VALUES / ACROSS_ROWS : TILE_VALUES;
    p->tile_columns = hc_max(hc_min(hc_max(wanted / (8 * m), 1) * 8 * m, p->geometry.padded), 1);
    p->tile_rows = hc_max(TILE_VALUES / p->tile_columns, 1);
    p->scratch_bytes = hc_round_up(tile_memory(p).bytes, HC_CACHE_LINE);
}

static void round_rows(const double *x, int64_t count, float *single) {
    for (int64_t i = 0; i < count; i++)
        single[i] = (float)x[i];
}

/* Contiguous scores of the tile as float32. The padding of the last block of a run has the lowest scores. */
static void load_scores(const hc_pruner *p, int64_t row, int64_t rows, int64_t column, int64_t columns, float *scores) {
    hc_rows_gather(&p->scores, p->isa, row, rows, column, columns, scores, columns);
    if (p->scores.dtype == HC_F64) /* in place: a float32 is written before the values that are read next */
        for (int64_t i = 0; i < rows * columns; i++)
            scores[i] = (float)hc_load_f64((const char *)scores + i * 8);
    const int64_t padded = p->geometry.groups_per_run * p->m, length = p->geometry.whole_length;
    for (int64_t c = 0; c < columns && padded > length; c++)
        for (int64_t r = 0; (column + c) % padded >= length && r < rows; r++)
            scores[r * columns + c] = -INFINITY;
}

static int64_t choose(const hc_pruner *p, int64_t blocks, const float *x, const float *scores, float *values,
                      uint8_t *metadata) {
    int64_t done = HC_DECLINED;
    for (int i = 0; done == HC_DECLINED && p->choose[i]; i++)
        done = p->choose[i](p->n, p->m, blocks, x, scores, values, metadata);
    return done == HC_DECLINED ? hc_nm_choose(p->n, p->m, blocks, x, scores, values, metadata) : done;
}

/* Copies the nonzeros of a float64 row, whose positions are known. */
static void keep_doubles(const hc_pruner *p, int64_t count, const double *x, const uint8_t *metadata,
                         uint8_t *positions, double *values) {
    hc_nm_positions(metadata, count, p->m, 0, count, positions);
    for (int64_t t = 0, block = 0; t < count; block += p->m)
        for (int i = 0; i < p->n; i++, t++)
            values[t] = x[block + positions[t]];
}

/* Converts float64 to float32; finite values stay finite. */
static void saturate(const hc_pruner *p, int64_t count, const double *x, const uint8_t *metadata, uint8_t *positions,
                     float *values) {
    bool is_finite = true;
    for (int64_t t = 0; t < count; t++)
        is_finite = is_finite && fabsf(values[t]) <= FLT_MAX;
    if (is_finite)
        return;
    hc_nm_positions(metadata, count, p->m, 0, count, positions);
    for (int64_t t = 0; t < count; t++)
        if (isinf(values[t]) && isfinite(x[t / p->n * p->m + positions[t]]))
            values[t] = copysignf(FLT_MAX, values[t]);
}

bool hc_prune_tile(const hc_pruner *p, int64_t first, int64_t rows, int64_t column, void *scratch,
                   const hc_kept_rows *out) {
    const int64_t columns = hc_min(p->tile_columns, p->geometry.padded - column), blocks = columns / p->m;
    const int64_t start = column / p->m * p->n, count = blocks * p->n, size = hc_rows_size(&p->x);
    const hc_tile_memory at = tile_memory(p);
    char *const memory = scratch;
    float *const all_scores = (float *)(void *)(memory + at.scores), *const single =
                                                                         (float *)(void *)(memory + at.single);
    float *const kept = (float *)(void *)(memory + at.kept);
    uint8_t *const positions = (uint8_t *)(memory + at.positions);
    hc_float_rows direct;
    const bool is_direct = hc_rows_direct(&p->x, first, &direct);
    if (!is_direct)
        hc_rows_gather(&p->x, p->isa, first, rows, column, columns, memory, columns);
    if (p->has_scores)
        load_scores(p, first, rows, column, columns, all_scores);
    for (int64_t r = 0; r < rows; r++) {
        const char *x = is_direct ? (const char *)direct.data + (r * direct.row_stride + column) * size
                                  : memory + r * columns * size;
        const float *scores = p->has_scores ? all_scores + r * columns : NULL;
        const int64_t row = first + r - out->first_row;
        char *values = out->values + (row * out->ld + start) * hc_dtype_size(out->dtype);
        uint8_t *metadata = out->metadata + row * out->metadata_ld + start * hc_position_bits(p->m) / 8;
        if (p->x.dtype != HC_F64) {
            if (choose(p, blocks, (const float *)(const void *)x, scores, (float *)(void *)values, metadata) != HC_DONE)
                return false;
            continue;
        }
        const double *doubles = (const double *)(const void *)x;
        round_rows(doubles, columns, single);
        const bool as_double = out->dtype == HC_F64;
        float *const chosen = as_double ? kept : (float *)(void *)values;
        if (choose(p, blocks, single, scores, chosen, metadata) != HC_DONE)
            return false;
        if (as_double)
            keep_doubles(p, count, doubles, metadata, positions, (double *)(void *)values);
        else
            saturate(p, count, doubles, metadata, positions, chosen);
    }
    return true;
}

/* Moves contiguous runs of a row to their final positions, the last run first. */
static void part_runs(const hc_pruner *p, char *values, int64_t size) {
    for (int64_t run = p->geometry.runs - 1; run >= 0; run--) {
        char *to = values + run * p->padded_run * size;
        memmove(to, values + run * p->kept_run * size, (size_t)(p->kept_run * size));
        memset(to + p->kept_run * size, 0, (size_t)((p->padded_run - p->kept_run) * size));
    }
}

bool hc_prune_rows(const hc_pruner *p, int64_t rows, void *scratch, const hc_kept_rows *out) {
    const int64_t size = hc_dtype_size(out->dtype);
    for (int64_t r = 0; r < rows; r += p->tile_rows)
        for (int64_t column = 0; column < p->geometry.padded; column += p->tile_columns)
            if (!hc_prune_tile(p, out->first_row + r, hc_min(p->tile_rows, rows - r), column, scratch, out))
                return false;
    for (int64_t r = 0; r < rows && p->padded_run > p->kept_run; r++)
        part_runs(p, out->values + r * out->ld * size, size);
    return true;
}

/* Prunes a whole array, threaded. */
typedef struct {
    hc_pruner pruner;
    hc_kept_rows out;
    int64_t column_tiles;
    char *scratch;
    atomic_bool has_nan;
} hc_prune_job;

static void prune_task(void *context, int64_t task, int thread) {
    hc_prune_job *job = context;
    const hc_pruner *p = &job->pruner;
    const int64_t row = task / job->column_tiles * p->tile_rows;
    if (!hc_prune_tile(p, row, hc_min(p->tile_rows, p->geometry.rows - row), task % job->column_tiles * p->tile_columns,
                       job->scratch + thread * p->scratch_bytes, &job->out))
        atomic_store(&job->has_nan, true);
}

static hc_status check_pruning(const hc_view *x, int n, int m, int n_axes, const int *axes, hc_geometry *g,
                               hc_error *error) {
    if (n < 1 || n > m || m > HC_MAX_M)
        return hc_fail(error, HC_VALUE, "prune: keeps %d of every %d values, expected 1 <= N <= M <= %d", n, m,
                       HC_MAX_M);
    hc_status status = hc_check_view("prune: w", x, error);
    return status == HC_OK ? hc_geometry_of_axes(NULL, 1, x->ndim, x->shape, n_axes, axes, g, error) : status;
}

hc_status hc_prune_sizes(const hc_view *x, int n, int m, int n_axes, const int *axes, int64_t *values, int64_t *bytes,
                         hc_error *error) {
    hc_geometry g = {0};
    int64_t row_bytes = 0;
    const hc_status status = check_pruning(x, n, m, n_axes, axes, &g, error);
    if (status != HC_OK)
        return status;
    if (!hc_prune_geometry(n, m, &g, &row_bytes))
        return hc_fail(error, HC_VALUE, "prune: the sizes of w overflow");
    *values = g.rows * g.groups * n;
    *bytes = g.rows * row_bytes;
    return HC_OK;
}

static hc_status first_nan(const hc_view *view, const char *argument, hc_error *error) {
    int64_t index[HC_MAX_DIMS] = {0};
    const char *data = view->data;
    do {
        const double value = hc_load_float(data, view->dtype);
        if (isnan(value))
            return hc_refuse_value(error, argument, view->ndim, index, value, "");
    } while (hc_view_next(view, index, &data));
    return hc_fail(error, HC_VALUE, "prune: %s changed while it was read", argument);
}

hc_status hc_prune(const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m, int n_axes,
                   const int *axes, float *values, uint8_t *metadata, hc_error *error) {
    hc_geometry g = {0};
    int64_t n_values, bytes;
    hc_status status = check_pruning(x, n, m, n_axes, axes, &g, error);
    if (status == HC_OK)
        status = hc_prune_sizes(x, n, m, n_axes, axes, &n_values, &bytes, error);
    if (status == HC_OK && scores)
        status = hc_check_view("prune: scores", scores, error);
    if (status != HC_OK)
        return status;
    for (int i = 0; scores && i < x->ndim; i++)
        if (scores->ndim != x->ndim || scores->shape[i] != x->shape[i])
            return hc_fail(error, HC_VALUE, "prune: scores has another shape than w");
    hc_prune_job job;
    hc_pruner *p = &job.pruner;
    hc_pruner_init(p, run, x, scores, n, m, &g, n_axes, axes);
    if (n_values == 0)
        return HC_OK;
    job.out = (hc_kept_rows){0, HC_F32, (char *)values, p->geometry.groups * n, metadata, p->row_bytes};
    job.column_tiles = hc_ceil_div(p->geometry.padded, p->tile_columns);
    atomic_init(&job.has_nan, false);
    const int64_t n_tasks = hc_ceil_div(g.rows, p->tile_rows) * job.column_tiles;
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    job.scratch = hc_alloc_aligned(n_threads * p->scratch_bytes);
    if (!job.scratch)
        return hc_fail(error, HC_MEMORY, "prune: not enough memory for %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, prune_task, &job);
    hc_free_aligned(job.scratch);
    return atomic_load(&job.has_nan) ? first_nan(scores ? scores : x, scores ? "scores" : "w", error) : HC_OK;
}
