/* Stochastic rounding with the scales of a packed array: one of the two levels next to a value is chosen at random. */
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/codec/decode.h"
#include "ops/codec/rows.h"

#include "base/threads.h"
#include "formats/bits.h"

#include <math.h>
#include <string.h>

/* ACROSS: rows that are gathered together if their columns are far apart, a cache line of float32 of each column. */
enum { BLOCK_VALUES = 1 << 14, ACROSS = 16, ACROSS_VALUES = 1 << 18 };

/* Memory of one thread: the codes and scales of a row (only the scales are used, but decoding returns both), and some
 * rows of x and of the result if they are not contiguous. */
typedef struct {
    float *codes, *stored, *y;
    double *scale, *low, *high;
    void *x;
} hc_chance_row;

typedef struct {
    const hc_run *run;
    const hc_packed *packed;
    const hc_levels *levels;
    hc_chance_levels table;
    uint64_t seed;
    hc_geometry geometry;
    hc_row_view x, out, order;                          /* order: the offset is the index of each value */
    bool has_groups, has_zero_points, has_plain_scales; /* plain: scales are stored as float32 */
    int64_t block_rows, gathered_rows, ld, groups_ld, thread_doubles;
    double *memory;
} hc_chance_job;

static hc_chance_row rows_of(const hc_chance_job *job, int thread) {
    double *memory = job->memory + thread * job->thread_doubles;
    hc_chance_row row = {.x = memory, .scale = memory + job->gathered_rows * job->ld};
    row.low = row.scale + job->groups_ld;
    row.high = row.low + job->groups_ld;
    row.stored = (float *)(row.high + job->groups_ld);
    row.codes = row.stored + job->groups_ld;
    row.y = row.codes + job->ld;
    return row;
}

/* Scales of a row, and the smallest and largest level of each. */
static void load_groups(const hc_chance_job *job, int64_t row, const hc_chance_row *at) {
    const hc_packed *packed = job->packed;
    const hc_tile tile = {row, 1, 0, job->geometry.padded};
    float row_scale = 1;
    const hc_code_tile codes = {at->codes, job->ld, at->stored, job->groups_ld, &row_scale};
    if (job->has_plain_scales)
        memcpy(at->stored, hc_part(&packed->components, HC_SCALES, row), (size_t)job->geometry.groups * sizeof(float));
    else
        hc_decode_codes_tile(job->run, &packed->format, &job->geometry, &packed->components, &tile, &codes);
    const bool has_stored = job->has_plain_scales || job->has_groups;
    for (int64_t g = 0; g < job->geometry.groups; g++) {
        at->scale[g] = (double)row_scale * (has_stored ? (double)at->stored[g] : 1);
        const double zero =
            job->has_zero_points
                ? (double)hc_read_bits(hc_part(&packed->components, HC_ZERO_POINTS, row), g, packed->format.bits)
                : 0;
        at->low[g] = job->levels->low - zero;
        at->high[g] = job->levels->high - zero;
    }
}

static void round_row(const hc_chance_job *job, int64_t row, const hc_chance_row *at, const char *x, float *y) {
    const hc_geometry *g = &job->geometry;
    load_groups(job, row, at);
    hc_round_by_chance_fn *round = HC_PICK(round_by_chance, job->run);
    const bool is_double = hc_rows_dtype(&job->x) == HC_F64;
    const int64_t run = g->padded / g->runs, joined = job->order.padded_run, size = hc_rows_size(&job->x);
    for (int64_t first = 0, n; first < g->padded; first += n) {
        const int64_t skip = first % run, group = first / g->group;
        n = hc_min(run - skip, joined - first % joined);        /* runs may have been merged there */
        const int64_t values = hc_min(n, g->run_length - skip); /* the others pad the run */
        if (values <= 0)
            continue;
        const hc_chance_run part = {.n = values,
                                    .skip = first % g->group,
                                    .group = g->group,
                                    .scale = at->scale + group,
                                    .low = at->low + group,
                                    .high = at->high + group,
                                    .seed = job->seed,
                                    .index = (uint64_t)hc_rows_offset(&job->order, row, first),
                                    .step = (uint64_t)job->order.column_stride};
        round(&job->table, &part, x + first * size, is_double, y + first);
    }
}

static void round_rows(const hc_chance_job *job, int64_t row, int64_t rows, const hc_chance_row *at) {
    hc_float_rows x = {.data = at->x, .row_stride = job->ld}, y = {.data = at->y, .row_stride = job->ld};
    const int64_t size = hc_rows_size(&job->x), padded = job->geometry.padded;
    if (!hc_rows_direct(&job->x, row, &x))
        hc_rows_gather(&job->x, job->run->isa, row, rows, 0, padded, at->x, job->ld);
    const bool is_written = hc_rows_direct(&job->out, row, &y);
    for (int64_t i = 0; i < rows; i++)
        round_row(job, row + i, at, (const char *)x.data + i * x.row_stride * size, (float *)y.data + i * y.row_stride);
    if (!is_written)
        hc_rows_scatter(&job->out, job->run->isa, row, rows, 0, padded, at->y, job->ld);
}

static void chance_task(void *context, int64_t task, int thread) {
    const hc_chance_job *job = context;
    const hc_chance_row at = rows_of(job, thread);
    const int64_t first = task * job->block_rows, end = hc_min(first + job->block_rows, job->geometry.rows);
    for (int64_t row = first; row < end; row += job->gathered_rows)
        round_rows(job, row, hc_min(job->gathered_rows, end - row), &at);
}

hc_status hc_round_by_chance(const hc_run *run, const hc_view *x, const hc_packed *packed, const hc_levels *levels,
                             uint64_t seed, const hc_view *out, hc_error *error) {
    hc_chance_job job = {.run = run, .packed = packed, .levels = levels, .seed = seed};
    hc_status status = hc_check_packed("round_by_chance: q", packed, &job.geometry, error);
    if (status == HC_OK)
        status = hc_check_view("round_by_chance: w", x, error);
    if (status == HC_OK)
        status = hc_check_host("round_by_chance: out", out->device, error);
    if (status != HC_OK)
        return status;
    if (out->dtype != HC_F32 || packed->format.m > 0)
        return hc_fail(error, HC_TYPE, "round_by_chance: expected float32 out, and no pattern");
    for (const hc_view *view = x; view; view = view == x ? out : NULL)
        if (view->ndim != packed->ndim ||
            memcmp(view->shape, packed->shape, (size_t)view->ndim * sizeof *view->shape) != 0)
            return hc_fail(error, HC_VALUE, "round_by_chance: shapes differ");
    if (levels->n < 0 || levels->n == 1 || levels->n > HC_CHANCE_LEVELS)
        return hc_fail(error, HC_VALUE, "round_by_chance: %d levels, expected 2 to %d, or 0", levels->n,
                       HC_CHANCE_LEVELS);
    const int64_t padded = job.geometry.padded;
    if (job.geometry.rows == 0 || padded == 0)
        return HC_OK;
    double table[HC_CHANCE_LEVELS];
    for (int i = 0; i < HC_CHANCE_LEVELS; i++)
        table[i] = i < levels->n ? levels->table[i] : (double)INFINITY;
    job.table = (hc_chance_levels){levels->n, table, levels->fraction, levels->least};
    const hc_stored_form form = hc_form_of(&packed->format);
    job.has_groups = hc_has_groups(&packed->format);
    job.has_zero_points = form.has_zero_points;
    job.has_plain_scales = hc_form_has_f32_scales(&form);
    hc_view order = *x;
    int64_t stride = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        order.strides[i] = stride;
        stride *= x->shape[i];
    }
    hc_rows_init(&job.x, x, &job.geometry, packed->n_axes, packed->axes);
    hc_rows_init(&job.out, out, &job.geometry, packed->n_axes, packed->axes);
    hc_rows_init(&job.order, &order, &job.geometry, packed->n_axes, packed->axes);
    job.ld = hc_round_up(padded, 16) + 64; /* kernels write beyond the last column */
    job.groups_ld = hc_round_up(job.geometry.groups, 16) + 16;
    job.block_rows = hc_max(1, hc_min(BLOCK_VALUES / padded, job.geometry.rows));
    job.gathered_rows = 1;
    if (hc_rows_across(&job.x) || hc_rows_across(&job.out)) {
        job.gathered_rows = hc_max(1, hc_min(hc_min(ACROSS, ACROSS_VALUES / padded), job.geometry.rows));
        job.block_rows = hc_max(job.block_rows / job.gathered_rows, 1) * job.gathered_rows;
    }
    job.thread_doubles =
        hc_round_up(job.gathered_rows * job.ld + (job.gathered_rows + 1) * job.ld / 2 + 1 + 4 * job.groups_ld, 8);
    const int64_t n_blocks = hc_ceil_div(job.geometry.rows, job.block_rows);
    const int n_threads = (int)hc_min(run->n_threads, n_blocks);
    const int64_t bytes = job.thread_doubles * (int64_t)sizeof(double) * n_threads;
    if (!(job.memory = hc_alloc_aligned(bytes)))
        return hc_fail(error, HC_MEMORY, "fake_quantize: not enough memory for %lld bytes", (long long)bytes);
    hc_parallel(n_threads, n_blocks, chance_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
