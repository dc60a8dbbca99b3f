/* Matmuls with one scale per group of weights and one per row of x. x is packed into panels, with one row per lane. w
 * is decoded to int8, a group of rows at a time, once for all rows of x (kernels/rows/rows.h, lanes_s8_scaled). The
 * order is GROUPED if scales are float32. It is FOLDED if integer scales times codes would need more than 8 bits: the
 * scales then multiply the sums of their groups (lanes_s8_split).
 *
 *   x panel (k / 4, lanes, 4 bytes)  x  w rows (group, k)  ->  values (group, lanes), transposed: out (lanes, group)
 *
 * k is walked in chunks, so that a panel stays in L1; sums wait for the next chunk. Threads share groups of weight
 * rows, and blocks of x if there are few groups.
 *
 * Memory: X_BYTES for the panels and half as much for sums, HC_WORK_BYTES for weights and values of all threads.
 */
#include "base/convert.h"
#include "ops/product/measure.h"
#include "ops/product/pack.h"
#include "ops/rows/driver.h"
#include "ops/rows/lanes.h"
#include "ops/rows/limbs.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    LONGEST = 65536, /* columns: bounds the memory, and the sums of a group */
    X_BYTES = 8 << 20,
    DECODED_BYTES = 256 << 10,
    GROUP_STEP = 12, /* a multiple of the rows that kernels process at once */
    MOST_GROUP = 96,
    CHUNK_BYTES = 16 << 10,
    UNIT = 16, /* rows of x packed at once */
    ROW_PADDING = 64,
};

typedef struct {
    const hc_product *product;
    bool split; /* integer scales, multiplied into sums */
    hc_lanes_groups_fn *multiply;
    hc_dequantize_s32_fn *dequantize_s32;
    hc_dequantize_s64_fn *dequantize_s64;
    hc_combine_limbs_fn *join;
    hc_pack_x32_fn *transpose;
    hc_compensation_s8_fn *sum;
    hc_largest_f32_fn *largest;
    hc_rows out;
    hc_row_blocks x_rows;
    int64_t n, k, group, segments, chunk, quads, ld;
    int64_t most; /* split: columns whose sums fit int32; the sums of more are added in int64 */
    /* offsets in the memory of one thread, after the decoded rows */
    int64_t scales_at, row_scales_at, sums_at, dots_at, values_at, private_bytes;
    uint8_t *memory, *private_memory;
    int8_t *x;
    int32_t *start; /* (segments, lanes) for each block of x */
    float *x_scales;
} hc_groups_job;

/* Rows as int8, padded with 0 to a multiple of 4 columns. */
static void load(const hc_source *source, hc_int_mode mode, int64_t first, int64_t rows, int64_t ld, int8_t *to,
                 float *group_scales, int64_t ld_scales, float *row_scales) {
    const hc_int_tile tile = {
        .limb = {to}, .ld = ld, .group_scale = group_scales, .groups_ld = ld_scales, .row_scale = row_scales};
    source->integers(source, mode, first, rows, 0, source->columns, &tile);
    for (int64_t i = 0; i < rows; i++)
        memset(to + i * ld + source->columns, 0, (size_t)(hc_round_up(source->columns, 4) - source->columns));
}

static void x_task(void *context, int64_t unit, int thread) {
    const hc_groups_job *job = context;
    const hc_row_blocks *blocks = &job->x_rows;
    int8_t *rows = (int8_t *)job->private_memory + thread * job->private_bytes;
    const int64_t first = unit * UNIT, n = hc_min(UNIT, blocks->rows - first);
    const int64_t block = hc_row_block_of(blocks, unit), begin = hc_row_first_unit(blocks, block);
    const int64_t lanes = (hc_row_first_unit(blocks, block + 1) - begin) * UNIT;
    memset(rows, 0, (size_t)(UNIT * job->ld)); /* lanes without a row are 0 */
    memset(job->x_scales + first, 0, UNIT * sizeof(float));
    float *scales = job->x_scales + first; /* of the row, or of its one group */
    load(job->product->x, job->split ? HC_INT_FOLDED : HC_INT_GROUPED, blocks->first_row + first, n, job->ld, rows,
         job->split ? NULL : scales, 1, job->split ? scales : NULL);
    int8_t *panel = rows + UNIT * job->ld, *to = job->x + (begin * job->quads + unit - begin) * UNIT * 4;
    job->transpose(rows, job->ld, UNIT, job->quads, panel, UNIT, 0);
    for (int64_t quad = 0; quad < job->quads; quad++)
        memcpy(to + quad * lanes * 4, panel + quad * UNIT * 4, (size_t)UNIT * 4);
    int32_t *start = job->start + (begin * job->segments + unit - begin) * UNIT;
    for (int64_t s = 0; s < job->segments; s++) {
        const int64_t first_quad = s * job->group / 4;
        const int32_t steps = (int32_t)(hc_min(job->group / 4, job->quads - first_quad));
        job->sum(1, &steps, 1, panel + first_quad * UNIT * 4, UNIT, -128, start + s * lanes);
    }
}

/* The largest magnitude of n scales, NaN if one of them is NaN. */
static double largest_of(const hc_groups_job *job, const float *scales, int64_t n) {
    return hc_f32_from_bits(job->largest(scales, n, 0));
}

/* Some blocks of x times a group of weights. */
static void group_task(void *context, int64_t task, int thread) {
    const hc_groups_job *job = context;
    const hc_row_blocks *blocks = &job->x_rows;
    const hc_row_task of = hc_row_task_of(blocks, task);
    const int64_t first = of.first;
    uint8_t *scratch = job->private_memory + thread * job->private_bytes;
    int8_t *w = (int8_t *)scratch;
    float *scales = (float *)(void *)(scratch + job->scales_at), *values = (float *)(void *)(scratch + job->values_at);
    float *row_scales = (float *)(void *)(scratch + job->row_scales_at);
    int32_t *sums = (int32_t *)(void *)(scratch + job->sums_at);
    int64_t *dots = job->k > job->most ? (int64_t *)(void *)(scratch + job->dots_at) : NULL;
    hc_lanes_groups_args args = {.n_w = hc_min(blocks->group_rows, job->n - first),
                                 .group = job->group,
                                 .ld_w = job->ld,
                                 .ld_scales = job->segments,
                                 .c = job->split ? (void *)sums : values};
    load(job->product->w, job->split ? HC_INT_SPLIT : HC_INT_GROUPED, first, args.n_w, job->ld, w, scales,
         job->segments, row_scales);
    if (job->split) /* integers below 2^24 as floats, replaced in place by integers */
        for (int64_t i = 0; i < args.n_w * job->segments; i++) {
            const int32_t factor = (int32_t)scales[i];
            memcpy(scales + i, &factor, sizeof factor);
        }
    const double largest = job->split ? 0 : largest_of(job, scales, args.n_w * job->segments);
    for (int64_t block = of.from; block < of.to; block++) {
        const int64_t begin = hc_row_first_unit(blocks, block), units = hc_row_first_unit(blocks, block + 1) - begin;
        const int64_t row = begin * UNIT, rows = hc_min(units * UNIT, blocks->rows - row);
        args.lanes = (int)units * UNIT;
        args.ldc = args.lanes;
        args.x_scales = job->x_scales + row;
        const int64_t tile = args.n_w * args.ldc;
        if (dots)
            memset(dots, 0, (size_t)tile * sizeof *dots);
        for (int64_t k = 0, held = 0; k < job->k; k += job->chunk) {
            args.columns = hc_min(job->chunk, job->k - k);
            args.x = job->x + (begin * job->quads + k / 4 * units) * UNIT * 4;
            args.start = job->start + (begin * job->segments + k / job->group * units) * UNIT;
            args.w = w + k;
            args.w_scales = scales + k / job->group;
            args.factors = (const int32_t *)(const void *)args.w_scales;
            args.accumulate = held > 0;
            job->multiply(&args);
            held += args.columns;
            if (dots && (held + job->chunk > job->most || k + job->chunk >= job->k)) {
                job->join(1, tile, sums, &(int){0}, dots);
                held = 0;
            }
        }
        if (dots)
            job->dequantize_s64(args.n_w, rows, dots, args.ldc, row_scales, job->x_scales + row, values, args.ldc);
        else if (job->split)
            job->dequantize_s32(args.n_w, rows, sums, args.ldc, row_scales, job->x_scales + row, values, args.ldc);
        const double most = largest * largest_of(job, args.x_scales, rows) * (128 * 128) * (double)job->k;
        const bool finite = job->split || most < (double)FLT_MAX;    /* no sum overflows, and so none is NaN */
        for (int64_t i = 0; !finite && i < args.n_w * args.ldc; i++) /* one NaN for all, as in the other paths */
            values[i] = values[i] == values[i] ? values[i] : NAN;
        hc_lanes_store(job->transpose, &job->out, blocks->first_row + row, rows, first, args.n_w, args.ldc, values);
    }
}

/* Columns of every group but the last one of a row, 0 if they differ: runs of several groups need whole ones. */
static int64_t even_group(const hc_source *w) {
    const int64_t group = w->runs > 1 ? hc_min(w->group, w->run_length) : w->group;
    return group == 0 || group % 8 || (w->runs > 1 && w->run_length % group) ? 0 : group;
}

/* Whole groups of columns whose sums of products with int8 fit int32. */
static int64_t most_columns(const hc_source *w) {
    return INT32_MAX / (128 * hc_most_of(w, HC_INT_FOLDED)) / even_group(w) * even_group(w);
}

static void plan(hc_groups_job *job, const hc_product *p, bool split) {
    const hc_run run = hc_run_for(p);
    hc_row_blocks *blocks = &job->x_rows;
    const int most_lanes = HC_LANES_X * UNIT;
    *job = (hc_groups_job){.product = p, .n = p->w->rows, .k = p->w->columns, .group = even_group(p->w)};
    job->split = split;
    blocks->unit = blocks->portion = UNIT;
    blocks->most_units = HC_LANES_X;
    job->multiply = split ? HC_PICK(lanes_s8_split, &run) : HC_PICK(lanes_s8_scaled, &run);
    job->dequantize_s32 = HC_PICK(dequantize_s32, &run);
    job->dequantize_s64 = HC_PICK(dequantize_s64, &run);
    job->join = HC_PICK(combine_limbs, &run);
    job->transpose = HC_PICK(pack_x32, &run);
    job->sum = HC_PICK(compensation_s8, &run);
    job->largest = HC_PICK(largest_f32, &run);
    job->out = hc_merged_rows(&p->out);
    job->most = split ? most_columns(p->w) : job->k;
    job->segments = hc_ceil_div(job->k, job->group);
    job->quads = hc_ceil_div(job->k, 4);
    job->ld = hc_round_up(job->k, ROW_PADDING) + ROW_PADDING; /* rows of 4 KiB would share the cache sets of L1 */
    blocks->most = hc_max(X_BYTES / (job->quads * 4) / most_lanes, 1) * most_lanes;
    blocks->most = hc_min(hc_round_up(p->x->rows, UNIT), blocks->most);
    const int64_t lanes = hc_min(blocks->most, most_lanes);
    job->chunk = hc_min(hc_max(CHUNK_BYTES / lanes / job->group, 1) * job->group, hc_round_up(job->most, job->group));
    const int64_t rows = hc_min(DECODED_BYTES / job->ld, MOST_GROUP);
    blocks->group_rows = hc_row_group(&run, job->n, rows, GROUP_STEP);
    job->scales_at = hc_max(blocks->group_rows, 2 * UNIT) * job->ld; /* x_task has rows and their panel */
    job->row_scales_at = job->scales_at + blocks->group_rows * job->segments * 4;
    job->sums_at = hc_round_up(job->row_scales_at + blocks->group_rows * 4, HC_CACHE_LINE);
    job->dots_at = job->sums_at + (split ? blocks->group_rows * lanes * 4 : 0);
    job->values_at = job->dots_at + (job->k > job->most ? blocks->group_rows * lanes * 8 : 0);
    job->private_bytes = hc_round_up(job->values_at + blocks->group_rows * lanes * 4, HC_CACHE_LINE);
    blocks->n_threads = hc_row_threads(&run, job->private_bytes);
}

static bool allocate(hc_groups_job *job) {
    const int64_t start_at = job->x_rows.most * job->quads * 4;
    const int64_t scales_at = start_at + job->x_rows.most * job->segments * 4;
    const int64_t private_at = hc_round_up(scales_at + job->x_rows.most * 4, HC_CACHE_LINE);
    job->memory = hc_alloc_aligned(private_at + job->x_rows.n_threads * job->private_bytes);
    if (!job->memory)
        return false;
    job->x = (int8_t *)job->memory;
    job->start = (int32_t *)(void *)(job->memory + start_at);
    job->x_scales = (float *)(void *)(job->memory + scales_at);
    job->private_memory = job->memory + private_at;
    return true;
}

const char *hc_lanes_grouped_refuses(const hc_product *p) {
    if (!HC_PICK(lanes_s8_scaled, p->run))
        return "no kernel of this machine has rows of x in lanes and scales of groups";
    if (p->w->columns > LONGEST)
        return "rows of more than 65536 values";
    if (p->x->group || !even_group(p->w))
        return "not x with one scale a row and weights with groups of 8, 16, 24 ... columns";
    if (p->x->form[HC_INT_GROUPED].n_limbs > 1 || hc_signed_limbs(&p->w->form[HC_INT_GROUPED]) > 1)
        return "integers of more than 8 bits";
    return NULL;
}

bool hc_lanes_splits(const hc_product *p) {
    const hc_int_form *x = &p->x->form[HC_INT_FOLDED], *w = &p->w->form[HC_INT_FOLDED];
    const hc_int_form *split = &p->w->form[HC_INT_SPLIT];
    if (!HC_PICK(lanes_s8_split, p->run) || !split->available || hc_signed_limbs(split) > 1 ||
        hc_signed_limbs(w) == 1 || x->n_limbs > 1 || p->w->columns > LONGEST || !even_group(p->w))
        return false;
    return most_columns(p->w) > 0;
}

hc_work hc_lanes_groups_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns, lanes = (double)hc_round_up(p->x->rows, UNIT);
    hc_work work = hc_decoding(p);
    work.limbs = 0; /* integers are not multiplied by their scales */
    if (p->order == HC_ORDER_FOLDED &&
        p->w_packed) { /* codes are unpacked, or copied, and a row begins (Zen 4, 2026-12) */
        const bool are_bytes = !work.unpacked && p->w_packed->format->bits == 8;
        work.unpacked = are_bytes ? codes / 4 : 0.4 * work.unpacked;
        work.unpacked += (double)p->w->rows * (are_bytes ? 80 : 280);
    }
    work.products = codes * lanes;
    work.groups = hc_groups(p) * lanes;
    work.values = hc_values_and_results(p, lanes, 5); /* empty lanes are packed and stored, too */
    if (p->order == HC_ORDER_FOLDED) { /* in relation to lanes.c: 0.3 ns a value of x, 0.03 a group (Zen 4, 2026-11) */
        work.values += 3 * lanes * (double)p->w->columns;
        work.groups *= 0.5;
    }
    return work;
}
hc_work hc_lanes_grouped_work(const hc_product *p) { return hc_lanes_groups_work(p); }

hc_status hc_lanes_groups_run(const hc_product *p, bool split, hc_error *error) {
    hc_groups_job job;
    plan(&job, p, split);
    if (!allocate(&job))
        return hc_fail(error, HC_MEMORY, "product: not enough memory for rows of %lld columns", (long long)job.k);
    hc_row_walk(&job.x_rows, p, x_task, group_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
hc_status hc_lanes_grouped_run(const hc_product *p, hc_error *error) { return hc_lanes_groups_run(p, false, error); }
