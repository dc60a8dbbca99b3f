/* Steps of a matmul: both sides become rows of integers, or w stays packed, or x meets float values (cuda/hc_cuda.h). */
#include "cuda/weights.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

enum { NIBBLES_MOST = 64, NIBBLES_STEP = 256 /* codes of a stage */ };
enum { GEMV_MOST = 8, SGEMM_TILE = 64 };
enum { MOST_ROWS = 65535 * 32 /* of w: the second size of a grid times the fewest columns of a block */ };
enum { STEP_BYTES = 64 /* of a row of bytes that a stage holds */ };
enum { MOST_STRIDE = 1 << 24 /* bytes of a row: 256 rows of a block are at offsets of 32 bits */ };
enum { HOPPER_ROWS = 128, HOPPER_STEP = 128 /* bytes of k */, HOPPER_STAGES = 4, H100_MULTIPROCESSORS = 132 };
enum { SPARSE_STEP = 128 /* columns */ };

static hc_cuda_gemm gemm_of(const hc_view *out) {
    hc_cuda_gemm gemm = {.y = out->data};
    gemm.y_row = out->ndim > 1 ? out->strides[out->ndim - 2] : 0;
    gemm.y_column = out->strides[out->ndim - 1];
    return gemm;
}

/* The rows of `out` at one stride. */
static bool has_even_rows(const hc_view *out) {
    for (int i = out->ndim - 3; i >= 0; i--)
        if (out->shape[i] > 1 && out->strides[i] != out->strides[i + 1] * out->shape[i + 1])
            return false;
    return true;
}

/* Bits of a group scale where kernels read it as it is stored, or 0. */
static int stored_scale_bits(const hc_stored_form *form, const hc_component *scales) {
    const bool is_e4m3 = form->scale == HC_SCALE_E4M3 && form->second == HC_SECOND_SCALE;
    const bool is_integer = form->scale == HC_SCALE_INTEGER && form->scale_bits == form->bits;
    if (is_e4m3 || (is_integer && form->second == HC_SECOND_ROW))
        return is_e4m3 ? 8 : form->scale_bits;
    if (form->second != HC_SECOND_NONE)
        return 0;
    const int bits = form->scale == HC_SCALE_E8M0  ? 8
                     : form->scale == HC_SCALE_F16 ? 16
                     : form->scale == HC_SCALE_F32 ? 32
                                                   : 0;
    const bool is_aligned = ((uintptr_t)scales->data | (uintptr_t)scales->row_stride) % (bits / 8 + !bits) == 0;
    return is_aligned ? bits : 0;
}

/* Floats of rows are neighbours, and rows begin on 16 bytes. */
static bool has_pieces_of_16(const hc_row_view *x) {
    for (int i = 0; i < x->rows.n; i++)
        if (x->rows.stride[i] % 16 != 0)
            return false;
    return x->dtype == HC_F32 && x->column_stride == sizeof(float) && (uintptr_t)x->data % 16 == 0;
}

/* Bits of a code where codes can be read by words, and x four values at a time; then fills the table. */
static int word_bits(hc_cuda_gemv *gemv) {
    const hc_format *format = &gemv->format;
    const hc_geometry *g = &gemv->geometry;
    const hc_component *codes = &gemv->parts.part[HC_CODES];
    hc_stored_form form = hc_form_of(format);
    hc_form_fill_table(format, &form);
    for (int i = 0; i < 16 && hc_form_is_nibbles(&form); i++)
        form.table[i] = (float)(i < 8 ? i : i - 16);
    if (!(hc_form_is_nibbles(&form) || hc_form_has_table(&form) || hc_form_is_bytes(&form)) ||
        !hc_cuda_words_kernel_of(format->family, form.bits, false))
        return 0;
    const bool has_groups = gemv->lanes == 16;
    const int64_t word = has_groups || form.bits == 8 ? 8 : 4, group = has_groups ? g->group : 8;
    const bool has_words =
        g->padded <= INT32_MAX && (uintptr_t)codes->data % 8 == 0 && codes->row_stride % word == 0 &&
        (has_groups ? group * form.bits % 64 == 0 && g->run_length * form.bits % 64 == 0 : g->columns % 8 == 0);
    const hc_row_view *x = &gemv->x;
    const bool has_fours = has_pieces_of_16(x) && (g->runs == 1 || !has_groups || g->run_length % 4 == 0);
    memcpy(gemv->table, form.table, sizeof gemv->table);
    gemv->scale_bits = has_groups ? stored_scale_bits(&form, &gemv->parts.part[HC_SCALES]) : 0;
    gemv->has_16 = (uintptr_t)codes->data % 16 == 0 && codes->row_stride % 16 == 0 && g->runs == 1 &&
                   (!has_groups || g->columns == g->padded);
    return has_words && has_fours ? form.bits : 0;
}

/* x as float values, in the order that their number of rows and the format of w have. */
static hc_status plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                             void *workspace, hc_cuda_plan *plan, hc_error *error) {
    hc_geometry geometry, rows;
    hc_format whole = packed->format; /* of a pattern, kept values alone meet x */
    whole.n = whole.m = 0;
    const bool is_kept = packed->format.m > 0;
    const int last = x->ndim - 1;
    hc_status status = hc_cuda_packed_geometry(packed, &geometry, error);
    if (status == HC_OK)
        status = hc_cuda_refuse(&whole, &geometry, false, error);
    if (status == HC_OK)
        status = hc_geometry_of_axes(NULL, 1, x->ndim, x->shape, 1, &last, &rows, error);
    if (status != HC_OK)
        return status;
    if (x->dtype == HC_F64 || geometry.rows > MOST_ROWS || !has_even_rows(out) ||
        rows.columns != geometry.whole_columns || rows.rows == 0 || (is_kept && geometry.runs > 1))
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not multiply arrays of these shapes or float64: use the CPU");
    const hc_cuda_gemm to = gemm_of(out);
    const hc_format_ops *ops = hc_format_find(packed->format.family);
    if (rows.rows <= GEMV_MOST && !hc_sums_of_codes_overflow(&packed->format)) {
        const bool has_groups = ops->has_groups(&packed->format);
        hc_cuda_gemv gemv = {.format = packed->format,
                             .geometry = geometry,
                             .parts = packed->components,
                             .vectors = rows.rows,
                             .lanes = has_groups ? 16 : 8,
                             .ld = has_groups ? (int32_t)geometry.group | 1
                                   : is_kept  ? (8 / packed->format.m + 2) * packed->format.n | 1
                                              : 9,
                             .bias = bias,
                             .y = to.y,
                             .y_row = to.y_row,
                             .y_column = to.y_column};
        hc_rows_init(&gemv.x, x, &rows, 1, &last);
        if (gemv.x.rows.n > 1 || (!has_groups && geometry.runs > 1 && geometry.padded != geometry.columns))
            return hc_fail(error, HC_UNSUPPORTED,
                           "the CUDA kernels do not multiply vectors at several strides: use the CPU");
        const int bits = is_kept ? 0 : word_bits(&gemv);
        if (bits) {
            /* x of a step: what 16 bytes of codes of each lane meet, and gaps */
            const int64_t step_bytes = gemv.lanes * (16 * 8 / bits) * (int64_t)sizeof(float) / 8 * 9;
            const int64_t teams = hc_ceil_div(geometry.rows, gemv.vectors > 1 ? 1 : HC_CUDA_GEMV_ROWS);
            hc_cuda_step *step =
                hc_cuda_add_step(plan, hc_cuda_module_of(packed->format.family),
                                 hc_cuda_words_kernel_of(packed->format.family, bits, gemv.vectors > 1),
                                 hc_ceil_div(teams * gemv.lanes, HC_CUDA_MAX_THREADS), 1, HC_CUDA_MAX_THREADS,
                                 (int64_t)sizeof gemv.table + 2 * step_bytes * gemv.vectors, sizeof gemv);
            step->params.gemv = gemv;
            return HC_OK;
        }
        const int threads =
            (int)hc_min(HC_CUDA_MAX_THREADS, HC_CUDA_SHARED_BYTES / (gemv.ld * (int64_t)sizeof(float)) / 32 * 32);
        if (threads < 32)
            return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply groups of %lld values: use the CPU",
                           (long long)geometry.group);
        hc_cuda_step *step =
            hc_cuda_add_step(plan, hc_cuda_module_of(packed->format.family),
                             hc_cuda_kernel_of(packed->format.family, is_kept ? HC_CUDA_GEMV_KEPT : HC_CUDA_GEMV),
                             hc_ceil_div(geometry.rows * gemv.lanes, threads), 1, threads,
                             threads * gemv.ld * (int64_t)sizeof(float), sizeof gemv);
        step->params.gemv = gemv;
        return HC_OK;
    }
    const void *decoded;
    status = hc_cuda_decode_rows(packed, &geometry, HC_F32, workspace, plan, &decoded, error);
    if (status != HC_OK)
        return status;
    hc_cuda_sgemm sgemm = {.m = rows.rows,
                           .n = geometry.rows,
                           .k = geometry.whole_columns,
                           .w = decoded,
                           .bias = bias,
                           .y = to.y,
                           .y_row = to.y_row,
                           .y_column = to.y_column};
    hc_rows_init(&sgemm.x, x, &rows, 1, &last);
    sgemm.has_16 = sgemm.k % 4 == 0 && has_pieces_of_16(&sgemm.x);
    if (is_kept) {
        const int64_t x_tiles = hc_ceil_div(sgemm.m, SGEMM_TILE), w_tiles = hc_ceil_div(sgemm.n, SGEMM_TILE);
        hc_cuda_step *step = hc_cuda_add_step(plan, "patterns", "hc_sgemm_kept", x_tiles, w_tiles, 256,
                                              32 * (SGEMM_TILE + 2 + 2 * SGEMM_TILE) * (int64_t)sizeof(float),
                                              sizeof step->params.sgemm_kept);
        step->params.sgemm_kept =
            (hc_cuda_sgemm_kept){sgemm, packed->format, geometry, packed->components.part[HC_METADATA]};
        return HC_OK;
    }
    const int64_t x_tiles = hc_ceil_div(sgemm.m, SGEMM_TILE), w_tiles = hc_ceil_div(sgemm.n, SGEMM_TILE);
    hc_cuda_step *step = plan->device_order ? hc_cuda_add_step(plan, "floats_bf16", "hc_gemm_bf16", x_tiles, w_tiles,
                                                               128, 4 * SGEMM_TILE * STEP_BYTES, sizeof sgemm)
                                            : hc_cuda_add_step(plan, "gemm", "hc_sgemm", x_tiles, w_tiles, 256,
                                                               2 * 16 * SGEMM_TILE * 4, sizeof sgemm);
    step->params.sgemm = sgemm;
    return HC_OK;
}

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

/* Few rows, folded. */
static void add_pieces(const hc_cuda_gemm *gemm, const hc_cuda_side *w, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel;
        int rows, stages;
    } TILES[] = {{"hc_gemm_s4_16", 16, 4}, {"hc_gemm_s4_32", 32, 3}, {"hc_gemm_s4_64", 64, 2}};
    const int tile = gemm->m <= 16 ? 0 : gemm->m <= 32 ? 1 : 2, threads = 256, columns = 32;
    const int stage_bytes = TILES[tile].rows * (NIBBLES_STEP + 16) + threads * 16;
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "packed_s4", TILES[tile].kernel, hc_ceil_div(gemm->m, TILES[tile].rows), hc_ceil_div(gemm->n, columns),
        threads, hc_max(stage_bytes * TILES[tile].stages, threads * TILES[tile].rows), sizeof step->params.gemm_s4);
    step->params.gemm_s4 = gemm_s4_of(gemm, w, NULL);
}

static bool takes_warpgroups(const hc_cuda_gemm *gemm, const hc_cuda_plan *plan) {
    return plan->architecture == HC_CUDA_HOPPER && gemm->m >= HOPPER_ROWS;
}

/* A block of 256 columns reads 3/4 of the bytes per product of one of 128, and takes 8/5 of its time, as shared memory holds both
 * up: 96 KiB against 160 KiB per 128 bytes of k. It is chosen unless its blocks fill the last round too badly. */
static hc_cuda_step *add_warpgroups(const hc_cuda_gemm *gemm, bool is_nibbles, hc_cuda_plan *plan, int params_bytes) {
    static const char *const KERNELS[][3] = {
        {"hc_gemm_90a_folded", "hc_gemm_90a_grouped", "hc_gemm_90a_folded_256"},
        {"hc_gemm_90a_nibbles_folded", "hc_gemm_90a_nibbles_grouped", "hc_gemm_90a_nibbles_folded_256"}};
    const bool is_folded = gemm->mode == HC_INT_FOLDED;
    const int64_t rows = hc_ceil_div(gemm->m, HOPPER_ROWS);
    const int at_once = plan->multiprocessors ? plan->multiprocessors : H100_MULTIPROCESSORS; /* a block each */
    const int64_t narrow = hc_ceil_div(rows * hc_ceil_div(gemm->n, 128), at_once);
    const int64_t wide = hc_ceil_div(rows * hc_ceil_div(gemm->n, 256), at_once);
    const bool is_wide = is_folded && wide * 8 <= narrow * 5;
    const int columns = is_wide ? 256 : 128, side = columns * HOPPER_STEP;
    const int places = !is_nibbles ? 0 : is_folded ? 3 : 2; /* of decoded stages */
    const int stage = HOPPER_ROWS * HOPPER_STEP + (is_nibbles ? 0 : side);
    return hc_cuda_add_step(plan, "warpgroup_90a", KERNELS[is_nibbles][is_wide ? 2 : gemm->mode], rows,
                            hc_ceil_div(gemm->n, columns), 256, HOPPER_STAGES * stage + places * side, params_bytes);
}

static void add_nibbles(const hc_cuda_gemm *gemm, const hc_cuda_side *w, const float *scales, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel;
        int rows, columns, threads, stages;
    } TILES[] = {{"hc_gemm_nibbles_16_grouped", 16, 64, 128, 6},
                 {"hc_gemm_nibbles_64_grouped", 64, 64, 128, 4},
                 {"hc_gemm_nibbles_128_grouped", 128, 128, 256, 3},
                 {"hc_gemm_nibbles_128_folded", 128, 128, 256, 3}};
    const int tile = gemm->mode == HC_INT_FOLDED ? 3 : gemm->m <= 16 ? 0 : gemm->m <= 64 ? 1 : 2;
    const int rows = TILES[tile].rows, columns = TILES[tile].columns;
    hc_cuda_step *step = takes_warpgroups(gemm, plan)
                             ? add_warpgroups(gemm, true, plan, sizeof step->params.gemm_s4)
                             : hc_cuda_add_step(plan, "nibbles", TILES[tile].kernel, hc_ceil_div(gemm->m, rows),
                                                hc_ceil_div(gemm->n, columns), TILES[tile].threads,
                                                (rows * STEP_BYTES + columns * (STEP_BYTES / 2)) * TILES[tile].stages,
                                                sizeof step->params.gemm_s4);
    step->params.gemm_s4 = gemm_s4_of(gemm, w, scales);
}

/* L2 limits these tiles: the one whose blocks read the fewest bytes, wave by wave. */
static hc_cuda_step *add_warpgroups_24(const hc_cuda_gemm *gemm, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel;
        int w_rows, x_rows, stages;
    } TILES[] = {{"hc_gemm_90a_24_64x16_folded", 64, 16, 8},     {"hc_gemm_90a_24_64x64_folded", 64, 64, 12},
                 {"hc_gemm_90a_24_64x128_folded", 64, 128, 8},   {"hc_gemm_90a_24_128x128_folded", 128, 128, 7},
                 {"hc_gemm_90a_24_256x128_folded", 256, 128, 6}, {"hc_gemm_90a_24_256x192_folded", 256, 192, 5}};
    const int at_once = plan->multiprocessors ? plan->multiprocessors : H100_MULTIPROCESSORS; /* a block each */
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

static void add_24(const hc_cuda_gemm *gemm, const uint32_t *places, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int x_rows, stages;
    } TILES[] = {{{"hc_gemm_24_16_folded", "hc_gemm_24_16_grouped"}, 16, 3},
                 {{"hc_gemm_24_64_folded", "hc_gemm_24_64_grouped"}, 64, 2}};
    if (gemm->mode == HC_INT_FOLDED && plan->architecture == HC_CUDA_HOPPER) {
        add_warpgroups_24(gemm, plan)->params.gemm_24 = (hc_cuda_gemm_24){*gemm, places};
        return;
    }
    const int tile = gemm->m > 16, w_rows = 128, w_bytes = SPARSE_STEP / 2 + SPARSE_STEP / 8;
    const int stage_bytes = w_rows * w_bytes + TILES[tile].x_rows * SPARSE_STEP;
    hc_cuda_step *step = hc_cuda_add_step(plan, "sparse_24", TILES[tile].kernel[gemm->mode],
                                          hc_ceil_div(gemm->m, TILES[tile].x_rows), hc_ceil_div(gemm->n, w_rows), 128,
                                          stage_bytes * TILES[tile].stages, sizeof step->params.gemm_24);
    step->params.gemm_24 = (hc_cuda_gemm_24){*gemm, places};
}

/* The tile of integers for so many rows. */
static void add_gemm(const hc_cuda_gemm *gemm, bool is_wide, hc_cuda_plan *plan) {
    if (!is_wide && takes_warpgroups(gemm, plan)) {
        add_warpgroups(gemm, false, plan, sizeof *gemm)->params.gemm = *gemm;
        return;
    }
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int rows, columns, threads, stages; /* of all limbs */
    } TILES[] = {{{"hc_gemm_s8_16_folded", "hc_gemm_s8_16_grouped"}, 16, 128, 128, 3},
                 {{"hc_gemm_s8_64_folded", "hc_gemm_s8_64_grouped"}, 64, 64, 128, 3},
                 {{"hc_gemm_s8_128_folded", "hc_gemm_s8_128_grouped"}, 128, 128, 256, 3},
                 {{"hc_gemm_wide_folded", "hc_gemm_wide_grouped"}, 16, 32, 128, 2}};
    const int tile = is_wide ? 3 : gemm->m <= 16 ? 0 : gemm->m < 128 ? 1 : 2;
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "gemm", TILES[tile].kernel[gemm->mode], hc_ceil_div(gemm->m, TILES[tile].rows),
        hc_ceil_div(gemm->n, TILES[tile].columns), TILES[tile].threads,
        (gemm->x_limbs * TILES[tile].rows + gemm->w_limbs * TILES[tile].columns) * STEP_BYTES * TILES[tile].stages,
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
        return plan_floats(x->dense, packed, bias, out, workspace, plan, error);
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
    if (w.geometry.rows > MOST_ROWS || !has_even_rows(out) || !has_room || !has_offsets)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    const bool is_few =
        form.mode == HC_INT_FOLDED && !form.is_wide && a.geometry.rows <= NIBBLES_MOST && reads_pieces(&w);
    hc_cuda_gemm gemm = gemm_of(out);
    gemm.m = a.geometry.rows;
    gemm.n = w.geometry.rows;
    gemm.mode = form.mode;
    gemm.segments = form.segments;
    gemm.length = form.length;
    gemm.ld = is_few ? hc_round_up(form.length, NIBBLES_STEP) : form.ld;
    gemm.bias = form.has_minima ? NULL : bias;
    gemm.x_limbs = a.form[form.mode].n_limbs;
    gemm.w_limbs = w.form[form.mode].n_limbs;
    if (x->packed)
        a.parts = x->packed->components;
    const bool x_is_there = form.mode == HC_INT_FOLDED && !form.is_wide && !is_few &&
                            hc_cuda_is_stored_as_integers(&a, x->packed != NULL, gemm.ld);
    hc_cuda_made made = {.integers = NULL};
    const bool is_made = !is_few && !hc_cuda_find_prepacked(packed, &w, &form, &made);
    if (is_made)
        hc_cuda_lay_out(&w, &form, NULL, &made);
    hc_cuda_state *state = hc_cuda_reserve(workspace, plan, sizeof *state);
    uint32_t *row_maxima = hc_cuda_reserve(workspace, plan, gemm.m * (int64_t)sizeof *row_maxima);
    const int64_t x_bytes = x_is_there ? 0 : gemm.x_limbs * gemm.m * gemm.ld;
    const bool x_is_whole = a.geometry.columns == gemm.ld && a.format.m == 0; /* no zeros lie between its integers */
    int8_t *x_integers = x_is_whole ? NULL : hc_cuda_reserve(workspace, plan, x_bytes);
    const int64_t before = plan->workspace_bytes;
    if (is_made)
        hc_cuda_lay_out(&w, &form, hc_cuda_reserve(workspace, plan, made.bytes), &made);
    hc_cuda_add_clear(plan, state, before + (is_made ? made.cleared : 0));
    if (x_is_whole)
        x_integers = hc_cuda_reserve(workspace, plan, x_bytes);
    float *x_scales = hc_cuda_reserve(workspace, plan, gemm.m * gemm.segments * (int64_t)sizeof(float));
    gemm.x = x_integers;
    gemm.x_scales = x_scales;
    if (x_is_there && !x->packed) {
        const hc_cuda_result result = {.parts = &a.parts};
        hc_cuda_reserve_parts(&a.format, &a.geometry, workspace, plan, &a.parts);
        status = hc_cuda_add_quantize(x->dense, NULL, &a.format, &a.geometry, 1, &last, &result, state, row_maxima,
                                      plan, error);
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
                                         .for_nibbles = is_few,
                                         .integers = x_integers,
                                         .scales = x_scales};
        status = x->packed ? hc_cuda_add_integers(&a, to, plan, error)
                           : hc_cuda_add_quantized_integers(&a, x->dense, 1, &last, to, state, row_maxima, plan, error);
    }
    if (status == HC_OK && is_made)
        status = hc_cuda_add_weights(&w, &form, &made, plan, error);
    if (status != HC_OK)
        return status;
    gemm.w = made.integers;
    gemm.w_scales = made.scales;
    if (is_few)
        add_pieces(&gemm, &w, plan);
    else if (form.kind == HC_CUDA_NIBBLES)
        add_nibbles(&gemm, &w, made.scales, plan);
    else if (form.kind == HC_CUDA_24)
        add_24(&gemm, made.places, plan);
    else {
        if (form.kind == HC_CUDA_STORED) {
            gemm.w = (const int8_t *)w.parts.part[HC_CODES].data;
            gemm.w_scales = (const float *)w.parts.part[HC_SCALES].data;
        }
        add_gemm(&gemm, form.is_wide, plan);
    }
    if (form.has_minima)
        add_minima(&gemm, bias, made.minima, plan);
    return HC_OK;
}
