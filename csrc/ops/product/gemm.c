/* Blocked matmul of two sources. The smaller side is packed once into panels that all threads read (pack.h). The other
 * is taken in groups of a few panels: a task packs its group into private memory of its thread, which stays in L2, and
 * multiplies it with all shared panels. So each side is decoded once, unless the shared one passes SHARED_BYTES.
 * Threads share M and N, never k, and every value keeps the order of product.h, so neither blocks nor threads change a
 * bit. Partial sums of floats (FLOATS, GROUPED) wait in `out`, and KC blocks are the outer loop. Integer sums wait in
 * memory of this file, for one block of `out` at a time.
 *
 * Memory: SHARED_BYTES + HC_WORK_BYTES + WAITING_BYTES + 0.1 MiB of tables + scratch of 81 KiB per thread: less than 55
 * MiB with 256 threads, the maximum.
 */
#include "base/threads.h"
#include "ops/gemv/gemv.h"
#include "ops/product/gemm_tile.h"
#include "ops/product/measure.h"
#include "ops/product/operand.h"
#include "ops/product/product.h"
#include "ops/product/sparse.h"

#include <string.h>

enum {
    SHARED_BYTES = 12 << 20,
    WAITING_BYTES = 6 << 20,
    THREAD_BYTES = 576 << 10, /* private panels of one thread: about half an L2 of 1 MiB */
    /* Columns of a KC block. Folded int32 sums stay exact up to 65536. Float KC blocks of 512, 1024, 2048 and 4096 gave
     * 101.6, 103.0, 103.3 and 102.0 GFLOP/s at M 512, N 4096, K 4096 (one thread, Zen 4, 2026-11). */
    FLOAT_KC = 1024,
    FOLDED_KC = 16384,
    GROUPED_KC = 8192,
    LEAST_KC = 64, /* the longest step */
    /* Columns up to which rows of `out` are written one tile after the other, whatever is packed once: 16 columns of 4096
     * x 2880 take 5.3 ms, 10.2 by columns of tiles (one thread, Zen 4, 2026-11). */
    ROW_BY_ROW = 256,
    PREPACKED_ROWS = 32,
    /* n rows take as long as (n + this) / 2 if that is more, since weights are read meanwhile (Zen 4, 2026-12) */
    FOLDED_READING = 9,
    GROUPED_READING = 4,
    FEW_WEIGHTS = 128, /* rows */
    DECODED_WEIGHTS = 1 << 16,
};

/* Tasks. */

/* Places the arrays of `panels` panels from `memory` on. With memory NULL it only returns the number of bytes. */
static int64_t lay_out(hc_panels *side, int64_t panels, const hc_gemm_job *p, uint8_t *memory) {
    const int64_t words = panels * p->max_segments * side->tile * 4;
    const int64_t init_at = panels * side->limbs * hc_limb_bytes(side, p->max_steps);
    const int64_t scales_at = init_at + (side->compensation_s8 ? words * side->limbs : 0);
    const int64_t row_scales_at = scales_at + (p->kind == HC_ORDER_GROUPED || side->split ? words : 0);
    if (memory) {
        side->panels = memory;
        side->init = side->compensation_s8 ? (int32_t *)(void *)(memory + init_at) : NULL;
        side->scales = (float *)(void *)(memory + scales_at);
        side->row_scales = (float *)(void *)(memory + row_scales_at);
    }
    return hc_round_up(row_scales_at + panels * side->tile * 4, HC_CACHE_LINE);
}

static void pack_task(void *context, int64_t panel, int thread) {
    const hc_gemm_job *p = context;
    hc_pack_panel(p->shared, &p->kc, p->shared_first + panel * p->shared->tile, panel,
                  p->scratch + thread * p->scratch_bytes);
}

static void multiply_tile(const hc_gemm_job *p, const hc_panels *mine, int64_t shared_panel, int64_t first_streamed,
                          int64_t panel, int thread) {
    const bool shares_a = p->shared == &p->a;
    const int64_t shared_row = p->shared_first + shared_panel * p->shared->tile;
    const int64_t streamed_row = p->streamed_first + (first_streamed + panel) * mine->tile;
    hc_tile_at at;
    at.a = shares_a ? p->shared : mine;
    at.b = shares_a ? mine : p->shared;
    at.a_panel = shares_a ? shared_panel : panel;
    at.b_panel = shares_a ? panel : shared_panel;
    at.row = shares_a ? shared_row : streamed_row;
    at.column = shares_a ? streamed_row : shared_row;
    at.rows = hc_min(p->a.tile, p->m - at.row);
    at.columns = hc_min(p->kernel->nr, p->n - at.column);
    at.waiting = (shared_panel * p->streamed_panels + first_streamed + panel) * p->a.tile * p->kernel->nr;
    at.sums = p->scratch + thread * p->scratch_bytes + hc_pack_scratch();
    hc_multiply_tile(p, &at);
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_gemm_job *p = context;
    const int64_t part = task % p->parts, group = task / p->parts;
    const int64_t from = p->shared_panels * part / p->parts, to = p->shared_panels * (part + 1) / p->parts;
    const int64_t first_panel = group * p->group, panels = hc_min(p->group, p->streamed_panels - first_panel);
    hc_panels mine = *p->streamed;
    const bool ready = p->prepacked && p->streamed == &p->b;
    if (ready)
        hc_prepacked_panels(p->prepacked, p->streamed_first / mine.tile + first_panel, &mine);
    else
        lay_out(&mine, p->group, p, p->private_memory + thread * p->private_bytes);
    for (int64_t panel = 0; !ready && panel < panels; panel++)
        hc_pack_panel(&mine, &p->kc, p->streamed_first + (first_panel + panel) * mine.tile, panel,
                      p->scratch + thread * p->scratch_bytes);
    /* Rows of `out` in pieces of a tile would be read before they are written, if tiles end within lines. */
    const bool row_by_row = p->k <= (p->kind == HC_ORDER_CHAIN ? ROW_BY_ROW : ROW_BY_ROW / 2) && p->shared == &p->b;
    const int64_t outer = row_by_row ? panels : to - from, inner = row_by_row ? to - from : panels;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            multiply_tile(p, &mine, from + (row_by_row ? j : i), first_panel, row_by_row ? i : j, thread);
}

/* Plans. */

static bool lies_transposed(const hc_rows *out) {
    return out->n_dims == 1 && out->stride[0] == sizeof(float) && out->column_stride != sizeof(float);
}

static bool has_one_limb(hc_order kind, const hc_source *source) {
    return source->form[kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED].n_limbs == 1;
}

/* Columns of a KC block if integers of a are limbs of 16 bits, otherwise 0. Panels of w that exist save the decoding
 * but have limbs of 8 bits, which pays for few rows of x. */
static int64_t wide_columns(const hc_product *p, const hc_source *a, const hc_source *b) {
    const int64_t columns = hc_wide_columns(p->order, a, b, p->run);
    const bool has_panels = p->order == HC_ORDER_FOLDED && p->w->prepacked && p->x->rows <= PREPACKED_ROWS;
    return has_panels && (a == p->w || columns < a->columns) ? 0 : columns;
}

/* True if folded weights become the left side, with limbs of 16 bits, since x needs only one of 8 bits. */
static bool widens_weights(const hc_product *p) {
    return p->order == HC_ORDER_FOLDED && hc_signed_limbs(&p->x->form[HC_INT_FOLDED]) == 1 &&
           p->w->form[HC_INT_FOLDED].n_limbs == 2 && wide_columns(p, p->w, p->x);
}

/* The operand with a pattern becomes the right side, whose zeros are skipped. Otherwise the sides are exchanged if the
 * rows of b are then rows of `out` and tiles need no transposition, or if the integers of b then need fewer passes. */
static bool is_swapped(const hc_product *p, bool skips, const hc_rows *out) {
    if (!skips && p->order == HC_ORDER_FOLDED && hc_split_columns(p->x, p->w, p->run))
        return false;
    if (skips) {
        const bool left = hc_nm_kernel(p->x, p->run), right = hc_nm_kernel(p->w, p->run);
        if (left != right)
            return left;
    }
    if (!skips && out->n_dims <= 1 && widens_weights(p))
        return true;
    return lies_transposed(out) && (p->order == HC_ORDER_CHAIN || has_one_limb(p->order, p->x));
}

static bool fill_kc(hc_gemm_job *p, int64_t first) {
    return hc_kc_fill(&p->kc, p->split ? HC_ORDER_GROUPED : p->kind, p->a.source, p->b.source, first, p->kc_limit,
                      p->kernel->kr);
}

/* Walks all KC blocks: finds their largest size, and whether segments had to be cut. */
static bool measure_kc(hc_gemm_job *p) {
    bool cuts = false;
    p->kc_count = p->max_steps = p->max_segments = 0;
    for (int64_t first = 0; first < p->k; first += p->kc.columns, p->kc_count++) {
        cuts |= fill_kc(p, first) && !p->split;
        p->max_steps = hc_max(p->max_steps, p->kc.steps);
        p->max_segments = hc_max(p->max_segments, p->kc.n_segments);
    }
    return cuts;
}

/* A panel of few rows of a has no others. Those of gemm_few have 1, 2, 3, 4, 6 or 8. */
static void use_few_rows(hc_gemm_job *p) {
    const bool sums = !p->split && (p->kind == HC_ORDER_FOLDED || p->exact_groups);
    if (p->few && p->m < p->kernel->mr && p->m <= hc_most_few(p->few, sums ? HC_FEW_SUMS : HC_FEW_SCALED))
        p->a.tile = (int)(p->m <= 4 ? p->m : hc_round_up(p->m, 2));
}

static void use_kernel(hc_gemm_job *p, const hc_run *run) {
    p->kernel = p->split ? hc_split_line(p->b.source, run)
                         : hc_product_line(p->kind, p->exact_groups, p->skips, p->b.source, run);
    if (p->a.wide && p->kind == HC_ORDER_GROUPED && !p->exact_groups)
        p->kernel = HC_BEST(gemm_s8_scaled, run);
    p->few = hc_few_rows_kernel(p->kernel, run);
    hc_panels_use_kernel(&p->a, p->kernel, run);
    hc_panels_use_kernel(&p->b, p->kernel, run);
    use_few_rows(p);
}

/* Chooses the kernel and the KC blocks: as long as a panel of either side fits a thread's share of memory. */
static void plan_kc(hc_gemm_job *p, const hc_run *run) {
    const int64_t thread_bytes = hc_min(THREAD_BYTES, HC_WORK_BYTES / run->n_threads);
    const bool one_limb = p->a.limbs == 1 && p->b.limbs == 1;
    p->exact_groups = p->kind == HC_ORDER_GROUPED && !one_limb;
    use_kernel(p, run);
    for (;; p->kc_limit /= 2) {
        if (measure_kc(p) && !p->exact_groups) {
            p->exact_groups = true;
            use_kernel(p, run);
        }
        if (p->kc_limit <= LEAST_KC || (hc_panel_bytes(&p->a, p->max_steps, p->max_segments) <= thread_bytes &&
                                        hc_panel_bytes(&p->b, p->max_steps, p->max_segments) <= thread_bytes))
            break;
    }
    p->waits_in_out = p->kind == HC_ORDER_CHAIN || (p->kind == HC_ORDER_GROUPED && !p->exact_groups);
}

static bool allocate(hc_gemm_job *p, const hc_run *run) {
    const bool shares_a = p->m <= p->n;
    p->shared = shares_a ? &p->a : &p->b;
    p->streamed = shares_a ? &p->b : &p->a;
    const int64_t tile_size = p->a.tile * p->kernel->nr;
    const int64_t shared_bytes = hc_panel_bytes(p->shared, p->max_steps, p->max_segments);
    const int64_t streamed_bytes = hc_panel_bytes(p->streamed, p->max_steps, p->max_segments);
    p->streamed_block = hc_ceil_div(p->streamed->source->rows, p->streamed->tile);
    p->shared_block =
        hc_min(hc_ceil_div(p->shared->source->rows, p->shared->tile), hc_max(SHARED_BYTES / shared_bytes, 1));
    const int64_t waiting_bytes = p->kind == HC_ORDER_GROUPED ? 12 : 8;
    int64_t waiting = 0;
    if (!p->waits_in_out && p->kc_count > 1) {
        const int64_t tiles = WAITING_BYTES / (waiting_bytes * tile_size);
        p->shared_block = hc_min(p->shared_block, hc_max(512 / p->shared->tile, 1));
        p->streamed_block = hc_min(p->streamed_block, tiles / p->shared_block);
        waiting = p->shared_block * p->streamed_block * tile_size;
    }
    /* Groups as large as a thread's share of memory, but at least four per thread, so that threads end at the same
     * time. */
    p->group = hc_min(hc_min(THREAD_BYTES, HC_WORK_BYTES / run->n_threads) / streamed_bytes,
                      p->streamed_block / (4 * run->n_threads));
    p->group = hc_max(p->group, 1);
    p->private_bytes = lay_out(p->streamed, p->group, p, NULL);
    const int64_t shared_at = 0, private_at = lay_out(p->shared, p->shared_block, p, NULL);
    const int64_t scratch_at = private_at + p->private_bytes * run->n_threads;
    p->scratch_bytes = hc_pack_scratch() + hc_tile_sums_bytes(p);
    const int64_t dots_at = scratch_at + p->scratch_bytes * run->n_threads;
    const int64_t partial_at = dots_at + hc_round_up(waiting * 8, HC_CACHE_LINE);
    p->memory = hc_alloc_aligned(partial_at + (waiting_bytes == 12 ? waiting * 4 : 0));
    if (!p->memory)
        return false;
    lay_out(p->shared, p->shared_block, p, p->memory + shared_at);
    p->private_memory = p->memory + private_at;
    p->scratch = p->memory + scratch_at;
    p->dots = waiting ? (int64_t *)(void *)(p->memory + dots_at) : NULL;
    p->partial = waiting ? (float *)(void *)(p->memory + partial_at) : NULL;
    return true;
}

/* All blocks of `out` and all KC blocks, in an order that keeps packed panels as long as they are needed. */
static void walk(hc_gemm_job *p, const hc_run *run) {
    const int64_t shared_total = hc_ceil_div(p->shared->source->rows, p->shared->tile);
    const int64_t streamed_total = hc_ceil_div(p->streamed->source->rows, p->streamed->tile);
    const int64_t shared_blocks = hc_ceil_div(shared_total, p->shared_block);
    const int64_t streamed_blocks = hc_ceil_div(streamed_total, p->streamed_block);
    const int64_t blocks = shared_blocks * streamed_blocks;
    int64_t packed = -1, filled = -1;
    for (int64_t t = 0; t < p->kc_count * blocks; t++) {
        const int64_t kc = p->waits_in_out ? t / blocks : t % p->kc_count;
        const int64_t block = p->waits_in_out ? t % blocks : t / p->kc_count;
        const int64_t shared = block / streamed_blocks, streamed = block % streamed_blocks;
        if (kc != filled) {
            const int64_t first = kc == 0 ? 0 : p->kc.first + p->kc.columns;
            fill_kc(p, first);
            p->a.limb_bytes = hc_limb_bytes(&p->a, p->kc.steps);
            p->b.limb_bytes = hc_limb_bytes(&p->b, p->kc.steps);
            filled = kc;
        }
        p->shared_first = shared * p->shared_block * p->shared->tile;
        p->streamed_first = streamed * p->streamed_block * p->streamed->tile;
        p->shared_panels = hc_min(p->shared_block, shared_total - shared * p->shared_block);
        p->streamed_panels = hc_min(p->streamed_block, streamed_total - streamed * p->streamed_block);
        if (p->prepacked && p->shared == &p->b)
            hc_prepacked_panels(p->prepacked, shared * p->shared_block, &p->b);
        else if (packed != kc * shared_blocks + shared)
            hc_parallel(run->n_threads, p->shared_panels, pack_task, p);
        packed = kc * shared_blocks + shared;
        /* Too few groups for all threads: several tasks share a group, and each of them packs it. */
        p->groups = hc_ceil_div(p->streamed_panels, p->group);
        p->parts = p->groups >= 2 * run->n_threads ? 1 : hc_ceil_div(2 * run->n_threads, p->groups);
        p->parts = run->n_threads == 1 ? 1 : hc_min(p->parts, p->shared_panels);
        hc_parallel(run->n_threads, p->groups * p->parts, multiply_task, p);
    }
}

static hc_status run_gemm(const hc_product *product, bool skips, hc_error *error) {
    const hc_source *a = product->x, *b = product->w;
    hc_rows target = hc_merged_rows(&product->out);
    if (is_swapped(product, skips, &target)) {
        /* Products of two values commute, so b and a can be exchanged: rows of b become rows of `out`. */
        a = product->w;
        b = product->x;
        target = (hc_rows){.data = hc_row(&target, 0),
                           .n_dims = 1,
                           .shape = {a->rows},
                           .stride = {target.column_stride},
                           .rows = a->rows,
                           .column_stride = target.n_dims ? target.stride[0] : (int64_t)sizeof(float)};
    }
    const hc_order order = product->order;
    const hc_run fewer = hc_run_for(product), *run = &fewer;
    hc_gemm_job p = {.kind = order, .skips = skips, .out = target, .m = a->rows, .n = b->rows, .k = a->columns};
    p.kc_limit = order == HC_ORDER_CHAIN ? FLOAT_KC : order == HC_ORDER_FOLDED ? FOLDED_KC : GROUPED_KC;
    p.dequantize_s32 = HC_PICK(dequantize_s32, run);
    p.dequantize_s64 = HC_PICK(dequantize_s64, run);
    p.join = HC_PICK(combine_limbs, run);
    p.scale_s64 = HC_PICK(scale_s64, run);
    hc_panels_init(&p.a, order, run, a, false);
    hc_panels_init(&p.b, order, run, b, true);
    const int64_t split_columns = order == HC_ORDER_FOLDED && !skips ? hc_split_columns(a, b, run) : 0;
    if (split_columns) {
        p.split = true;
        p.split_columns = split_columns;
        hc_panels_split(&p.b);
    }
    const int64_t wide = skips || split_columns ? 0 : wide_columns(product, a, b);
    if (wide) {
        p.kc_limit = hc_min(p.kc_limit, wide);
        hc_panels_widen(&p.a);
    }
    const int64_t segments = order == HC_ORDER_GROUPED || p.split ? p.kc_limit : 1;
    p.kc.end = hc_alloc_aligned(segments * (int64_t)(sizeof *p.kc.end + sizeof *p.kc.segment_steps));
    bool has_memory = p.kc.end != NULL;
    if (has_memory) {
        p.kc.segment_steps = (int32_t *)(p.kc.end + segments);
        plan_kc(&p, run);
        if (hc_prepacked_fits(b->prepacked, order, a, p.kernel, p.kc_count))
            p.prepacked = b->prepacked;
        has_memory = allocate(&p, run);
    }
    if (has_memory)
        walk(&p, run);
    hc_free_aligned(p.kc.end);
    hc_free_aligned(p.memory);
    return has_memory
               ? HC_OK
               : hc_fail(error, HC_MEMORY, "product: not enough memory for panels of %lld columns", (long long)p.k);
}

/* The paths. */

/* Work of this kernel in `passes` passes over limbs: decoding, unless the weights are prepacked and all columns are one
 * KC block, and multiply-adds. */
static hc_work work(const hc_product *p, const hc_kernel *kernel, int passes, int64_t kc_count) {
    const int64_t last = p->x->rows % kernel->mr;
    const bool has_few = hc_few_rows_kernel(kernel, p->run);
    const int64_t reading = p->order == HC_ORDER_FOLDED ? FOLDED_READING : GROUPED_READING;
    const double few = has_few ? (double)hc_max(2 * last, last + reading) / 2 : kernel->mr;
    const double m = (double)(p->x->rows - last) + (last ? few : 0);
    const double n = (double)hc_round_up(p->w->rows, kernel->nr);
    const hc_rows out = hc_merged_rows(&p->out);
    const bool is_packed = hc_prepacked_fits(p->w->prepacked, p->order, p->x, kernel, kc_count) &&
                           !is_swapped(p, kernel->nonzeros > 0, &out);
    hc_work work = is_packed ? (hc_work){0} : hc_decoding(p);
    work.products = m * n * (double)p->w->columns * passes;
    if (is_packed && has_few)
        work.products *=
            p->order == HC_ORDER_GROUPED ? 0.65 : 0.8; /* panels that were not written just before (Zen 5) */
    work.values = hc_values_and_results(p, (double)p->x->rows, 4);
    return work;
}

static hc_work integer_work(const hc_product *p, const hc_kernel *kernel) {
    const hc_int_mode mode = p->order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    const int of_x = p->x->form[mode].n_limbs;
    const int64_t wide = kernel->nonzeros ? 0 : wide_columns(p, p->x, p->w);
    return work(p, kernel, (wide ? (of_x + 1) / 2 : of_x) * hc_signed_limbs(&p->w->form[mode]),
                wide ? hc_ceil_div(p->x->columns, wide) : 1);
}

const char *hc_gemm_chain_refuses(const hc_product *p) {
    (void)p;
    return NULL;
}
hc_work hc_gemm_chain_work(const hc_product *p) {
    hc_work chain = work(p, HC_BEST(gemm_f32, p->run), 1, 1);
    if (p->w->sparse) /* kept codes go to their columns one by one */
        chain.unpacked += chain.decoded;
    return chain;
}
static hc_status run_chain(const hc_product *p, hc_error *error) {
    if (hc_is_few_dense(p))
        return hc_few_dense(p, error);
    return hc_is_flat(p) ? hc_flat(p, error) : run_gemm(p, false, error);
}

/* Few weights are decoded as a whole and multiplied as dense ones, without panels of x. */
static bool has_few_weights(const hc_product *p) {
    return p->w_packed && !p->x_packed && !p->w->sparse && p->w->rows <= FEW_WEIGHTS &&
           p->w->rows * p->w->columns <= DECODED_WEIGHTS;
}

static hc_status multiply_decoded(const hc_product *p, hc_error *error) {
    const hc_source *w = p->w;
    const int64_t ld = hc_round_up(w->columns, 16) + 16, row_bytes = ld * (int64_t)sizeof(float);
    float *values = hc_alloc_aligned(w->rows * row_bytes);
    if (!values)
        return hc_fail(error, HC_MEMORY, "product: not enough memory for %lld weights", (long long)(w->rows * ld));
    w->floats(w, 0, w->rows, 0, w->columns, values, ld);
    const hc_dense_context context = {
        .rows = {.data = (char *)values, .n_dims = 1, .shape = {w->rows}, .stride = {row_bytes}, .rows = w->rows},
        .dtype = HC_F32,
        .n_column_dims = 1,
        .column_shape = {w->columns},
        .column_stride = {sizeof(float)}};
    hc_source dense;
    hc_dense_source(&dense, &context);
    hc_product product = *p;
    product.w = &dense;
    product.w_packed = NULL;
    const hc_status status = run_chain(&product, error);
    hc_free_aligned(values);
    return status;
}

hc_status hc_gemm_chain_run(const hc_product *p, hc_error *error) {
    return has_few_weights(p) ? multiply_decoded(p, error) : run_chain(p, error);
}

const char *hc_gemm_folded_refuses(const hc_product *p) {
    (void)p;
    return NULL;
}
hc_work hc_gemm_folded_work(const hc_product *p) {
    if (!hc_split_columns(p->x, p->w, p->run)) {
        if (hc_merged_rows(&p->out).n_dims > 1 || !widens_weights(p))
            return integer_work(p, HC_BEST(gemm_s8, p->run));
        return work(p, HC_BEST(gemm_s8, p->run), 1, 0); /* the panels of a right side do not fit */
    }
    hc_work split = work(p, hc_split_line(p->w, p->run), 1, 1);
    split.groups = hc_groups(p) * (double)p->x->rows;
    return split;
}
hc_status hc_gemm_folded_run(const hc_product *p, hc_error *error) { return run_gemm(p, false, error); }

const char *hc_gemm_grouped_refuses(const hc_product *p) {
    (void)p;
    return NULL;
}
hc_work hc_gemm_grouped_work(const hc_product *p) {
    const bool is_wide = wide_columns(p, p->x, p->w);
    const bool exact_groups = p->x->form[HC_INT_GROUPED].n_limbs > (is_wide ? 2 : 1);
    const hc_kernel *kernel = hc_product_line(HC_ORDER_GROUPED, exact_groups, false, p->w, p->run);
    hc_work grouped = integer_work(p, kernel);
    if (exact_groups) { /* scales are multiplied outside the kernel, so its panels have none */
        grouped.limbs = grouped.decoded;
        grouped.groups = hc_groups(p) * (double)hc_round_up(p->x->rows, kernel->mr);
    }
    if (exact_groups || is_wide || !kernel->small)
        grouped.wide = grouped.products;
    return grouped;
}
hc_status hc_gemm_grouped_run(const hc_product *p, hc_error *error) { return run_gemm(p, false, error); }

const char *hc_gemm_nm_folded_refuses(const hc_product *p) {
    const hc_kernel *left = hc_nm_kernel(p->x, p->run), *right = hc_nm_kernel(p->w, p->run);
    const hc_rows out = hc_merged_rows(&p->out);
    if (!p->x->sparse && !p->w->sparse)
        return "no side has a pattern";
    if (!left && !right)
        return hc_nm_kernel_refusal(p->w->sparse ? p->w : p->x, p->run);
    return !right && out.n_dims > 1 ? "the pattern is on the left, and the answer's rows lie in several dimensions"
                                    : NULL;
}
hc_work hc_gemm_nm_folded_work(const hc_product *p) {
    const hc_kernel *right = hc_nm_kernel(p->w, p->run), *kernel = right ? right : hc_nm_kernel(p->x, p->run);
    hc_work kept = integer_work(p, kernel);
    kept.products *= 4.0 / kernel->kr; /* a step of kr values costs as much as 4 dense ones */
    return kept;
}
hc_status hc_gemm_nm_folded_run(const hc_product *p, hc_error *error) { return run_gemm(p, true, error); }
