/* Expands nonzeros to whole columns: rows for matmuls, and whole arrays. */
#include "ops/product/packed_rows.h"
#include "ops/product/sparse.h"

#include "base/layout.h"
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/codec/rows.h"
#include "sparsity/nm.h"

#include <string.h>

enum { PIECE = 1024 }; /* whole columns at a time; the nonzeros are at most as many, plus the blocks at both ends */
enum { SHORT = 64 };   /* columns: shorter runs are decoded together */
enum { KEPT = PIECE + 2 * HC_MAX_M };

/* Whole columns [column, column + count) of one run, and the nonzeros of the blocks that they touch. */
typedef struct {
    int64_t column, count;
    int64_t inside;       /* index of the first column in its run */
    int64_t kept, n_kept; /* in kept columns */
    int64_t block;        /* column of the run at which the block of nonzero number `kept` begins */
} hc_stretch;

static hc_stretch stretch_at(const hc_packed_context *packed, int64_t column, int64_t end) {
    const hc_geometry *g = packed->geometry;
    const int64_t n = packed->format->n, m = packed->format->m;
    hc_stretch s = {.column = column, .inside = column % g->whole_length};
    s.count = hc_min(hc_min(end - column, g->whole_length - s.inside), PIECE);
    s.block = s.inside / m * m;
    s.kept = column / g->whole_length * g->run_length + s.block / m * n;
    s.n_kept = hc_ceil_div(s.inside + s.count - s.block, m) * n;
    return s;
}

/* Index, relative to s.column, of nonzero i of the stretch. Indices outside [0, s.count) are dropped. */
static void places(const hc_packed_context *packed, int64_t row, const hc_stretch *s, int32_t place[KEPT]) {
    const int n = packed->format->n, m = packed->format->m;
    uint8_t position[KEPT];
    hc_nm_positions(hc_part(packed->components, HC_METADATA, row), packed->geometry->columns, m, s->kept, s->n_kept,
                    position);
    int32_t block = (int32_t)(s->block - s->inside);
    for (int64_t i = 0; i < s->n_kept; block += m)
        for (int j = 0; j < n; j++, i++)
            place[i] = block + position[i];
}

/* Bitmasks of the nonzeros of a stretch, from its first block on: words of 64 columns; masks[0] begins at column
 * s->block. */
static int64_t masks_of(const hc_packed_context *packed, const hc_sparse_masks *line, int64_t row, const hc_stretch *s,
                        uint64_t *masks) {
    const int64_t n = packed->format->n, columns = s->n_kept / n * packed->format->m;
    hc_sparse_masks_of(line, hc_part(packed->components, HC_METADATA, row), packed->geometry->columns, s->kept / n,
                       columns, masks);
    return hc_ceil_div(columns, 64);
}

static bool are_short(int64_t length, int64_t first_column, int64_t columns) {
    return length > 0 && length < SHORT && first_column % length == 0 && columns % length == 0;
}

/* Whole runs that are shorter than a piece, as the taps of filters of few channels: of several rows at a time. */
static void short_runs(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_run, int64_t runs,
                       float *values, int64_t ld) {
    const hc_packed_context *packed = source->context;
    const hc_geometry *g = packed->geometry;
    const int64_t n = packed->format->n, length = g->whole_length, padded = g->run_length / n * packed->format->m;
    hc_expand_fn *const spread = HC_PICK(expand_x32, packed->run);
    float kept[KEPT], whole[KEPT + 64];
    uint64_t masks[KEPT / 64 + 1];
    hc_sparse_masks line;
    hc_sparse_masks_init(&line, packed->run, packed->format->n, packed->format->m);
    for (int64_t run = 0, some; run < runs; run += some) {
        some = hc_min(runs - run, PIECE / padded);
        const int64_t first = (first_run + run) * g->run_length, n_kept = some * g->run_length;
        const int64_t together = PIECE / (some * padded);
        for (int64_t r = 0; r < rows; r++) {
            if (r % together == 0)
                hc_packed_floats(source, first_row + r, hc_min(together, rows - r), first, n_kept, kept, n_kept);
            hc_sparse_masks_of(&line, hc_part(packed->components, HC_METADATA, packed->first_row + first_row + r),
                               g->columns, first / n, some * padded, masks);
            spread(hc_ceil_div(some * padded, 64), masks, kept + r % together * n_kept, whole);
            float *to = values + r * ld + run * length;
            for (int64_t i = 0; i < some; i++)
                for (int64_t j = 0; j < length; j++)
                    to[i * length + j] = whole[i * padded + j];
        }
    }
}

void hc_sparse_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld) {
    const hc_packed_context *packed = source->context;
    const int64_t length = packed->geometry->whole_length;
    if (are_short(length, first_column, columns)) {
        short_runs(source, first_row, rows, first_column / length, columns / length, values, ld);
        return;
    }
    hc_expand_fn *const spread = HC_PICK(expand_x32, packed->run);
    float kept[KEPT], whole[KEPT + 64];
    uint64_t masks[KEPT / 64 + 1];
    hc_sparse_masks line;
    hc_sparse_masks_init(&line, packed->run, packed->format->n, packed->format->m);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = first_column; c < first_column + columns;) {
            const hc_stretch s = stretch_at(packed, c, first_column + columns);
            hc_packed_floats(source, first_row + r, 1, s.kept, s.n_kept, kept, KEPT);
            spread(masks_of(packed, &line, packed->first_row + first_row + r, &s, masks), masks, kept, whole);
            memcpy(values + r * ld + (c - first_column), whole + (s.inside - s.block), (size_t)s.count * sizeof *whole);
            c += s.count;
        }
}

/* The same of integers without groups. */
static void short_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                           int64_t first_run, int64_t runs, const hc_int_tile *out) {
    const hc_packed_context *packed = source->context;
    const hc_geometry *g = packed->geometry;
    const int64_t n = packed->format->n, length = g->whole_length, padded = g->run_length / n * packed->format->m;
    hc_expand_fn *const spread = HC_PICK(expand_x8, packed->run);
    int8_t kept[3][KEPT], whole[KEPT + 64];
    uint64_t masks[KEPT / 64 + 1];
    hc_sparse_masks line;
    hc_sparse_masks_init(&line, packed->run, packed->format->n, packed->format->m);
    for (int64_t r = 0; r < rows; r++) {
        const hc_int_tile tile = {.limb = {kept[0], kept[1], kept[2]},
                                  .ld = KEPT,
                                  .group_scale = out->group_scale ? out->group_scale + r * out->groups_ld : NULL,
                                  .groups_ld = 1,
                                  .row_scale = out->row_scale ? out->row_scale + r : NULL};
        for (int64_t run = 0, some; run < runs; run += some) {
            some = hc_min(runs - run, PIECE / padded);
            const int64_t first = (first_run + run) * g->run_length;
            hc_packed_integers(source, mode, first_row + r, 1, first, some * g->run_length, &tile);
            hc_sparse_masks_of(&line, hc_part(packed->components, HC_METADATA, packed->first_row + first_row + r),
                               g->columns, first / n, some * padded, masks);
            for (int limb = 0; limb < source->form[mode].n_limbs; limb++) {
                spread(hc_ceil_div(some * padded, 64), masks, kept[limb], whole);
                int8_t *to = out->limb[limb] + r * out->ld + run * length;
                for (int64_t i = 0; i < some; i++)
                    for (int64_t j = 0; j < length; j++)
                        to[i * length + j] = whole[i * padded + j];
            }
        }
    }
}

void hc_sparse_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_packed_context *packed = source->context;
    hc_expand_fn *const spread = HC_PICK(expand_x8, packed->run);
    const int n_limbs = source->form[mode].n_limbs;
    int8_t kept[3][KEPT], whole[KEPT + 64];
    float scale[KEPT + 1];
    uint64_t masks[KEPT / 64 + 1];
    hc_sparse_masks line;
    hc_sparse_masks_init(&line, packed->run, packed->format->n, packed->format->m);
    if (columns == 0)
        hc_packed_integers(source, mode, first_row, rows, 0, 0, out);
    const int64_t length = packed->geometry->whole_length;
    if (source->group == 0 && columns > 0 && are_short(length, first_column, columns)) {
        short_integers(source, mode, first_row, rows, first_column / length, columns / length, out);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t groups = 0; /* before the stretch */
        for (int64_t c = first_column; c < first_column + columns;) {
            const hc_stretch s = stretch_at(packed, c, first_column + columns);
            hc_int_tile tile = {.limb = {kept[0], kept[1], kept[2]},
                                .ld = KEPT,
                                .group_scale = out->group_scale ? scale : NULL,
                                .groups_ld = KEPT + 1,
                                .row_scale = out->row_scale ? out->row_scale + r : NULL};
            hc_packed_integers(source, mode, first_row + r, 1, s.kept, s.n_kept, &tile);
            const int64_t words = masks_of(packed, &line, packed->first_row + first_row + r, &s, masks);
            for (int i = 0; i < n_limbs; i++) {
                spread(words, masks, kept[i], whole);
                memcpy(out->limb[i] + r * out->ld + (c - first_column), whole + (s.inside - s.block), (size_t)s.count);
            }
            const int64_t group = source->group ? source->group : s.inside + s.count; /* none: one */
            const int64_t n_groups = hc_ceil_div(s.inside + s.count, group) - s.inside / group;
            for (int64_t g = 0; out->group_scale && g < n_groups; g++)
                out->group_scale[r * out->groups_ld + groups + g] = scale[g];
            /* A group that continues in the next stretch is counted there. */
            groups += n_groups - ((s.inside + s.count) % group != 0 && s.inside + s.count < source->run_length);
            groups -= source->group == 0;
            c += s.count;
        }
    }
}

/* Whole arrays: a task is some rows, each of which is decoded and then expanded into padded columns. */
typedef struct {
    const hc_run *run;
    const hc_packed *packed;
    const hc_geometry *geometry;
    hc_geometry whole;
    hc_row_view view;
    int64_t first_row, rows, first_column, columns; /* of the slab */
    int64_t task_rows, task_columns, column_tasks, thread_bytes;
    char *memory;
} hc_whole_job;

/* float64 values of nonzeros; the first may be inside a byte or a group. */
static void kept_doubles(const hc_whole_job *job, int64_t row, int64_t first, int64_t count, double *values) {
    const hc_format *format = &job->packed->format;
    const hc_geometry *g = job->geometry;
    enum { AT_ONCE = 128 };
    double piece[AT_ONCE + 8];
    const int64_t padded_run = g->padded == g->columns ? g->run_length : g->groups_per_run * g->group;
    for (int64_t done = 0; done < count;) {
        const int64_t kept = first + done, inside = kept % g->run_length;
        const int64_t padded = kept / g->run_length * padded_run + inside, start = padded & ~(int64_t)7;
        const int64_t n = hc_min(hc_min(count - done, g->run_length - inside), AT_ONCE);
        const hc_tile tile = {row, 1, start, padded + n - start};
        hc_format_find(format->family)->decode_f64(format, g, &job->packed->components, &tile, piece, AT_ONCE + 8);
        memcpy(values + done, piece + (padded - start), (size_t)n * sizeof *piece);
        done += n;
    }
}

static void whole_task(void *context, int64_t task, int thread) {
    const hc_whole_job *job = context;
    const int64_t place_column = task % job->column_tasks * job->task_columns,
                  column = job->first_column + place_column;
    const int64_t columns = hc_min(job->task_columns, job->columns - place_column);
    const int64_t place_row = task / job->column_tasks * job->task_rows, first = job->first_row + place_row;
    const int64_t rows = hc_min(job->task_rows, job->rows - place_row);
    const hc_packed_context packed = {.run = job->run,
                                      .format = &job->packed->format,
                                      .geometry = job->geometry,
                                      .components = &job->packed->components};
    char *memory = job->memory + thread * job->thread_bytes;
    const hc_source source = {.context = &packed};
    if (job->view.dtype == HC_F32) {
        hc_sparse_floats(&source, first, rows, column, columns, (float *)(void *)memory, columns);
    } else {
        double *values = (double *)(void *)memory, kept[KEPT];
        int32_t place[KEPT];
        memset(values, 0, (size_t)(rows * columns) * sizeof *values);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = column; c < column + columns;) {
                const hc_stretch s = stretch_at(&packed, c, column + columns);
                kept_doubles(job, first + r, s.kept, s.n_kept, kept);
                places(&packed, first + r, &s, place);
                for (int64_t i = 0; i < s.n_kept; i++)
                    if (place[i] >= 0 && place[i] < s.count)
                        values[r * columns + c - column + place[i]] = kept[i];
                c += s.count;
            }
    }
    hc_rows_scatter(&job->view, job->run->isa, place_row, rows, place_column, columns, memory, columns);
}

hc_status hc_sparse_dequantize(const hc_run *run, const hc_packed *packed, const hc_geometry *geometry, int64_t first,
                               int64_t count, const hc_view *out, hc_error *error) {
    hc_whole_job job = {.run = run, .packed = packed, .geometry = geometry};
    hc_status status =
        hc_geometry_init(NULL, 1, geometry->rows, geometry->runs, geometry->whole_length, &job.whole, error);
    if (status != HC_OK || job.whole.rows == 0 || job.whole.columns == 0)
        return status;
    job.rows = job.whole.rows;
    job.columns = job.whole.columns;
    if (packed->ndim && count != packed->shape[0]) {
        bool is_reduced = false;
        for (int i = 0; i < packed->n_axes; i++)
            is_reduced = is_reduced || packed->axes[i] == 0;
        const int64_t each = is_reduced ? 1 : job.whole.rows / packed->shape[0];
        if (is_reduced && packed->n_axes > 1)
            return hc_fail(error, HC_VALUE, "dequantize: slabs of one of several reduction axes");
        *(is_reduced ? &job.first_column : &job.first_row) = first * each;
        *(is_reduced ? &job.columns : &job.rows) = count * each;
        if (count == 0)
            return HC_OK;
    }
    hc_rows_init(&job.view, out, &job.whole, packed->n_axes, packed->axes);
    const bool across = hc_rows_across(&job.view);
    job.task_columns = hc_min(across ? 256 : 4096, job.columns);
    job.task_rows = hc_max((1 << 14) / job.task_columns, 1);
    job.column_tasks = hc_ceil_div(job.columns, job.task_columns);
    const int64_t n_tasks = hc_ceil_div(job.rows, job.task_rows) * job.column_tasks;
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    job.thread_bytes = hc_round_up(job.task_rows * job.task_columns * hc_dtype_size(out->dtype), HC_CACHE_LINE);
    job.memory = hc_alloc_aligned(job.thread_bytes * n_threads);
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "dequantize: not enough memory for %d threads", n_threads);
    hc_parallel(n_threads, n_tasks, whole_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
