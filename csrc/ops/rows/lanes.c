/* Folded matmuls of many rows of x. x is packed into panels, with one row per lane, and the weights keep their order
 * (kernels/rows/rows.h, lanes_s8). int8 codes without groups are read as they are stored, and so are 4-bit codes that
 * have a kernel (lanes_s4). Other weights are decoded to int8, a group of rows at a time, once for all rows of x. Wider
 * integers become signed limbs (rows.c), or 8-bit integers with separate scales (lanes_groups.c).
 *
 *   x panel (k / 4, lanes, 4 bytes)  x  w rows (group, k)  ->  sums (group, lanes)  ->  scaled, transposed: out (lanes, group)
 *
 * Threads share groups of weight rows, and blocks of x where groups are few.
 *
 * Memory: X_BYTES for the current panels, HC_WORK_BYTES for weights and sums of all threads.
 */
#include "ops/rows/lanes.h"
#include "ops/product/measure.h"
#include "ops/product/pack.h"
#include "ops/rows/driver.h"
#include "ops/rows/limbs.h"
#include "ops/rows/stored.h"

#include <string.h>

enum {
    LONGEST = 65536, /* the kernel's budget */
    X_BYTES = 8 << 20,
    GROUP_BYTES = 192 << 10, /* of weights, which all blocks of x read: two groups stay in L2 */
    GROUP_STEP = 24,         /* a multiple of the rows that kernels process at once */
    MOST_GROUP = 96,
    /* Decoded weights. With 32 to 64 rows of x, groups of 48 rows of 2048 columns take .93 to .97 of the time of groups
     * of 24, and groups of 8 take 1.2 times as long (Zen 4, 2026-11). */
    DECODED_BYTES = 512 << 10,
    MOST_DECODED = 48,
    FAR_BYTES = 1 << 20, /* weights of this size and more are prefetched, since they do not stay in L2 */
    UNIT = 16,           /* rows of x packed at once; HC_LANES_FEW if there are no more rows */
};

typedef struct {
    const hc_product *product;
    hc_lanes_s8_fn *multiply;
    hc_dequantize_s32_fn *dequantize_s32;
    hc_dequantize_s64_fn *dequantize_s64;
    hc_combine_limbs_fn *join;
    hc_pack_x32_fn *transpose;
    hc_rows out;
    hc_row_blocks x_rows;
    int lanes; /* most lanes of a block */
    int x_limbs, w_limbs;
    bool direct;  /* weights are read as they are stored */
    bool nibbles; /* these are 4-bit codes */
    int words;    /* 32-bit words of 4-bit codes that share a scale; 0: one scale per row */
    int64_t n, k, ld, quads, x_plane;
    int64_t sums_at, values_at, dots_at, rows_at, private_bytes; /* of one thread */
    uint8_t *memory, *x, *private_memory;
    float *x_scales;
} hc_lanes_job;

/* Packs eight columns of eight rows at a time. */
static void pack_few(const int8_t *rows, int64_t ld, int64_t steps, uint8_t *panel) {
    for (int64_t s = 0; s < steps; s++)
        for (int i = 0; i < HC_LANES_FEW; i++) {
            uint64_t eight;
            memcpy(&eight, rows + i * ld + s * 8, sizeof eight);
            eight ^= 0x8080808080808080;
            memcpy(panel + (s * HC_LANES_FEW + i) * 8, &eight, sizeof eight);
        }
}

static void x_task(void *context, int64_t unit, int thread) {
    const hc_lanes_job *job = context;
    const hc_row_blocks *blocks = &job->x_rows;
    int8_t *rows = (int8_t *)job->private_memory + thread * job->private_bytes + job->rows_at;
    const int64_t first = unit * blocks->unit, n = hc_min(blocks->unit, blocks->rows - first);
    const int64_t block = hc_row_block_of(blocks, unit), start = hc_row_first_unit(blocks, block);
    const int64_t lanes = (hc_row_first_unit(blocks, block + 1) - start) * blocks->unit;
    uint8_t *panel = job->x + (start * job->quads + unit - start) * blocks->unit * 4;
    hc_rows_load(job->product->x, blocks->first_row + first, n, job->ld, UNIT * job->ld, rows, job->x_scales + first);
    for (int d = 0; d < job->x_limbs; d++, rows += UNIT * job->ld) {
        for (int64_t i = 0; i < blocks->unit; i++) { /* lanes without a row are 0 */
            const int64_t present = i < n ? job->k : 0;
            memset(rows + i * job->ld + present, 0, (size_t)(job->ld - present));
            if (job->nibbles)
                hc_order_nibbles(rows + i * job->ld, job->quads * 4);
        }
        if (blocks->unit == UNIT)
            job->transpose(rows, job->ld, UNIT, job->quads, panel + d * job->x_plane, (int)lanes, 0x80808080);
        else
            pack_few(rows, job->ld, job->quads / 2, panel + d * job->x_plane);
    }
}

/* Some blocks of x times a group of weights. */
static void group_task(void *context, int64_t task, int thread) {
    const hc_lanes_job *job = context;
    const hc_row_blocks *blocks = &job->x_rows;
    const hc_row_task of = hc_row_task_of(blocks, task);
    const int64_t first = of.first;
    uint8_t *scratch = job->private_memory + thread * job->private_bytes;
    float *scales = (float *)(void *)scratch, *values = (float *)(void *)(scratch + job->values_at);
    hc_rows_s8_args stored = {
        .n_w = hc_min(blocks->group_rows, job->n - first), .columns = job->k, .words = job->words};
    hc_lanes_s8_args args = {.n_w = stored.n_w, .ld_w = job->ld};
    int8_t *decoded = (int8_t *)scratch + job->rows_at;
    const int8_t *w = decoded, *next = NULL;
    const int codes = job->nibbles ? 2 : 1; /* of a byte */
    const int64_t w_plane = blocks->group_rows * job->ld;
    int32_t *sums = (int32_t *)(void *)(scratch + job->sums_at);
    if (job->direct) {
        hc_rows_stored(job->product, first, &stored, scales);
        w = stored.w;
        args.ld_w = stored.ld_w;
        args.words = stored.words;
        args.ld_scales = stored.ld_scales;
        if (job->n * job->k / codes >= FAR_BYTES) /* possibly beyond the end, which a prefetch ignores */
            next = (const int8_t *)((uintptr_t)w + (uintptr_t)(blocks->group_rows * args.ld_w));
    } else {
        hc_rows_load(job->product->w, first, args.n_w, job->ld, w_plane, decoded, scales);
    }
    for (int64_t block = of.from; block < of.to; block++) {
        const int64_t start = hc_row_first_unit(blocks, block), units = hc_row_first_unit(blocks, block + 1) - start;
        const int64_t row = start * blocks->unit, rows = hc_min(units * blocks->unit, blocks->rows - row);
        args.lanes = (int)units * blocks->unit;
        args.ldc = args.lanes;
        args.part = (int)(block - of.from);
        args.parts = (int)(of.to - of.from);
        const int64_t tile = args.n_w * args.ldc;
        int shifts[HC_MAX_SIGNED_LIMBS * HC_MAX_SIGNED_LIMBS], pairs = 0;
        for (int d = 0; d < job->x_limbs; d++)
            for (int e = 0; e < job->w_limbs; e++) {
                args.c = sums + pairs * tile;
                for (int64_t k = 0; k < job->k; k += HC_LANES_COLUMNS) {
                    args.columns = hc_min(HC_LANES_COLUMNS, job->k - k);
                    args.x = job->x + d * job->x_plane + (start * job->quads + k / 4 * units) * blocks->unit * 4;
                    args.w = w + e * w_plane + k / codes;
                    args.scales = args.words ? stored.scales + k / (16 * args.words) : NULL;
                    args.next = next ? (const int8_t *)((uintptr_t)next + (uintptr_t)(k / codes)) : NULL;
                    args.accumulate = k > 0;
                    job->multiply(&args);
                }
                shifts[pairs++] = 8 * (d + e);
            }
        if (pairs == 1) {
            job->dequantize_s32(args.n_w, rows, sums, args.ldc, scales, job->x_scales + row, values, args.ldc);
        } else {
            int64_t *dots = (int64_t *)(void *)(scratch + job->dots_at);
            memset(dots, 0, (size_t)tile * sizeof *dots);
            job->join(pairs, tile, sums, shifts, dots);
            job->dequantize_s64(args.n_w, rows, dots, args.ldc, scales, job->x_scales + row, values, args.ldc);
        }
        hc_lanes_store(job->transpose, &job->out, blocks->first_row + row, rows, first, args.n_w, args.ldc, values);
    }
}

static void plan(hc_lanes_job *job, const hc_product *p) {
    const hc_run run = hc_run_for(p);
    hc_row_blocks *blocks = &job->x_rows;
    *job = (hc_lanes_job){.product = p, .n = p->w->rows, .k = p->w->columns};
    job->nibbles = hc_rows_nibble_weights(p, &job->words);
    job->multiply = job->nibbles ? HC_PICK(lanes_s4, &run) : HC_PICK(lanes_s8, &run);
    job->dequantize_s32 = HC_PICK(dequantize_s32, &run);
    job->dequantize_s64 = HC_PICK(dequantize_s64, &run);
    job->join = HC_PICK(combine_limbs, &run);
    job->x_limbs = hc_signed_limbs(&p->x->form[HC_INT_FOLDED]);
    job->w_limbs = hc_signed_limbs(&p->w->form[HC_INT_FOLDED]);
    job->transpose = HC_PICK(pack_x32, &run);
    job->out = hc_merged_rows(&p->out);
    job->direct = job->nibbles || hc_rows_direct_weights(p);
    blocks->unit = blocks->portion = p->x->rows <= HC_LANES_FEW ? HC_LANES_FEW : UNIT;
    blocks->most_units = HC_LANES_X;
    job->lanes = HC_LANES_X * UNIT;
    const int64_t columns = job->nibbles ? hc_round_up(job->k, HC_NIBBLES_STEP) : job->k;
    job->quads = hc_ceil_div(columns, 8) * 2;
    job->ld = hc_round_up(columns, HC_CACHE_LINE) + HC_CACHE_LINE; /* rows of 4 KiB would share the cache sets of L1 */
    blocks->most = hc_max(X_BYTES / (job->quads * 4 * job->x_limbs) / job->lanes, 1) * job->lanes;
    blocks->most = hc_min(hc_round_up(p->x->rows, blocks->unit), blocks->most);
    const int64_t row_bytes = job->nibbles ? hc_ceil_div(job->k, 2) : job->k * job->w_limbs;
    int64_t rows =
        job->direct ? hc_min(GROUP_BYTES / row_bytes, MOST_GROUP) : hc_min(DECODED_BYTES / row_bytes, MOST_DECODED);
    blocks->group_rows = hc_row_group(&run, job->n, rows, GROUP_STEP);
    job->x_plane = blocks->most * job->quads * 4;
    const int64_t tile = blocks->group_rows * job->lanes * 4, pairs = job->x_limbs * job->w_limbs;
    job->sums_at = hc_round_up(blocks->group_rows * (int64_t)sizeof(float), HC_CACHE_LINE);
    job->values_at = job->sums_at + pairs * tile;
    job->dots_at = job->values_at + tile;
    job->rows_at = job->dots_at + (pairs > 1 ? 2 * tile : 0);
    const int64_t x_kept = UNIT * hc_rows_planes(p->x), w_kept = blocks->group_rows * hc_rows_planes(p->w);
    const int64_t kept = job->direct ? x_kept : hc_max(x_kept, w_kept);
    job->private_bytes = hc_round_up(job->rows_at + kept * job->ld, HC_CACHE_LINE);
    blocks->n_threads = hc_row_threads(&run, job->private_bytes);
}

static bool allocate(hc_lanes_job *job) {
    const int64_t x_bytes = job->x_limbs * job->x_plane;
    const int64_t private_at = hc_round_up(x_bytes + job->x_rows.most * (int64_t)sizeof(float), HC_CACHE_LINE);
    job->memory = hc_alloc_aligned(private_at + job->x_rows.n_threads * job->private_bytes);
    if (!job->memory)
        return false;
    job->x = job->memory;
    job->x_scales = (float *)(void *)(job->memory + x_bytes);
    job->private_memory = job->memory + private_at;
    return true;
}

const char *hc_lanes_folded_refuses(const hc_product *p) {
    return p->w->columns > LONGEST ? "rows of more than 65536 values" : NULL;
}

hc_work hc_lanes_folded_work(const hc_product *p) {
    if (hc_lanes_splits(p))
        return hc_lanes_groups_work(p);
    const double codes = (double)p->w->rows * (double)p->w->columns;
    const int x_limbs = hc_signed_limbs(&p->x->form[HC_INT_FOLDED]);
    const int pairs = x_limbs * hc_signed_limbs(&p->w->form[HC_INT_FOLDED]);
    int words = 0;
    const bool nibbles = hc_rows_nibble_weights(p, &words), direct = nibbles || hc_rows_direct_weights(p);
    const double lanes = (double)hc_round_up(p->x->rows, p->x->rows <= HC_LANES_FEW ? HC_LANES_FEW : UNIT);
    const double blocks = (double)hc_ceil_div(p->x->rows, HC_LANES_X * UNIT); /* each reads the weights */
    hc_work work = direct ? (hc_work){.codes = blocks * codes} : hc_decoding(p);
    work.products = codes * lanes * pairs;
    work.wide = p->x->rows <= HC_LANES_FEW ? work.products : 0; /* computed by another loop of the kernel */
    work.groups = words ? blocks * codes / (8.0 * words) : 0;
    /* empty lanes are packed and stored, too */
    work.values = lanes * ((double)p->x->columns * x_limbs + 9 * (double)p->w->rows * pairs);
    return work;
}

hc_status hc_lanes_folded_run(const hc_product *p, hc_error *error) {
    hc_lanes_job job;
    if (hc_lanes_splits(p))
        return hc_lanes_groups_run(p, true, error);
    plan(&job, p);
    if (!allocate(&job))
        return hc_fail(error, HC_MEMORY, "product: not enough memory for rows of %lld columns", (long long)job.k);
    hc_row_walk(&job.x_rows, p, x_task, group_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
