/* Values with minima times integers. With value = scale * code + minimum, a matmul is the sum of two matmuls in the
 * order GROUPED: that of the codes, which a path has stored, and that of codes of 1 whose scales are the minima:
 *
 *   y = y_codes + acc     acc = fmaf(float32(s_x * minimum), float32(sum of x over the segment), acc), ascending
 *
 * Sums and scales of x are computed for a block of its rows. Minima of 16 rows of weights are multiplied by all of
 * them.
 */
#include "ops/gemv/minima.h"

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/decode.h"

#include <math.h>
#include <string.h>

enum { AHEAD_ROWS = 64 }; /* prefetched */
enum { ROWS = 16, TASK_ROWS = 64, BLOCK_BYTES = 1 << 20, MOST_BLOCK = 256 };

typedef struct {
    const hc_packed_context *side; /* the side with minima */
    const hc_source *x;            /* the other side */
    int64_t rows, first_x, n_x, columns, limb_ld, group, x_group, segments, ld;
    hc_int_form form;
    float *sums;     /* (n_x, ld): of x */
    float *x_scales; /* (n_x, ld) */
    int8_t *limbs;   /* (n_limbs, limb_ld) of a row of x, for each thread */
    float *scales;   /* of its groups, likewise */
    int64_t x_groups;
    float *minima; /* (ROWS + 1, ld) for each thread: the minima of a row's groups, copied to their segments */
    float *added;  /* (n_x, ROWS), likewise */
    int64_t block; /* upper bound of n_x */
    hc_row_floats_fn *load;
    hc_gemv_minima_fn *multiply;
    hc_gemv_minima_halves_fn *multiply_halves; /* kernel for minima that are stored as float16, or NULL */
    const hc_rows *out;
    bool is_swapped; /* the rows of the result are those with minima */
} hc_minima_job;

static int64_t segment_end(const hc_minima_job *job, int64_t k) {
    const int64_t end = hc_min((k / job->group + 1) * job->group, job->columns);
    return job->x_group ? hc_min(end, (k / job->x_group + 1) * job->x_group) : end;
}

static void sum_row(void *context, int64_t i, int thread) {
    const hc_minima_job *job = context;
    const int n_limbs = job->form.n_limbs;
    int8_t *limbs = job->limbs + thread * n_limbs * job->limb_ld;
    float *scales = job->scales + thread * job->x_groups;
    hc_int_tile tile = {.ld = job->limb_ld, .group_scale = scales, .groups_ld = job->x_groups};
    for (int limb = 0; limb < n_limbs; limb++)
        tile.limb[limb] = limbs + limb * job->limb_ld;
    job->x->integers(job->x, HC_INT_GROUPED, job->first_x + i, 1, 0, job->columns, &tile);
    float *sums = job->sums + i * job->ld;
    float *x_scales = job->x_scales + i * job->ld;
    for (int64_t k = 0, s = 0, end; k < job->columns; k = end, s++) {
        int64_t sum = 0; /* of a row of 24-bit values, if a group is a row */
        end = segment_end(job, k);
        for (int limb = n_limbs - 1; limb >= 0; limb--) {
            const int8_t *from = tile.limb[limb];
            sum *= 256;
            for (int64_t c = k; c < end; c++)
                sum += limb == n_limbs - 1 ? from[c] : (uint8_t)from[c];
        }
        sums[s] = (float)sum;
        x_scales[s] = scales[job->x_group ? k / job->x_group : 0];
    }
}

static const uint8_t *minima_of(const hc_minima_job *job, int64_t row) {
    return hc_part(job->side->components, HC_MINIMA, job->side->first_row + row);
}

static void prefetch(const hc_minima_job *job, int64_t row) {
    const char *ahead = (const char *)minima_of(job, row + AHEAD_ROWS);
    for (int64_t i = 0; i < job->side->components->part[HC_MINIMA].row_stride; i += HC_CACHE_LINE)
        __builtin_prefetch(ahead + i, 0, 2);
}

static bool is_cut(const hc_minima_job *job) { return job->x_group && job->x_group % job->group != 0; }

static void load_minima(const hc_minima_job *job, int64_t row, float *groups, float *to) {
    const hc_packed_context *side = job->side;
    const bool cut = is_cut(job);
    job->load(side->format, side->geometry, side->components, side->first_row + row, cut ? groups : to);
    for (int64_t k = 0, s = 0; cut && k < job->columns; k = segment_end(job, k), s++)
        to[s] = groups[k / job->group];
}

/* The sums of some rows from `row` on, at most ROWS, with all lines of x. */
static void multiply(const hc_minima_job *job, int64_t row, int64_t n_rows, float *minima, float *added) {
    const uint8_t *stored[ROWS];
    for (int64_t r = 0; r < n_rows; r++)
        prefetch(job, row + r);
    if (job->multiply_halves) {
        for (int64_t r = 0; r < ROWS; r++)
            stored[r] = minima_of(job, row + hc_min(r, n_rows - 1));
        job->multiply_halves(job->segments, job->ld, job->n_x, job->x_scales, job->sums, stored, added);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++)
        load_minima(job, row + r, minima + ROWS * job->ld, minima + r * job->ld);
    job->multiply(job->segments, job->ld, job->n_x, job->x_scales, job->sums, minima, added);
}

/* Adds n values to a row whose columns are contiguous. */
static void add_line(const float *added, int64_t n, float *to) {
    for (int64_t r = 0; r < n; r++) {
        const float sum = to[r] + added[r];
        to[r] = sum == sum ? sum : NAN;
    }
}

static void add_rows(void *context, int64_t task, int thread) {
    const hc_minima_job *job = context;
    float *minima = job->minima + thread * (ROWS + 1) * job->ld;
    float *added = job->added + thread * ROWS * job->block;
    const int64_t last = hc_min((task + 1) * TASK_ROWS, job->rows);
    for (int64_t row = task * TASK_ROWS; row < last; row += ROWS) {
        const int64_t n_rows = hc_min(ROWS, last - row);
        multiply(job, row, n_rows, minima, added);
        for (int64_t i = 0; i < job->n_x; i++) {
            const int64_t x_row = job->first_x + i, stride = job->out->column_stride;
            const bool is_line = !job->is_swapped && stride == sizeof(float);
            for (int64_t r = 0; r < n_rows; r += is_line ? n_rows : 1) {
                char *to = job->is_swapped ? hc_row(job->out, row + r) + x_row * stride
                                           : hc_row(job->out, x_row) + (row + r) * stride;
                add_line(added + i * ROWS + r, is_line ? n_rows : 1, (float *)(void *)to);
            }
        }
    }
}

static bool are_halves(const hc_packed_context *side) {
    hc_component_layout layout[HC_N_COMPONENTS];
    hc_format_layout(side->format, side->geometry, layout);
    return layout[HC_MINIMA].dtype == HC_F16 && layout[HC_MINIMA].ndim == 1;
}

hc_status hc_add_minima(const hc_product *p, hc_error *error) {
    const bool is_swapped = p->x->form[HC_INT_GROUPED].has_minima;
    if (p->order != HC_ORDER_GROUPED || !(is_swapped || p->w->form[HC_INT_GROUPED].has_minima))
        return HC_OK;
    const hc_source *with = is_swapped ? p->x : p->w;
    const hc_rows out = hc_merged_rows(&p->out);
    const hc_run run = hc_run_for(p);
    const hc_packed_context *side = with->context;
    hc_minima_job job = {.side = side,
                         .x = is_swapped ? p->w : p->x,
                         .rows = with->rows,
                         .columns = with->columns,
                         .group = with->group ? with->group : hc_max(with->columns, 1),
                         .load = hc_minima_fn(p->run, side->format),
                         .multiply = HC_PICK(gemv_minima, p->run),
                         .out = &out,
                         .is_swapped = is_swapped};
    HC_ASSUME(with->runs == 1 && job.x->runs == 1);
    job.limb_ld = hc_round_up(job.columns, HC_CACHE_LINE) + HC_CACHE_LINE;
    job.form = job.x->form[HC_INT_GROUPED];
    job.x_group = job.x->group;
    job.x_groups = job.x_group ? hc_ceil_div(job.columns, job.x_group) : 1;
    for (int64_t k = 0; k < job.columns; k = segment_end(&job, k))
        job.segments++;
    job.ld = hc_round_up(hc_max(job.segments, job.side->geometry->groups), 16);
    if (are_halves(side) && !is_cut(&job))
        job.multiply_halves = HC_PICK(gemv_minima_halves, p->run);
    const int64_t line = job.ld * (int64_t)sizeof(float);
    job.block = hc_min(job.x->rows, hc_max(1, hc_min(MOST_BLOCK, BLOCK_BYTES / line)));
    const int64_t most = hc_min(hc_max(1, run.n_threads), HC_MAX_THREADS);
    const int64_t limb_bytes = most * job.form.n_limbs * job.limb_ld;
    const int64_t lines = 2 * job.block + most * (ROWS + 1), floats = lines * job.ld + most * ROWS * job.block;
    const int64_t bytes = hc_round_up(floats * (int64_t)sizeof(float), HC_CACHE_LINE);
    char *memory = hc_alloc_aligned(bytes + limb_bytes + most * job.x_groups * (int64_t)sizeof(float));
    if (!memory)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for the minima of %lld columns",
                       (long long)job.columns);
    memset(memory, 0, (size_t)bytes);
    job.sums = (float *)(void *)memory;
    job.x_scales = job.sums + job.block * job.ld;
    job.minima = job.sums + 2 * job.block * job.ld;
    job.added = job.sums + lines * job.ld;
    job.limbs = (int8_t *)(memory + bytes);
    job.scales = (float *)(void *)(memory + bytes + limb_bytes);
    for (; job.first_x < job.x->rows; job.first_x += job.block) {
        job.n_x = hc_min(job.block, job.x->rows - job.first_x);
        hc_parallel((int)hc_min(most, job.n_x), job.n_x, sum_row, &job);
        const int64_t n_tasks = hc_ceil_div(job.rows, TASK_ROWS);
        hc_parallel((int)hc_min(most, n_tasks), n_tasks, add_rows, &job);
    }
    hc_free_aligned(memory);
    return HC_OK;
}
