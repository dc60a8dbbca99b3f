/* Products of two sources, blocked: blocks of rows of both sides are packed into panels (pack.h), every thread
 * taking panels, then multiplied, every thread taking tasks of a few panels by a few panels. Threads share M and N,
 * never k, and every value keeps the order of ops/source.h, so blocks and threads change no bit.
 *
 * Where the partial sums between two slabs of k can wait in `out` (FLOATS, GROUPED), slabs are the outer loop and each
 * side is packed once a slab; where they are integers, they wait in memory of our own for one block of `out`.
 *
 * Memory: panels A_BYTES + B_BYTES, sums WAITING_BYTES, tables 0.2 MiB, scratch below 84 KiB a thread: with 256 threads
 * less than 54 MiB.
 */
#include "base/threads.h"
#include "ops/pack.h"

#include <math.h>
#include <string.h>

enum {
    A_BYTES = 12 << 20,
    B_BYTES = 12 << 20,
    WAITING_BYTES = 8 << 20,
    /* Columns of a slab. Folded int32 sums stay exact up to 65536; a panel of any kind stays below 5 MiB. */
    FLOAT_SLAB = 4096,
    FOLDED_SLAB = 16384,
    GROUPED_SLAB = 8192,
    FLOAT_STEPS = 512, /* of k between two visits of a tile of C */
    TASK_A_BYTES = 384 << 10,
    TASK_B_PANELS = 2,
    MAX_TILE = 512, /* mr * nr of any line */
};

typedef struct {
    hc_product_kind kind;
    hc_rows out;
    int64_t m, n, k;
    bool exact_groups; /* GROUPED beyond what gemm_s8_scaled does: several digits, or segments longer than a slab */
    bool waits_in_out;
    int64_t slab_limit, slabs, max_steps, max_segments;
    hc_kernel kernel;
    hc_fold_s32_fn *fold;
    hc_panels a, b;
    hc_slab slab;
    int64_t a_block, b_block; /* panels of a full block */
    uint8_t *memory, *scratch;
    int64_t *dots;     /* integer sums that wait for the next slab, (a_block * mr, b_block * nr) */
    float *partial;    /* GROUPED with exact_groups: values that wait */
    /* The step at hand. */
    int64_t a_first, b_first, a_panels, b_panels; /* first rows, panels */
    bool pack_a, pack_b;
    int64_t a_parts, b_parts; /* tasks */
} hc_product;

static int64_t min_panels(int64_t rows, int tile, int64_t most) { return hc_min(hc_ceil_div(rows, tile), most); }

/* What lies where of one tile. */
typedef struct {
    int64_t a_panel, b_panel;
    int64_t row, column; /* in out */
    int64_t rows, columns;
} hc_place;

static hc_place place_of(const hc_product *p, int64_t a_panel, int64_t b_panel) {
    hc_place at = {.a_panel = a_panel, .b_panel = b_panel};
    at.row = p->a_first + a_panel * p->kernel.mr;
    at.column = p->b_first + b_panel * p->kernel.nr;
    at.rows = hc_min(p->kernel.mr, p->m - at.row);
    at.columns = hc_min(p->kernel.nr, p->n - at.column);
    return at;
}

static const uint8_t *digit_of(const hc_panels *side, int64_t panel, int digit) {
    return side->panels + (panel * side->digits + digit) * side->digit_bytes;
}

/* Tiles from and to `out`. */

static bool is_plain(const hc_product *p) { return p->out.n_dims <= 1 && p->out.column_stride == sizeof(float); }

static void write_tile(const hc_product *p, const hc_place *at, const float *tile, int64_t ld) {
    for (int64_t i = 0; i < at->rows; i++) {
        char *row = hc_row(&p->out, at->row + i) + at->column * p->out.column_stride;
        if (p->out.column_stride == sizeof(float))
            memcpy(row, tile + i * ld, (size_t)at->columns * sizeof(float));
        else
            for (int64_t j = 0; j < at->columns; j++)
                memcpy(row + j * p->out.column_stride, tile + i * ld + j, sizeof(float));
    }
}

static void read_tile(const hc_product *p, const hc_place *at, float *tile, int64_t ld) {
    memset(tile, 0, (size_t)(p->kernel.mr * ld) * sizeof(float));
    for (int64_t i = 0; i < at->rows; i++) {
        const char *row = hc_row(&p->out, at->row + i) + at->column * p->out.column_stride;
        for (int64_t j = 0; j < at->columns; j++)
            memcpy(tile + i * ld + j, row + j * p->out.column_stride, sizeof(float));
    }
}

/* One tile of each kind. */

static void multiply_floats(const hc_product *p, const hc_place *at, int64_t first, int64_t steps) {
    hc_gemm_f32_fn *const gemm = (hc_gemm_f32_fn *)p->kernel.fn;
    const float *a = (const float *)(const void *)digit_of(&p->a, at->a_panel, 0) + first * p->kernel.mr;
    const float *b = (const float *)(const void *)digit_of(&p->b, at->b_panel, 0) + first * p->kernel.nr;
    const bool accumulate = p->slab.first + first > 0;
    if (is_plain(p) && at->rows == p->kernel.mr && at->columns == p->kernel.nr) {
        float *c = (float *)(void *)hc_row(&p->out, at->row) + at->column;
        gemm(steps, a, b, c, p->out.n_dims ? p->out.stride[0] / (int64_t)sizeof(float) : 0, accumulate);
        return;
    }
    float tile[MAX_TILE];
    if (accumulate)
        read_tile(p, at, tile, p->kernel.nr);
    gemm(steps, a, b, tile, p->kernel.nr, accumulate);
    write_tile(p, at, tile, p->kernel.nr);
}

/* Adds the integer sums of one segment over all pairs of digits: S += 256^(i + j) P_ij, modulo 2^64 (S itself fits). */
static void add_dots(const hc_product *p, const hc_place *at, int64_t segment, int64_t step, uint64_t *dots) {
    static const int32_t ZEROS[MAX_TILE];
    hc_gemm_s8_fn *const gemm = (hc_gemm_s8_fn *)p->kernel.fn;
    const int tile_size = p->kernel.mr * p->kernel.nr;
    const int64_t a_skip = step * p->kernel.kr * p->kernel.mr * (p->kernel.form == HC_PANEL_S16 ? 2 : 1);
    const int64_t b_skip = step * p->kernel.kr * p->kernel.nr;
    for (int i = 0; i < p->a.digits; i++)
        for (int j = 0; j < p->b.digits; j++) {
            int32_t tile[MAX_TILE];
            const int32_t *init = ZEROS;
            if (p->kernel.form == HC_PANEL_U8 && i == p->a.digits - 1)
                init = p->b.init + ((at->b_panel * p->b.digits + j) * p->slab.n_segments + segment) * p->kernel.nr;
            gemm(p->slab.segment_steps[segment], digit_of(&p->a, at->a_panel, i) + a_skip,
                 (const int8_t *)digit_of(&p->b, at->b_panel, j) + b_skip, init, tile);
            for (int t = 0; t < tile_size; t++)
                dots[t] += (uint64_t)(int64_t)tile[t] << 8 * (i + j);
        }
}

/* Sums that wait between slabs, tile by tile. */
static int64_t waiting_of(const hc_product *p, const hc_place *at) {
    return (at->a_panel * p->b_panels + at->b_panel) * p->kernel.mr * p->kernel.nr;
}

static void multiply_folded(const hc_product *p, const hc_place *at) {
    const int mr = p->kernel.mr, nr = p->kernel.nr;
    const float *scale_a = p->a.row_scales + at->a_panel * mr, *scale_b = p->b.row_scales + at->b_panel * nr;
    const bool is_first = p->slab.first == 0, is_last = p->slab.first + p->slab.columns == p->k;
    float values[MAX_TILE];
    if (p->a.digits == 1 && p->b.digits == 1 && is_first && is_last) {
        static const int32_t ZEROS[MAX_TILE];
        int32_t tile[MAX_TILE];
        ((hc_gemm_s8_fn *)p->kernel.fn)(p->slab.steps, digit_of(&p->a, at->a_panel, 0),
                                        (const int8_t *)digit_of(&p->b, at->b_panel, 0),
                                        p->kernel.form == HC_PANEL_U8 ? p->b.init + at->b_panel * nr : ZEROS, tile);
        if (is_plain(p)) {
            p->fold(at->rows, at->columns, tile, nr, scale_a, scale_b,
                    (float *)(void *)hc_row(&p->out, at->row) + at->column,
                    p->out.n_dims ? p->out.stride[0] / (int64_t)sizeof(float) : 0);
            return;
        }
        p->fold(at->rows, at->columns, tile, nr, scale_a, scale_b, values, nr);
    } else {
        uint64_t dots[MAX_TILE] = {0};
        int64_t *waiting = p->dots ? p->dots + waiting_of(p, at) : NULL;
        if (!is_first)
            memcpy(dots, waiting, (size_t)(mr * nr) * sizeof *dots);
        add_dots(p, at, 0, 0, dots);
        if (!is_last) {
            memcpy(waiting, dots, (size_t)(mr * nr) * sizeof *dots);
            return;
        }
        for (int64_t i = 0; i < at->rows; i++)
            for (int64_t j = 0; j < at->columns; j++)
                values[i * nr + j] =
                    (float)((double)scale_a[i] * (double)scale_b[j] * (double)(int64_t)dots[i * nr + j]);
    }
    write_tile(p, at, values, nr);
}

static void multiply_grouped(const hc_product *p, const hc_place *at) {
    const int mr = p->kernel.mr, nr = p->kernel.nr;
    const int64_t n_segments = p->slab.n_segments;
    const float *scale_a = p->a.scales + at->a_panel * n_segments * mr;
    const float *scale_b = p->b.scales + at->b_panel * n_segments * nr;
    const bool is_first = p->slab.first == 0, is_last = p->slab.first + p->slab.columns == p->k;
    float values[MAX_TILE];
    if (!p->exact_groups) {
        if (!is_first)
            read_tile(p, at, values, nr);
        const int32_t *init = p->b.init ? p->b.init + at->b_panel * n_segments * nr : NULL;
        ((hc_gemm_s8_scaled_fn *)p->kernel.fn)(n_segments, p->slab.segment_steps, digit_of(&p->a, at->a_panel, 0),
                                               (const int8_t *)digit_of(&p->b, at->b_panel, 0), init, scale_a, scale_b,
                                               values, !is_first);
        write_tile(p, at, values, nr);
        return;
    }
    uint64_t dots[MAX_TILE] = {0};
    memset(values, 0, sizeof values);
    const int64_t waiting = waiting_of(p, at);
    if (!is_first) {
        memcpy(values, p->partial + waiting, (size_t)(mr * nr) * sizeof *values);
        if (!p->slab.opens)
            memcpy(dots, p->dots + waiting, (size_t)(mr * nr) * sizeof *dots);
    }
    int64_t step = 0;
    for (int64_t s = 0; s < n_segments; s++, scale_a += mr, scale_b += nr) {
        add_dots(p, at, s, step, dots);
        step += p->slab.segment_steps[s];
        if (s == n_segments - 1 && !p->slab.closes)
            break;
        for (int t = 0; t < mr * nr; t++) {
            const float scale = scale_a[t / nr] * scale_b[t % nr];
            values[t] = fmaf(scale, (float)(int64_t)dots[t], values[t]);
            dots[t] = 0;
        }
    }
    if (is_last) {
        write_tile(p, at, values, nr);
    } else {
        memcpy(p->partial + waiting, values, (size_t)(mr * nr) * sizeof *values);
        memcpy(p->dots + waiting, dots, (size_t)(mr * nr) * sizeof *dots);
    }
}

/* Tasks. */

static void pack_task(void *context, int64_t task, int thread) {
    const hc_product *p = context;
    const bool is_a = p->pack_a && task < p->a_panels;
    const hc_panels *side = is_a ? &p->a : &p->b;
    const int64_t panel = is_a || !p->pack_a ? task : task - p->a_panels;
    hc_pack_panel(side, &p->slab, (is_a ? p->a_first : p->b_first) + panel * side->tile, panel,
                  p->scratch + thread * hc_pack_scratch());
}

static void multiply_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_product *p = context;
    const int64_t part_a = task / p->b_parts, part_b = task % p->b_parts;
    const int64_t a_from = p->a_panels * part_a / p->a_parts, a_to = p->a_panels * (part_a + 1) / p->a_parts;
    const int64_t b_from = p->b_panels * part_b / p->b_parts, b_to = p->b_panels * (part_b + 1) / p->b_parts;
    const int64_t steps = p->kind == HC_PRODUCT_FLOATS ? FLOAT_STEPS : p->slab.steps;
    for (int64_t first = 0; first < p->slab.steps; first += steps)
        for (int64_t b_panel = b_from; b_panel < b_to; b_panel++)
            for (int64_t a_panel = a_from; a_panel < a_to; a_panel++) {
                const hc_place at = place_of(p, a_panel, b_panel);
                if (p->kind == HC_PRODUCT_FLOATS)
                    multiply_floats(p, &at, first, hc_min(steps, p->slab.steps - first));
                else if (p->kind == HC_PRODUCT_FOLDED)
                    multiply_folded(p, &at);
                else
                    multiply_grouped(p, &at);
            }
}

/* Plans. */

/* Dimensions of rows that lie evenly one after another become one; so most outputs have one. */
static hc_rows merge_dims(const hc_rows *rows) {
    hc_rows merged = *rows;
    merged.n_dims = 0;
    for (int i = 0; i < rows->n_dims; i++) {
        const int last = merged.n_dims - 1;
        if (rows->shape[i] == 1)
            continue;
        if (last >= 0 && merged.stride[last] == rows->shape[i] * rows->stride[i]) {
            merged.shape[last] *= rows->shape[i];
            merged.stride[last] = rows->stride[i];
        } else {
            merged.shape[merged.n_dims] = rows->shape[i];
            merged.stride[merged.n_dims++] = rows->stride[i];
        }
    }
    return merged;
}

static void fill_zeros(const hc_rows *out, int64_t columns) {
    const float zero = 0.0f;
    for (int64_t i = 0; i < out->rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(hc_row(out, i) + j * out->column_stride, &zero, sizeof zero);
}

static int64_t longest_group(const hc_source *source) {
    return source->group ? hc_min(source->group, source->run_length) : source->columns;
}

/* Exact integer sums must fit int64. */
static hc_status check_sums(hc_product_kind kind, const hc_source *a, const hc_source *b, hc_error *error) {
    const hc_int_mode mode = kind == HC_PRODUCT_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    int64_t length = a->columns, bound;
    if (kind == HC_PRODUCT_GROUPED)
        length = hc_min(longest_group(a), longest_group(b));
    if (hc_mul_size((int64_t)a->form[mode].max_abs * b->form[mode].max_abs, length, &bound))
        return HC_OK;
    return hc_fail(error, HC_VALUE, "product: sums of %lld terms of %d x %d pass 64-bit integers", (long long)length,
                   (int)a->form[mode].max_abs, (int)b->form[mode].max_abs);
}

static void side_init(hc_panels *side, const hc_product *p, const hc_run *run, const hc_source *source, bool is_b) {
    *side = (hc_panels){.source = source, .kind = p->kind, .is_b = is_b, .digits = 1};
    if (p->kind != HC_PRODUCT_FLOATS) {
        const hc_int_form *form = &source->form[p->kind == HC_PRODUCT_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED];
        side->digits = is_b ? hc_balanced_digits(form) : form->n_limbs;
    }
    side->pack_x32 = (hc_pack_x32_fn *)hc_kernel_pick("pack_x32", run->isa, NULL)->fn;
}

static void side_use_kernel(hc_panels *side, const hc_kernel *kernel, const hc_run *run) {
    side->tile = side->is_b ? kernel->nr : kernel->mr;
    side->kr = kernel->kr;
    side->form = side->is_b && kernel->form != HC_PANEL_F32 ? HC_PANEL_S8 : kernel->form;
    if (side->is_b && kernel->form == HC_PANEL_U8)
        side->sums_s8 = (hc_sums_s8_fn *)hc_kernel_pick("sums_s8", run->isa, NULL)->fn;
}

/* Gives the slab's tables memory and walks all slabs: how large they get, whether segments had to be cut. */
static bool measure_slabs(hc_product *p, bool *cuts) {
    const int64_t entries = p->kind == HC_PRODUCT_GROUPED ? p->slab_limit : 1;
    p->slab.end = hc_alloc_aligned(entries * (int64_t)(sizeof *p->slab.end + sizeof *p->slab.segment_steps));
    if (!p->slab.end)
        return false;
    p->slab.segment_steps = (int32_t *)(p->slab.end + entries);
    for (int64_t first = 0; first < p->k; first += p->slab.columns, p->slabs++) {
        *cuts |= hc_slab_fill(&p->slab, p->kind, p->a.source, p->b.source, first, p->slab_limit, p->kernel.kr);
        p->max_steps = hc_max(p->max_steps, p->slab.steps);
        p->max_segments = hc_max(p->max_segments, p->slab.n_segments);
    }
    return true;
}

/* Lays the arrays of a block of panels out from `memory` on (NULL: only asks for the bytes). */
static int64_t lay_out(hc_panels *side, int64_t panels, const hc_product *p, uint8_t *memory) {
    const int64_t words = panels * p->max_segments * side->tile * 4;
    const int64_t digits_at = 0, init_at = panels * side->digits * hc_digit_bytes(side, p->max_steps);
    const int64_t scales_at = init_at + (side->sums_s8 ? words * side->digits : 0);
    const int64_t row_scales_at = scales_at + (p->kind == HC_PRODUCT_GROUPED ? words : 0);
    if (memory) {
        side->panels = memory + digits_at;
        side->init = side->sums_s8 ? (int32_t *)(void *)(memory + init_at) : NULL;
        side->scales = (float *)(void *)(memory + scales_at);
        side->row_scales = (float *)(void *)(memory + row_scales_at);
    }
    return hc_round_up(row_scales_at + panels * side->tile * 4, HC_CACHE_LINE);
}

static bool allocate(hc_product *p, const hc_run *run) {
    const int mr = p->kernel.mr, nr = p->kernel.nr;
    p->a_block = hc_max(A_BYTES / hc_panel_bytes(&p->a, p->max_steps, p->max_segments), 1);
    p->b_block = hc_max(B_BYTES / hc_panel_bytes(&p->b, p->max_steps, p->max_segments), 1);
    p->a_block = min_panels(p->m, mr, p->a_block);
    p->b_block = min_panels(p->n, nr, p->b_block);
    const bool waits = !p->waits_in_out && p->slabs > 1;
    const int64_t value_bytes = p->kind == HC_PRODUCT_GROUPED ? 12 : 8;
    int64_t tiles = 0;
    if (waits) {
        const int64_t most = WAITING_BYTES / (value_bytes * mr * nr);
        p->a_block = hc_min(p->a_block, hc_max(512 / mr, hc_ceil_div(most, p->b_block)));
        p->b_block = hc_min(p->b_block, most / p->a_block);
        tiles = p->a_block * p->b_block;
    }
    const int64_t a_bytes = lay_out(&p->a, p->a_block, p, NULL);
    const int64_t b_bytes = lay_out(&p->b, p->b_block, p, NULL);
    const int64_t dots_bytes = hc_round_up(tiles * mr * nr * 8, HC_CACHE_LINE);
    const int64_t partial_bytes = value_bytes == 12 ? tiles * mr * nr * 4 : 0;
    const int64_t total = a_bytes + b_bytes + dots_bytes + partial_bytes;
    p->memory = hc_alloc_aligned(total + hc_pack_scratch() * run->n_threads + HC_CACHE_LINE);
    if (!p->memory)
        return false;
    lay_out(&p->a, p->a_block, p, p->memory);
    lay_out(&p->b, p->b_block, p, p->memory + a_bytes);
    p->dots = tiles ? (int64_t *)(void *)(p->memory + a_bytes + b_bytes) : NULL;
    p->partial = tiles ? (float *)(void *)(p->memory + a_bytes + b_bytes + dots_bytes) : NULL;
    p->scratch = p->memory + hc_round_up(total, HC_CACHE_LINE);
    return true;
}

/* One slab of one block of `out`. */
static void step(hc_product *p, const hc_run *run) {
    p->a.digit_bytes = hc_digit_bytes(&p->a, p->slab.steps);
    p->b.digit_bytes = hc_digit_bytes(&p->b, p->slab.steps);
    hc_parallel(run->n_threads, (p->pack_a ? p->a_panels : 0) + (p->pack_b ? p->b_panels : 0), pack_task, p);
    const int64_t task_a = hc_max(TASK_A_BYTES / hc_panel_bytes(&p->a, hc_min(p->slab.steps, FLOAT_STEPS), 1), 1);
    p->a_parts = hc_ceil_div(p->a_panels, task_a);
    p->b_parts = hc_ceil_div(p->b_panels, TASK_B_PANELS);
    hc_parallel(run->n_threads, p->a_parts * p->b_parts, multiply_task, p);
}

static void walk(hc_product *p, const hc_run *run) {
    const int64_t a_blocks = hc_ceil_div(hc_ceil_div(p->m, p->kernel.mr), p->a_block);
    const int64_t b_blocks = hc_ceil_div(hc_ceil_div(p->n, p->kernel.nr), p->b_block);
    int64_t packed_a = -1, packed_b = -1, last_slab = -1;
    for (int64_t t = 0; t < p->slabs * a_blocks * b_blocks; t++) {
        const int64_t slab = p->waits_in_out ? t / (a_blocks * b_blocks) : t % p->slabs;
        const int64_t block = p->waits_in_out ? t % (a_blocks * b_blocks) : t / p->slabs;
        if (slab != last_slab) {
            const int64_t first = slab == 0 ? 0 : p->slab.first + p->slab.columns;
            hc_slab_fill(&p->slab, p->kind, p->a.source, p->b.source, first, p->slab_limit, p->kernel.kr);
            last_slab = slab;
        }
        const int64_t a_index = block / b_blocks, b_index = block % b_blocks;
        p->a_first = a_index * p->a_block * p->kernel.mr;
        p->b_first = b_index * p->b_block * p->kernel.nr;
        p->a_panels = min_panels(p->m - p->a_first, p->kernel.mr, p->a_block);
        p->b_panels = min_panels(p->n - p->b_first, p->kernel.nr, p->b_block);
        p->pack_a = packed_a != slab * a_blocks + a_index;
        p->pack_b = packed_b != slab * b_blocks + b_index;
        packed_a = slab * a_blocks + a_index;
        packed_b = slab * b_blocks + b_index;
        step(p, run);
    }
}

hc_status hc_gemm(const hc_run *run, hc_product_kind kind, const hc_source *a, const hc_source *b,
                  const hc_rows *out, hc_error *error) {
    HC_ASSUME(a->columns == b->columns && out->rows == a->rows);
    if (a->rows == 0 || b->rows == 0)
        return HC_OK;
    if (a->columns == 0) {
        fill_zeros(out, b->rows);
        return HC_OK;
    }
    hc_product p = {.kind = kind, .out = merge_dims(out), .m = a->rows, .n = b->rows, .k = a->columns};
    if (kind != HC_PRODUCT_FLOATS) {
        const hc_status status = check_sums(kind, a, b, error);
        if (status != HC_OK)
            return status;
    }
    p.slab_limit = kind == HC_PRODUCT_FLOATS ? FLOAT_SLAB : kind == HC_PRODUCT_FOLDED ? FOLDED_SLAB : GROUPED_SLAB;
    p.fold = (hc_fold_s32_fn *)hc_kernel_pick("fold_s32", run->isa, NULL)->fn;
    side_init(&p.a, &p, run, a, false);
    side_init(&p.b, &p, run, b, true);
    const bool one_digit = p.a.digits == 1 && p.b.digits == 1;
    const char *family = kind == HC_PRODUCT_FLOATS ? "gemm_f32" : "gemm_s8";
    if (kind == HC_PRODUCT_GROUPED && one_digit)
        family = "gemm_s8_scaled";
    p.kernel = *hc_kernel_pick(family, run->isa, NULL);
    bool cuts = false;
    bool has_memory = measure_slabs(&p, &cuts);
    p.exact_groups = kind == HC_PRODUCT_GROUPED && (cuts || !one_digit);
    if (p.exact_groups)
        p.kernel = *hc_kernel_pick("gemm_s8", run->isa, NULL);
    p.waits_in_out = kind == HC_PRODUCT_FLOATS || (kind == HC_PRODUCT_GROUPED && !p.exact_groups);
    side_use_kernel(&p.a, &p.kernel, run);
    side_use_kernel(&p.b, &p.kernel, run);
    has_memory = has_memory && allocate(&p, run);
    if (has_memory)
        walk(&p, run);
    hc_free_aligned(p.slab.end);
    hc_free_aligned(p.memory);
    return has_memory ? HC_OK : hc_fail(error, HC_MEMORY, "product: no memory for panels of %lld columns",
                                        (long long)p.k);
}
