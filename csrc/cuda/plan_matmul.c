/* Steps of a matmul: both sides become rows of integers, or w stays packed, or x meets float values (cuda/hc_cuda.h). */
#include "cuda/matmul/plans.h"
#include "cuda/weights.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

enum { FEW_MOST = 64, FEW_STEP = 128 /* columns */ };
enum { FEW_SEGMENT = 32 /* columns, of the grouped ones */ };
enum { MOST_STRIDE = 1 << 24 /* bytes of a row: 256 rows of a block are at offsets of 32 bits */ };
enum {
    HOPPER_ROWS = 128,
    HOPPER_STEP = 128 /* bytes of k */,
    HOPPER_FEW = 32 /* rows of x that meet bytes or 2:4 in registers */
};
enum { EXPANDED_ROWS = 256 /* of x, up to which tiles decode codes: on an H200, with 8192 x 8192 weights */ };
enum { SPARSE_STEP = 128 /* columns */ };

/* Rows that hc_gemm_s4 reads as they are stored: whole pieces of 16 bytes. */
static bool reads_pieces(const hc_cuda_side *w) {
    const hc_stored_form form = hc_form_of(&w->format);
    const hc_component *codes = &w->parts.part[HC_CODES];
    const bool has_group_scales = hc_form_has_nibble_scales(&form) && w->geometry.group == 16;
    const bool has_row_scales = hc_form_has_f32_scales(&form) && w->format.group == 0;
    return hc_form_is_nibbles(&form) && (has_group_scales || has_row_scales) && w->format.m == 0 &&
           w->geometry.runs == 1 && w->geometry.columns % 32 == 0 && codes->row_stride % 16 == 0 &&
           (uintptr_t)codes->data % 16 == 0;
}

/* What the kernels of codes of 4 bits take; scales: of segments, or NULL, and those of rows are as stored. */
static hc_cuda_gemm_s4 gemm_s4_of(const hc_cuda_gemm *gemm, const hc_cuda_side *w, const float *scales) {
    const hc_component *parts = w->parts.part, *row_scales = &parts[w->format.group ? HC_COARSE : HC_SCALES];
    const bool has_group_scales = !scales && w->format.group;
    return (hc_cuda_gemm_s4){.m = gemm->m,
                             .n = gemm->n,
                             .ld = gemm->ld,
                             .segments = gemm->segments,
                             .w_row_bytes = w->geometry.columns / 2,
                             .length = gemm->length,
                             .x = gemm->x,
                             .w = parts[HC_CODES].data,
                             .group_scales = has_group_scales ? parts[HC_SCALES].data : NULL,
                             .w_stride = parts[HC_CODES].row_stride,
                             .group_scales_stride = has_group_scales ? parts[HC_SCALES].row_stride : 0,
                             .w_scales_stride =
                                 scales ? gemm->segments * (int64_t)sizeof(float) : row_scales->row_stride,
                             .x_scales = gemm->x_scales,
                             .bias = gemm->bias,
                             .w_scales = scales ? (const char *)scales : (const char *)row_scales->data,
                             .y = gemm->y,
                             .y_row = gemm->y_row,
                             .y_column = gemm->y_column};
}

/* Few rows, folded, of steps: w as bytes, in codes of 4 bits, or as a pattern 2:4 kept it; row_bytes: of a row of it. Up to 8 rows of x,
 * a block has 16 rows of w. More go through shared memory, and rows of w that share them are chosen so that blocks fill the device while
 * few of them read x. Returns the warps of a block with other rows of w. */
static int add_few(const hc_cuda_gemm *gemm, hc_cuda_kind kind, int64_t row_bytes, hc_cuda_plan *plan,
                   int params_bytes) {
    enum { WARPS = 16, W_ROWS = 16, X_ROWS = 8, SUM_BYTES = 512 /* of a warp and X_ROWS */, STAGES = 3 };
    static const struct {
        const char *kernels[2]; /* up to 8 rows, and more */
        int gap;                /* between rows of x in shared memory */
    } KINDS[] = {[HC_CUDA_BYTES] = {{"hc_gemm_few_s8_8", "hc_gemm_few_s8_64"}, 64},
                 [HC_CUDA_24] = {{"hc_gemm_few_24_8", "hc_gemm_few_24_64"}, 16},
                 [HC_CUDA_STORED] = {{"hc_gemm_few_s8_8", "hc_gemm_few_s8_64"}, 64},
                 [HC_CUDA_NIBBLES] = {{"hc_gemm_few_s4_8", "hc_gemm_few_s4_64"}, 16}};
    const int64_t tiles = hc_ceil_div(gemm->m, X_ROWS);
    const int at_once = hc_cuda_multiprocessors_of(plan);
    if (tiles == 1) { /* 16 warps for each multiprocessor */
        const int64_t blocks = hc_ceil_div(gemm->n, W_ROWS);
        const int warps = blocks <= 2 * at_once ? WARPS / 2 : WARPS / 4;
        hc_cuda_add_step(plan, "few_rows", KINDS[kind].kernels[0], blocks, 1, warps * 32, warps * SUM_BYTES,
                         params_bytes);
        return 1;
    }
    int chosen = 0;
    int64_t least = 0, shared = 0;
    for (int w_warps = 1; w_warps <= WARPS; w_warps *= 2) {
        const int64_t x_bytes = tiles * X_ROWS * (WARPS / w_warps * FEW_STEP + KINDS[kind].gap);
        const int64_t bytes = hc_max(STAGES * x_bytes, WARPS * tiles * SUM_BYTES);
        const int64_t blocks = hc_ceil_div(gemm->n, W_ROWS * w_warps);
        const int64_t read = hc_ceil_div(blocks, at_once) * (W_ROWS * w_warps * row_bytes + gemm->m * gemm->ld);
        if (bytes > HC_CUDA_LARGE_SHARED_BYTES || (chosen && read >= least))
            continue;
        chosen = w_warps, least = read, shared = bytes;
    }
    hc_cuda_add_step(plan, "few_rows", KINDS[kind].kernels[1], hc_ceil_div(gemm->n, W_ROWS * chosen), 1, 512, shared,
                     params_bytes);
    return chosen;
}

static void add_few_nibbles(const hc_cuda_gemm *gemm, const hc_cuda_side *w, hc_cuda_plan *plan) {
    hc_cuda_gemm_s4 p = gemm_s4_of(gemm, w, NULL);
    p.w_warps = add_few(gemm, HC_CUDA_NIBBLES, p.w_row_bytes, plan, sizeof p);
    plan->step[plan->n - 1].params.gemm_s4 = p;
}

/* most: rows of x that other kernels take. */
static bool takes_warpgroups(const hc_cuda_gemm *gemm, const hc_cuda_plan *plan, int most) {
    return plan->architecture == HC_CUDA_HOPPER && gemm->m > most;
}

/* Blocks of more columns read fewer bytes per product, and fewer blocks fill the multiprocessors. `times`: of a stage on an H200, where
 * bytes from L2 hold it up, or, grouped, the scaling of sums. */
static hc_cuda_step *add_warpgroups(const hc_cuda_gemm *gemm, bool is_nibbles, hc_cuda_plan *plan, int params_bytes) {
    static const struct {
        const char *kernel;
        int32_t mode; /* hc_int_mode */
        bool is_nibbles;
        int length; /* of all segments, which fill whole stages; 0: any */
        int columns, stages, times;
    } TILES[] = {{"hc_gemm_90a_folded_64", HC_INT_FOLDED, false, 0, 64, 8, 3},
                 {"hc_gemm_90a_folded", HC_INT_FOLDED, false, 0, 128, 6, 4},
                 {"hc_gemm_90a_folded_256", HC_INT_FOLDED, false, 0, 256, 4, 6},
                 {"hc_gemm_90a_nibbles_folded_64", HC_INT_FOLDED, true, 0, 64, 8, 3},
                 {"hc_gemm_90a_nibbles_folded", HC_INT_FOLDED, true, 0, 128, 6, 4},
                 {"hc_gemm_90a_g32_64", HC_INT_GROUPED, false, 32, 64, 8, 9},
                 {"hc_gemm_90a_g32", HC_INT_GROUPED, false, 32, 128, 6, 12},
                 {"hc_gemm_90a_g64", HC_INT_GROUPED, false, 64, 128, 6, 9},
                 {"hc_gemm_90a_g128_64", HC_INT_GROUPED, false, 128, 64, 8, 5},
                 {"hc_gemm_90a_g128", HC_INT_GROUPED, false, 128, 128, 6, 7},
                 {"hc_gemm_90a_grouped_64", HC_INT_GROUPED, false, 0, 64, 8, 10},
                 {"hc_gemm_90a_grouped", HC_INT_GROUPED, false, 0, 128, 6, 14}};
    const int at_once = hc_cuda_multiprocessors_of(plan); /* a block each */
    const int64_t rows = hc_ceil_div(gemm->m, HOPPER_ROWS);
    const bool has_whole = gemm->segments * gemm->length == hc_round_up(gemm->ld, HOPPER_STEP);
    int best = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < (int)(sizeof TILES / sizeof *TILES); i++) {
        if (TILES[i].mode != gemm->mode || TILES[i].is_nibbles != is_nibbles ||
            (TILES[i].length && (TILES[i].length != gemm->length || !has_whole)))
            continue;
        const int64_t blocks = rows * hc_ceil_div(gemm->n, TILES[i].columns);
        const int64_t time = hc_ceil_div(blocks, at_once) * TILES[i].times;
        if (time < least)
            least = time, best = i;
    }
    const int columns = TILES[best].columns, w_bytes = columns * HOPPER_STEP;
    const int stage = HOPPER_ROWS * HOPPER_STEP + (is_nibbles ? w_bytes / 2 : w_bytes);
    const int operands = is_nibbles ? 3 * w_bytes : 0;
    const int scales = gemm->mode == HC_INT_FOLDED ? 0 : 3 * 4 * (HOPPER_ROWS + columns) * (int)sizeof(float);
    return hc_cuda_add_step(plan, "warpgroup_90a", TILES[best].kernel, rows, hc_ceil_div(gemm->n, columns), 256,
                            TILES[best].stages * stage + operands + scales, params_bytes);
}

/* x lies as for the folded ones. */
static void add_few_grouped(const hc_cuda_gemm *gemm, const hc_cuda_side *w, const float *scales, hc_cuda_plan *plan) {
    const bool has_one = gemm->m <= 16;
    const int rows = has_one ? 16 : FEW_MOST, threads = 256, columns = threads / 4, stages = 4;
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "few_grouped", has_one ? "hc_gemm_few_s4_16_grouped" : "hc_gemm_few_s4_64_grouped",
        hc_ceil_div(gemm->n, columns), 1, threads, stages * rows * (FEW_STEP + 16), sizeof step->params.gemm_s4);
    step->params.gemm_s4 = gemm_s4_of(gemm, w, scales);
}

/* Rows of bytes that all tiles read, in place of codes that each tile decodes. */
static void add_expanded(const hc_cuda_gemm *gemm, const hc_cuda_side *w, const float *scales, void *workspace,
                         hc_cuda_plan *plan) {
    enum { PIECE = 16, EACH = 4 /* codes and rows of a thread */, THREADS = 256, MOST_BLOCKS = 65535 };
    const hc_cuda_gemm_s4 stored = gemm_s4_of(gemm, w, scales);
    int8_t *bytes = hc_cuda_reserve(workspace, plan, gemm->n * gemm->ld);
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "warpgroup_90a", "hc_expand_nibbles", hc_ceil_div(gemm->ld, PIECE * THREADS),
                         hc_min(hc_ceil_div(gemm->n, EACH), MOST_BLOCKS), THREADS, 0, sizeof(hc_cuda_expand_nibbles));
    step->params.expand_nibbles = (hc_cuda_expand_nibbles){
        gemm->n, gemm->ld, stored.w, stored.group_scales, stored.w_stride, stored.group_scales_stride, bytes};
    hc_cuda_gemm expanded = *gemm;
    expanded.w = bytes;
    expanded.w_scales = (const float *)stored.w_scales;
    add_warpgroups(&expanded, false, plan, sizeof expanded)->params.gemm = expanded;
}

static void add_nibbles(const hc_cuda_gemm *gemm, const hc_cuda_side *w, const float *scales, void *workspace,
                        hc_cuda_plan *plan) {
    const hc_component *row_scales = &w->parts.part[w->format.group ? HC_COARSE : HC_SCALES];
    const bool expands =
        gemm->mode == HC_INT_GROUPED ||
        (gemm->m > EXPANDED_ROWS && row_scales->row_stride == sizeof(float) /* one behind the other */);
    if (takes_warpgroups(gemm, plan, FEW_MOST) && expands) {
        add_expanded(gemm, w, scales, workspace, plan);
        return;
    }
    static const struct {
        const char *kernel;
        int rows, columns, threads, stages;
    } TILES[] = {{"hc_gemm_nibbles_64_grouped", 64, 64, 128, 4},
                 {"hc_gemm_nibbles_128_grouped", 128, 128, 256, 3},
                 {"hc_gemm_nibbles_128_folded", 128, 128, 256, 3}};
    const int tile = gemm->mode == HC_INT_FOLDED ? 2 : gemm->m > 64;
    const int rows = TILES[tile].rows, columns = TILES[tile].columns;
    hc_cuda_step *step =
        takes_warpgroups(gemm, plan, FEW_MOST)
            ? add_warpgroups(gemm, true, plan, sizeof step->params.gemm_s4)
            : hc_cuda_add_step(plan, "nibbles", TILES[tile].kernel, hc_ceil_div(gemm->m, rows),
                               hc_ceil_div(gemm->n, columns), TILES[tile].threads,
                               (rows * HC_CUDA_STEP_BYTES + columns * (HC_CUDA_STEP_BYTES / 2)) * TILES[tile].stages,
                               sizeof step->params.gemm_s4);
    step->params.gemm_s4 = gemm_s4_of(gemm, w, scales);
}

/* L2 limits these tiles: the one whose blocks read the fewest bytes, wave by wave. */
static hc_cuda_step *add_warpgroups_24(const hc_cuda_gemm *gemm, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel;
        int w_rows, x_rows, stages;
    } TILES[] = {{"hc_gemm_90a_24_64x64_folded", 64, 64, 12},
                 {"hc_gemm_90a_24_64x128_folded", 64, 128, 8},
                 {"hc_gemm_90a_24_128x128_folded", 128, 128, 7},
                 {"hc_gemm_90a_24_256x128_folded", 256, 128, 6},
                 {"hc_gemm_90a_24_256x192_folded", 256, 192, 5}};
    const int at_once = hc_cuda_multiprocessors_of(plan); /* a block each */
    const int kept = SPARSE_STEP / 2, places = SPARSE_STEP / 8;
    int tile = 0;
    int64_t least = INT64_MAX;
    for (int i = 0; i < (int)(sizeof TILES / sizeof *TILES); i++) {
        const int64_t blocks = hc_ceil_div(gemm->m, TILES[i].x_rows) * hc_ceil_div(gemm->n, TILES[i].w_rows);
        const int bytes = TILES[i].w_rows * (kept + places) + TILES[i].x_rows * SPARSE_STEP;
        if (hc_ceil_div(blocks, at_once) * bytes < least)
            tile = i, least = hc_ceil_div(blocks, at_once) * bytes;
    }
    const int w_rows = TILES[tile].w_rows, x_rows = TILES[tile].x_rows, stages = TILES[tile].stages;
    /* places of two stages lie together; scales of x */
    const int shared_bytes = stages * (w_rows * kept + x_rows * SPARSE_STEP) +
                             (stages + 1) / 2 * (w_rows * 2 * places) + x_rows * (int)sizeof(float);
    return hc_cuda_add_step(plan, "sparse_24_90a", TILES[tile].kernel, hc_ceil_div(gemm->m, x_rows),
                            hc_ceil_div(gemm->n, w_rows), w_rows * 2, shared_bytes, sizeof(hc_cuda_gemm_24));
}

static void add_24(const hc_cuda_gemm *gemm, const uint32_t *places, bool is_few, hc_cuda_plan *plan) {
    hc_cuda_gemm_24 p = {*gemm, places};
    if (is_few) {
        p.gemm.w_warps = add_few(gemm, HC_CUDA_24, gemm->ld * 5 / 8, plan, sizeof p);
        plan->step[plan->n - 1].params.gemm_24 = p;
        return;
    }
    if (gemm->mode == HC_INT_FOLDED && plan->architecture == HC_CUDA_HOPPER) {
        add_warpgroups_24(gemm, plan)->params.gemm_24 = p;
        return;
    }
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int x_rows, stages;
    } TILES[] = {{{NULL, "hc_gemm_24_16_grouped"}, 16, 3}, {{"hc_gemm_24_64_folded", "hc_gemm_24_64_grouped"}, 64, 2}};
    const int tile = gemm->m > 16, w_rows = 128, w_bytes = SPARSE_STEP / 2 + SPARSE_STEP / 8;
    const int stage_bytes = w_rows * w_bytes + TILES[tile].x_rows * SPARSE_STEP;
    hc_cuda_step *step = hc_cuda_add_step(plan, "sparse_24", TILES[tile].kernel[gemm->mode],
                                          hc_ceil_div(gemm->m, TILES[tile].x_rows), hc_ceil_div(gemm->n, w_rows), 128,
                                          stage_bytes * TILES[tile].stages, sizeof step->params.gemm_24);
    step->params.gemm_24 = p;
}

/* The tile of integers for so many rows. */
static void add_gemm(const hc_cuda_gemm *gemm, bool is_wide, bool is_few, hc_cuda_plan *plan) {
    if (is_few) {
        hc_cuda_gemm p = *gemm;
        p.w_warps = add_few(gemm, HC_CUDA_BYTES, gemm->ld, plan, sizeof p);
        plan->step[plan->n - 1].params.gemm = p;
        return;
    }
    if (!is_wide && takes_warpgroups(gemm, plan, gemm->mode == HC_INT_GROUPED ? 16 : 0)) {
        add_warpgroups(gemm, false, plan, sizeof *gemm)->params.gemm = *gemm;
        return;
    }
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int rows, columns, threads, stages; /* of all limbs */
    } TILES[] = {{{NULL, "hc_gemm_s8_16_grouped"}, 16, 128, 128, 3},
                 {{"hc_gemm_s8_64_folded", "hc_gemm_s8_64_grouped"}, 64, 64, 128, 3},
                 {{"hc_gemm_s8_128_folded", "hc_gemm_s8_128_grouped"}, 128, 128, 256, 3},
                 {{"hc_gemm_wide_folded", "hc_gemm_wide_grouped"}, 16, 32, 128, 2}};
    const int tile = is_wide ? 3 : gemm->m <= 16 && gemm->mode == HC_INT_GROUPED ? 0 : gemm->m < 128 ? 1 : 2;
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "gemm", TILES[tile].kernel[gemm->mode], hc_ceil_div(gemm->m, TILES[tile].rows),
                         hc_ceil_div(gemm->n, TILES[tile].columns), TILES[tile].threads,
                         (gemm->x_limbs * TILES[tile].rows + gemm->w_limbs * TILES[tile].columns) * HC_CUDA_STEP_BYTES *
                             TILES[tile].stages,
                         sizeof *gemm);
    step->params.gemm = *gemm;
}

/* After a gemm without bias. */
static void add_minima(const hc_cuda_gemm *gemm, const float *bias, const float *minima, hc_cuda_plan *plan) {
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "minima", "hc_add_minima", gemm->m, hc_ceil_div(gemm->n, HC_CUDA_MAX_THREADS),
                         HC_CUDA_MAX_THREADS, gemm->segments * (int64_t)sizeof(float), sizeof step->params.add_minima);
    step->params.add_minima = (hc_cuda_add_minima){*gemm, minima};
    step->params.add_minima.gemm.bias = bias;
}

hc_status hc_cuda_plan_matmul(const hc_operand *x, const hc_format *activations, const hc_packed *packed,
                              const float *bias, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                              hc_error *error) {
    plan->n = 0;
    plan->workspace_bytes = 0;
    if (x->dense && !activations)
        return hc_cuda_plan_floats(x->dense, packed, bias, out, workspace, plan, error);
    hc_cuda_side a = {.format = x->packed ? x->packed->format : *activations};
    hc_cuda_side w = {.format = packed->format, .parts = packed->components};
    hc_cuda_form form;
    const int last = x->dense ? x->dense->ndim - 1 : 0;
    hc_status status = hc_cuda_packed_geometry(packed, &w.geometry, error);
    if (status == HC_OK)
        status = x->packed
                     ? hc_cuda_packed_geometry(x->packed, &a.geometry, error)
                     : hc_format_geometry(activations, x->dense->ndim, x->dense->shape, 1, &last, &a.geometry, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(&a, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(&w, error);
    if (status == HC_OK)
        status = hc_cuda_form_of(&a, &w, &form, error);
    if (status != HC_OK)
        return status;
    /* a block that adds minima has a float of each segment in shared memory */
    const bool has_room = !form.has_minima || form.segments <= HC_CUDA_SHARED_BYTES / (int64_t)sizeof(float);
    const hc_component *codes = &w.parts.part[HC_CODES], *scales = &w.parts.part[HC_SCALES];
    const bool has_offsets = hc_max(form.ld, hc_max(codes->row_stride, scales->row_stride)) < MOST_STRIDE;
    if (w.geometry.rows > HC_CUDA_MOST_ROWS || !hc_cuda_has_even_rows(out) || !has_room || !has_offsets)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    const bool has_few = !form.is_wide && a.geometry.rows <= FEW_MOST;
    const bool reads_nibbles = has_few && form.mode == HC_INT_FOLDED && reads_pieces(&w);
    const bool is_few_grouped = has_few && form.mode == HC_INT_GROUPED && form.kind == HC_CUDA_NIBBLES &&
                                form.length == FEW_SEGMENT && form.ld % FEW_STEP == 0;
    const bool has_fewer = has_few && (plan->architecture != HC_CUDA_HOPPER || a.geometry.rows <= HOPPER_FEW);
    const bool is_few = reads_nibbles || (has_fewer && form.mode == HC_INT_FOLDED && form.kind != HC_CUDA_NIBBLES &&
                                          form.ld % FEW_STEP == 0);
    hc_cuda_gemm gemm = hc_cuda_gemm_of(out);
    gemm.m = a.geometry.rows;
    gemm.n = w.geometry.rows;
    gemm.mode = form.mode;
    gemm.segments = form.segments;
    gemm.length = form.length;
    gemm.ld = reads_nibbles ? hc_round_up(form.length, FEW_STEP) : form.ld;
    gemm.bias = form.has_minima ? NULL : bias;
    gemm.x_limbs = a.form[form.mode].n_limbs;
    gemm.w_limbs = w.form[form.mode].n_limbs;
    if (x->packed)
        a.parts = x->packed->components;
    const bool x_is_there = form.mode == HC_INT_FOLDED && !form.is_wide && !reads_nibbles &&
                            hc_cuda_is_stored_as_integers(&a, x->packed != NULL, gemm.ld);
    hc_cuda_made made = {.integers = NULL};
    const bool is_made = !reads_nibbles && !hc_cuda_find_prepacked(packed, &w, &form, &made);
    if (is_made)
        hc_cuda_lay_out(&w, &form, NULL, &made);
    if (is_made) {
        hc_cuda_lay_out(&w, &form, hc_cuda_reserve(workspace, plan, made.bytes), &made);
        if (made.cleared)
            hc_cuda_add_clear(plan, made.integers, made.cleared);
    }
    float *x_scales = hc_cuda_reserve(workspace, plan, gemm.m * gemm.segments * (int64_t)sizeof(float));
    const int64_t x_bytes = x_is_there ? 0 : gemm.x_limbs * gemm.m * gemm.ld;
    const bool x_is_whole = a.geometry.columns == gemm.ld && a.format.m == 0; /* no zeros lie between its integers */
    const int64_t cleared = x_is_whole || !x_bytes ? -1 : plan->workspace_bytes;
    int8_t *x_integers = hc_cuda_reserve(workspace, plan, x_bytes);
    gemm.x = x_integers;
    gemm.x_scales = x_scales;
    if (x_is_there && !x->packed) {
        const hc_cuda_result result = {.parts = &a.parts};
        hc_cuda_reserve_parts(&a.format, &a.geometry, workspace, plan, &a.parts);
        status =
            hc_cuda_add_quantize(x->dense, NULL, &a.format, &a.geometry, 1, &last, &result, -1, workspace, plan, error);
    }
    if (x_is_there) {
        gemm.x = (const int8_t *)a.parts.part[HC_CODES].data;
        gemm.x_scales = (const float *)a.parts.part[HC_SCALES].data;
    } else {
        const hc_cuda_integer_rows to = {.mode = form.mode,
                                         .group = form.group,
                                         .segments = form.segments,
                                         .length = form.length,
                                         .ld = gemm.ld,
                                         .for_nibbles = reads_nibbles || is_few_grouped,
                                         .integers = x_integers,
                                         .scales = x_scales};
        if (x->packed && cleared >= 0)
            hc_cuda_add_clear(plan, x_integers, x_bytes);
        status = x->packed
                     ? hc_cuda_add_integers(&a, to, plan, error)
                     : hc_cuda_add_quantized_integers(&a, x->dense, 1, &last, to, cleared, workspace, plan, error);
    }
    if (status == HC_OK && is_made)
        status = hc_cuda_add_weights(&w, &form, &made, plan, error);
    if (status != HC_OK)
        return status;
    gemm.w = made.integers;
    gemm.w_scales = made.scales;
    if (form.kind == HC_CUDA_STORED && !reads_nibbles) {
        gemm.w = (const int8_t *)w.parts.part[HC_CODES].data;
        gemm.w_scales = (const float *)w.parts.part[HC_SCALES].data;
    }
    if (reads_nibbles)
        add_few_nibbles(&gemm, &w, plan);
    else if (is_few_grouped)
        add_few_grouped(&gemm, &w, made.scales, plan);
    else if (form.kind == HC_CUDA_NIBBLES)
        add_nibbles(&gemm, &w, made.scales, workspace, plan);
    else if (form.kind == HC_CUDA_24)
        add_24(&gemm, made.places, is_few, plan);
    else
        add_gemm(&gemm, form.is_wide, is_few, plan);
    if (form.has_minima)
        add_minima(&gemm, bias, made.minima, plan);
    return HC_OK;
}
