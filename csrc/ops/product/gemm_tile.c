/* Tiles of the three kinds of matmul: calls kernels on panels, adds limbs, and writes the result to `out`. */
#include "ops/product/gemm_tile.h"

#include <math.h>
#include <string.h>

enum { MAX_TILE = 1024 }; /* mr * nr of any kernel */

static const int32_t ZEROS[MAX_TILE];

static const void *limb_of(const hc_panels *side, int64_t panel, int limb) {
    return side->panels + (panel * side->limbs + limb) * side->limb_bytes;
}

static int64_t tile_size(const hc_gemm_job *p) { return (int64_t)p->a.tile * p->kernel->nr; }

/* int64 sums, followed by int32 sums of every pair of limbs. */
int64_t hc_tile_sums_bytes(const hc_gemm_job *p) {
    return p->kind == HC_ORDER_CHAIN ? 0 : hc_round_up(tile_size(p) * (8 + 4 * p->a.limbs * p->b.limbs), HC_CACHE_LINE);
}

const hc_kernel *hc_few_rows_kernel(const hc_kernel *kernel, const hc_run *run) {
    const bool words = kernel->form == HC_PANEL_S16;
    const hc_kernel *few = words ? HC_BEST(gemm_few_words, run) : HC_BEST(gemm_few, run);
    const bool fits = few->fn.gemm_few && !kernel->nonzeros && kernel->form == few->form && kernel->kr == few->kr &&
                      kernel->nr == few->nr;
    return fits ? few : NULL;
}

int hc_most_few(const hc_kernel *few, hc_few_kind kind) { return kind == HC_FEW_SUMS ? few->mr : few->small; }

/* Calls gemm_few if the tile has few rows and its kernel multiplies those. */
static bool multiply_few(const hc_gemm_job *p, const hc_tile_at *at, hc_gemm_few_args args) {
    if (!p->few || at->rows >= p->kernel->mr || at->rows > hc_most_few(p->few, args.kind))
        return false;
    args.rows = (int)at->rows;
    args.mr = p->a.tile;
    p->few->fn.gemm_few(&args);
    return true;
}

static int64_t *dots_of(const hc_gemm_job *p, const hc_tile_at *at) {
    return memset(at->sums, 0, (size_t)tile_size(p) * sizeof(int64_t));
}

static int32_t *tiles_of(const hc_gemm_job *p, const hc_tile_at *at) {
    return (int32_t *)(void *)((int64_t *)at->sums + tile_size(p));
}

/* Tiles from and to `out`. */

static bool is_plain(const hc_gemm_job *p) { return p->out.n_dims <= 1 && p->out.column_stride == sizeof(float); }

/* The address of a tile in `out` if its values are contiguous there, otherwise `own`. */
static float *tile_at(const hc_gemm_job *p, const hc_tile_at *at, float *own, int64_t *ld) {
    *ld = p->kernel->nr;
    if (!is_plain(p))
        return own;
    *ld = p->out.n_dims ? p->out.stride[0] / (int64_t)sizeof(float) : 0;
    return (float *)(void *)hc_row(&p->out, at->row) + at->column;
}

/* Copies between a tile and `out`, along the direction whose values are closer in memory. */
static void copy_tile(const hc_gemm_job *p, const hc_tile_at *at, float *tile, bool to_out) {
    const int64_t ld = p->kernel->nr, column_step = p->out.column_stride;
    const int last = p->out.n_dims - 1;
    if (to_out && last == 0 && p->out.stride[0] == sizeof(float) && column_step > 0 && column_step % 4 == 0 &&
        column_step / 4 <= INT32_MAX) {
        for (int64_t i = 0; i < at->rows; i += 16)
            p->a.pack_x32(tile + i * ld, ld * 4, (int)hc_min(16, at->rows - i), at->columns,
                          hc_row(&p->out, at->row + i) + at->column * column_step, (int)(column_step / 4), 0);
        return;
    }
    if (to_out && is_plain(p)) {
        char *row = hc_row(&p->out, at->row) + at->column * column_step;
        for (int64_t i = 0; i < at->rows; i++, row += last < 0 ? 0 : p->out.stride[0])
            if (at->columns == 8) /* as of most kernels with narrow tiles */
                memcpy(row, tile + i * ld, 8 * sizeof *tile);
            else
                memcpy(row, tile + i * ld, (size_t)at->columns * sizeof *tile);
        return;
    }
    for (int64_t i = 0; i < at->rows;) {
        char *row = hc_row(&p->out, at->row + i) + at->column * column_step;
        int64_t even = at->rows - i; /* rows at a constant stride */
        if (last > 0)
            even = hc_min(even, p->out.shape[last] - (p->out.first + at->row + i) % p->out.shape[last]);
        const int64_t row_step = last >= 0 ? p->out.stride[last] : 0;
        const bool by_rows = column_step == sizeof(float) || row_step != sizeof(float);
        const int64_t outer = by_rows ? even : at->columns, inner = by_rows ? at->columns : even;
        const int64_t outer_step = by_rows ? row_step : column_step, inner_step = by_rows ? column_step : row_step;
        const int64_t outer_ld = by_rows ? ld : 1, inner_ld = by_rows ? 1 : ld;
        for (int64_t u = 0; u < outer; u++)
            for (int64_t v = 0; v < inner; v++) {
                char *value = row + u * outer_step + v * inner_step;
                float *own = tile + i * ld + u * outer_ld + v * inner_ld;
                if (to_out)
                    memcpy(value, own, sizeof(float));
                else
                    memcpy(own, value, sizeof(float));
            }
        i += even;
    }
}

/* One tile of each kind. */

static void multiply_floats(const hc_gemm_job *p, const hc_tile_at *at) {
    const bool accumulate = p->kc.first > 0, is_full = at->rows == p->a.tile && at->columns == p->kernel->nr;
    float own[MAX_TILE];
    int64_t ld = p->kernel->nr;
    float *tile = is_full ? tile_at(p, at, own, &ld) : own;
    if (tile == own && accumulate) {
        memset(own, 0, (size_t)tile_size(p) * sizeof *own);
        copy_tile(p, at, own, false);
    }
    p->kernel->fn.gemm_f32(p->kc.steps, (const float *)limb_of(at->a, at->a_panel, 0),
                           (const float *)limb_of(at->b, at->b_panel, 0), tile, ld, accumulate, (int)at->rows,
                           (int)at->columns);
    if (tile == own)
        copy_tile(p, at, own, true);
}

/* The integer sums of one segment of one limb of each side. */
static void multiply_sums(const hc_gemm_job *p, const hc_tile_at *at, int64_t segment, const void *a, const int8_t *b,
                          const int32_t *init, int32_t *tile) {
    const hc_gemm_few_args few = {.kind = HC_FEW_SUMS,
                                  .n_segments = 1,
                                  .steps = p->kc.segment_steps + segment,
                                  .a = a,
                                  .b = b,
                                  .init = init,
                                  .c = tile};
    if (!multiply_few(p, at, few))
        p->kernel->fn.gemm_s8(p->kc.segment_steps[segment], a, b, init, tile); /* or gemm_nm_s8, of the same type */
}

/* Adds the integer sums of one segment over all pairs of limbs: S += 256^(i + j) P_ij, modulo 2^64 (S itself fits). */
static void add_dots(const hc_gemm_job *p, const hc_tile_at *at, int64_t segment, int64_t step, int64_t *dots) {
    const int64_t a_skip = step * p->kernel->kr * p->a.tile * (p->kernel->form == HC_PANEL_S16 ? 2 : 1);
    const int64_t b_skip = step * p->kernel->kr * p->kernel->nr;
    int32_t *tiles = tiles_of(p, at);
    int shifts[HC_MAX_LIMBS * HC_MAX_SIGNED_LIMBS], pairs = 0;
    for (int i = 0; i < at->a->limbs; i++)
        for (int j = 0; j < at->b->limbs; j++) {
            const bool is_top = i == at->a->limbs - 1;
            const bool corrected = p->kernel->form == HC_PANEL_U8 ? is_top : p->kernel->form == HC_PANEL_S8 && !is_top;
            const int64_t init = ((at->b_panel * at->b->limbs + j) * p->kc.n_segments + segment) * p->kernel->nr;
            multiply_sums(p, at, segment, (const char *)limb_of(at->a, at->a_panel, i) + a_skip,
                          (const int8_t *)limb_of(at->b, at->b_panel, j) + b_skip,
                          corrected ? at->b->init + init : ZEROS, tiles + pairs * tile_size(p));
            shifts[pairs++] = 8 * (i + j);
        }
    p->join(pairs, tile_size(p), tiles, shifts, dots);
}

/* Segments [first, first + n), from `step` on. */
static void multiply_split(const hc_gemm_job *p, const hc_tile_at *at, int64_t first, int64_t n, int64_t step,
                           int32_t *tile) {
    const int64_t segment = (at->b_panel * p->kc.n_segments + first) * p->kernel->nr, columns = step * p->kernel->kr;
    const int a_bytes = p->kernel->form == HC_PANEL_S16 ? 2 : 1;
    const hc_gemm_few_args few = {.kind = HC_FEW_SPLIT,
                                  .n_segments = n,
                                  .steps = p->kc.segment_steps + first,
                                  .a = (const char *)limb_of(at->a, at->a_panel, 0) + columns * p->a.tile * a_bytes,
                                  .b = (const int8_t *)limb_of(at->b, at->b_panel, 0) + columns * p->kernel->nr,
                                  .init = at->b->init ? at->b->init + segment : NULL,
                                  .scale_b = at->b->scales + segment,
                                  .c = tile};
    if (!multiply_few(p, at, few))
        p->kernel->fn.gemm_small_split(n, few.steps, few.a, few.b, few.init, few.scale_b, tile);
}

/* As many segments at a time as int32 holds. */
static void add_split(const hc_gemm_job *p, const hc_tile_at *at, int64_t *dots) {
    int32_t *tile = tiles_of(p, at);
    for (int64_t first = 0, step = 0, end; first < p->kc.n_segments; first = end) {
        int64_t steps = p->kc.segment_steps[first];
        for (end = first + 1; end < p->kc.n_segments; steps += p->kc.segment_steps[end++])
            if ((steps + p->kc.segment_steps[end]) * p->kernel->kr > p->split_columns)
                break;
        multiply_split(p, at, first, end - first, step, tile);
        p->join(1, tile_size(p), tile, &(int){0}, dots);
        step += steps;
    }
}

static void multiply_folded(const hc_gemm_job *p, const hc_tile_at *at) {
    const int mr = p->a.tile, nr = p->kernel->nr;
    const float *scale_a = at->a->row_scales + at->a_panel * mr, *scale_b = at->b->row_scales + at->b_panel * nr;
    const bool is_first = p->kc.first == 0, is_last = p->kc.first + p->kc.columns == p->k;
    float own[MAX_TILE];
    int64_t ld;
    float *values = tile_at(p, at, own, &ld);
    const bool fits = !p->split || p->k <= p->split_columns;
    if (p->a.limbs == 1 && p->b.limbs == 1 && is_first && is_last && fits) {
        int32_t *tile = tiles_of(p, at);
        if (p->split)
            multiply_split(p, at, 0, p->kc.n_segments, 0, tile);
        else
            multiply_sums(p, at, 0, limb_of(at->a, at->a_panel, 0), limb_of(at->b, at->b_panel, 0),
                          p->kernel->form == HC_PANEL_U8 ? at->b->init + at->b_panel * nr : ZEROS, tile);
        p->dequantize_s32(at->rows, at->columns, tile, nr, scale_a, scale_b, values, ld);
    } else {
        int64_t *dots = dots_of(p, at);
        int64_t *waiting = p->dots ? p->dots + at->waiting : NULL;
        if (!is_first)
            memcpy(dots, waiting, (size_t)(mr * nr) * sizeof *dots);
        if (p->split)
            add_split(p, at, dots);
        else
            add_dots(p, at, 0, 0, dots);
        if (!is_last) {
            memcpy(waiting, dots, (size_t)(mr * nr) * sizeof *dots);
            return;
        }
        p->dequantize_s64(at->rows, at->columns, dots, nr, scale_a, scale_b, values, ld);
    }
    if (values == own)
        copy_tile(p, at, own, true);
}

/* Replaces every NaN by the same NaN, as the GEMV paths do: processors produce different NaNs. */
static void unify_nans(int64_t n, float *values) {
    for (int64_t i = 0; i < n; i++)
        values[i] = values[i] == values[i] ? values[i] : NAN;
}

static void multiply_grouped(const hc_gemm_job *p, const hc_tile_at *at) {
    const int mr = p->a.tile, nr = p->kernel->nr;
    const int64_t n_segments = p->kc.n_segments;
    const float *scale_a = at->a->scales + at->a_panel * n_segments * mr;
    const float *scale_b = at->b->scales + at->b_panel * n_segments * nr;
    const bool is_first = p->kc.first == 0, is_last = p->kc.first + p->kc.columns == p->k;
    float values[MAX_TILE];
    memset(values, 0, (size_t)tile_size(p) * sizeof *values);
    if (!p->exact_groups) {
        if (!is_first)
            copy_tile(p, at, values, false);
        const int32_t *init = at->b->init ? at->b->init + at->b_panel * n_segments * nr : NULL;
        const hc_gemm_few_args few = {.kind = HC_FEW_SCALED,
                                      .n_segments = n_segments,
                                      .steps = p->kc.segment_steps,
                                      .a = limb_of(at->a, at->a_panel, 0),
                                      .b = limb_of(at->b, at->b_panel, 0),
                                      .init = init,
                                      .scale_a = scale_a,
                                      .scale_b = scale_b,
                                      .c = values,
                                      .accumulate = !is_first};
        if (!multiply_few(p, at, few))
            p->kernel->fn.gemm_s8_scaled(n_segments, few.steps, few.a, few.b, init, scale_a, scale_b, values,
                                         !is_first);
        if (is_last)
            unify_nans(mr * nr, values);
        copy_tile(p, at, values, true);
        return;
    }
    int64_t *dots = dots_of(p, at);
    if (!is_first) {
        memcpy(values, p->partial + at->waiting, (size_t)(mr * nr) * sizeof *values);
        if (!p->kc.opens)
            memcpy(dots, p->dots + at->waiting, (size_t)(mr * nr) * sizeof *dots);
    }
    int64_t step = 0;
    for (int64_t s = 0; s < n_segments; s++, scale_a += mr, scale_b += nr) {
        add_dots(p, at, s, step, dots);
        step += p->kc.segment_steps[s];
        if (s == n_segments - 1 && !p->kc.closes)
            break;
        p->scale_s64(mr, nr, dots, scale_a, scale_b, values);
        memset(dots, 0, (size_t)(mr * nr) * sizeof *dots);
    }
    if (is_last) {
        unify_nans(mr * nr, values);
        copy_tile(p, at, values, true);
    } else {
        memcpy(p->partial + at->waiting, values, (size_t)(mr * nr) * sizeof *values);
        memcpy(p->dots + at->waiting, dots, (size_t)(mr * nr) * sizeof *dots);
    }
}

void hc_multiply_tile(const hc_gemm_job *p, const hc_tile_at *at) {
    if (p->kind == HC_ORDER_CHAIN)
        multiply_floats(p, at);
    else if (p->kind == HC_ORDER_FOLDED)
        multiply_folded(p, at);
    else
        multiply_grouped(p, at);
}
