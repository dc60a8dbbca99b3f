/* Steps of a matmul: both sides become rows of integers, or w stays packed, or x meets float values (cuda/hc_cuda.h). */
#include "cuda/sides.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

enum { NIBBLES_MOST = 64, NIBBLES_STEP = 256 /* codes of a stage */ };
enum { GEMV_MOST = 8, SGEMM_TILE = 64 };
enum { MOST_ROWS = 65535 * 32 /* of w: the second size of a grid times the fewest columns of a block */ };
enum { STEP_BYTES = 64, PITCH = 80, K_BYTES = 32 /* of an mma */ };
enum { HOPPER_TILE = 128, HOPPER_LEAST = 128 /* rows */ };
enum { SPARSE_STEP = 128, SPARSE_K = 64 /* columns, of a stage and of a sparse mma */ };

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
        (uintptr_t)codes->data % 8 == 0 && codes->row_stride % word == 0 &&
        (has_groups ? group * form.bits % 64 == 0 && g->run_length * form.bits % 64 == 0 : g->columns % 8 == 0);
    const hc_row_view *x = &gemv->x;
    const bool has_fours = x->dtype == HC_F32 && x->column_stride == sizeof(float) && (uintptr_t)x->data % 16 == 0 &&
                           x->rows.stride[0] % 16 == 0 && (g->runs == 1 || !has_groups || g->run_length % 4 == 0);
    memcpy(gemv->table, form.table, sizeof gemv->table);
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
    if (rows.rows <= GEMV_MOST) {
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
            hc_cuda_step *step =
                hc_cuda_add_step(plan, hc_cuda_module_of(packed->format.family),
                                 hc_cuda_words_kernel_of(packed->format.family, bits, gemv.vectors > 1),
                                 hc_ceil_div(geometry.rows * gemv.lanes, HC_CUDA_MAX_THREADS), 1, HC_CUDA_MAX_THREADS,
                                 sizeof gemv.table, sizeof gemv);
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
    const float *decoded;
    status = hc_cuda_decode_rows(packed, &geometry, workspace, plan, &decoded, error);
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
    if (is_kept) {
        const int64_t x_tiles = hc_ceil_div(sgemm.m, 32), w_tiles = hc_ceil_div(sgemm.n, SGEMM_TILE);
        hc_cuda_step *step = hc_cuda_add_step(plan, "patterns", "hc_sgemm_kept", x_tiles, w_tiles, 256,
                                              SGEMM_TILE * 33 * (int64_t)sizeof(float), sizeof step->params.sgemm_kept);
        step->params.sgemm_kept =
            (hc_cuda_sgemm_kept){sgemm, packed->format, geometry, packed->components.part[HC_METADATA]};
        return HC_OK;
    }
    const int64_t x_tiles = hc_ceil_div(sgemm.m, SGEMM_TILE), w_tiles = hc_ceil_div(sgemm.n, SGEMM_TILE);
    hc_cuda_step *step = plan->device_order ? hc_cuda_add_step(plan, "floats_bf16", "hc_gemm_bf16", x_tiles, w_tiles,
                                                               128, 4 * SGEMM_TILE * PITCH, sizeof sgemm)
                                            : hc_cuda_add_step(plan, "gemm", "hc_sgemm", x_tiles, w_tiles, 256,
                                                               2 * 16 * (SGEMM_TILE + 4) * 4, sizeof sgemm);
    step->params.sgemm = sgemm;
    return HC_OK;
}

/* Rows that hc_gemm_s4 reads as they are stored: whole pieces of 16 bytes. */
static bool reads_nibbles(const hc_cuda_side *w) {
    const hc_stored_form form = hc_form_of(&w->format);
    const hc_component *codes = &w->parts.part[HC_CODES];
    const bool has_group_scales = hc_form_has_nibble_scales(&form) && w->geometry.group == 16;
    const bool has_row_scales = hc_form_has_f32_scales(&form) && w->format.group == 0;
    return hc_form_is_nibbles(&form) && (has_group_scales || has_row_scales) && w->geometry.runs == 1 &&
           w->geometry.columns % 32 == 0 && codes->row_stride % 16 == 0 && (uintptr_t)codes->data % 16 == 0;
}

/* True if the stored rows equal the output of hc_cuda_add_integers: bytes with a sign, a float32 scale per row, rows of ld
 * bytes. Without parts the rows will be in the workspace. */
static bool is_stored_as_integers(const hc_cuda_side *side, bool has_parts, int64_t ld) {
    const hc_stored_form form = hc_form_of(&side->format);
    const hc_component *codes = &side->parts.part[HC_CODES], *scales = &side->parts.part[HC_SCALES];
    return hc_form_is_bytes(&form) && hc_form_has_f32_scales(&form) && side->format.group == 0 && side->format.m == 0 &&
           side->geometry.runs == 1 && side->geometry.columns == ld &&
           (!has_parts || (codes->row_stride == ld && (uintptr_t)codes->data % 16 == 0 &&
                           scales->row_stride == sizeof(float) && (uintptr_t)scales->data % sizeof(float) == 0));
}

static void add_nibbles(const hc_cuda_gemm *gemm, const hc_cuda_side *w, hc_cuda_plan *plan) {
    const hc_component *parts = w->parts.part, *row_scales = &parts[w->format.group ? HC_COARSE : HC_SCALES];
    const hc_cuda_gemm_s4 p = {.m = gemm->m,
                               .n = gemm->n,
                               .ld = gemm->ld,
                               .w_row_bytes = w->geometry.columns / 2,
                               .x = gemm->x,
                               .w = parts[HC_CODES].data,
                               .group_scales = w->format.group ? parts[HC_SCALES].data : NULL,
                               .w_stride = parts[HC_CODES].row_stride,
                               .group_scales_stride = parts[HC_SCALES].row_stride,
                               .w_scales_stride = row_scales->row_stride,
                               .x_scales = gemm->x_scales,
                               .bias = gemm->bias,
                               .w_scales = (const char *)row_scales->data,
                               .y = gemm->y,
                               .y_row = gemm->y_row,
                               .y_column = gemm->y_column};
    static const struct {
        const char *kernel;
        int rows, stages;
    } TILES[] = {{"hc_gemm_s4_16", 16, 4}, {"hc_gemm_s4_32", 32, 3}, {"hc_gemm_s4_64", 64, 2}};
    const int tile = p.m <= 16 ? 0 : p.m <= 32 ? 1 : 2, threads = 256, columns = 32;
    const int stage_bytes = TILES[tile].rows * (NIBBLES_STEP + 16) + threads * 16;
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "packed_s4", TILES[tile].kernel, hc_ceil_div(p.m, TILES[tile].rows), hc_ceil_div(p.n, columns), threads,
        hc_max(stage_bytes * TILES[tile].stages, threads * TILES[tile].rows), sizeof p);
    step->params.gemm_s4 = p;
}

static void add_24(const hc_cuda_gemm *gemm, const uint32_t *places, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int x_rows, stages;
    } TILES[] = {{{"hc_gemm_24_16_folded", "hc_gemm_24_16_grouped"}, 16, 3},
                 {{"hc_gemm_24_64_folded", "hc_gemm_24_64_grouped"}, 64, 2}};
    const int tile = gemm->m > 16, w_rows = 128, w_bytes = SPARSE_STEP / 2 + 16 + SPARSE_STEP / 8;
    const int stage_bytes = w_rows * w_bytes + TILES[tile].x_rows * (SPARSE_STEP + 16);
    hc_cuda_step *step = hc_cuda_add_step(plan, "sparse_24", TILES[tile].kernel[gemm->mode],
                                          hc_ceil_div(gemm->m, TILES[tile].x_rows), hc_ceil_div(gemm->n, w_rows), 128,
                                          stage_bytes * TILES[tile].stages, sizeof step->params.gemm_24);
    step->params.gemm_24 = (hc_cuda_gemm_24){*gemm, places};
}

/* The tile of integers for so many rows. */
static void add_gemm(const hc_cuda_gemm *gemm, bool is_wide, hc_cuda_plan *plan) {
    if (!is_wide && plan->architecture == HC_CUDA_HOPPER && gemm->m >= HOPPER_LEAST) {
        static const char *const KERNELS[] = {"hc_gemm_90a_folded", "hc_gemm_90a_grouped"};
        hc_cuda_step *step =
            hc_cuda_add_step(plan, "warpgroup_90a", KERNELS[gemm->mode], hc_ceil_div(gemm->m, HOPPER_TILE),
                             hc_ceil_div(gemm->n, HOPPER_TILE), 256, 4 * 2 * HOPPER_TILE * 128, sizeof *gemm);
        step->params.gemm = *gemm;
        return;
    }
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int rows, columns, threads, stages; /* wide: one stage of all limbs */
    } TILES[] = {{{"hc_gemm_s8_16_folded", "hc_gemm_s8_16_grouped"}, 16, 128, 128, 3},
                 {{"hc_gemm_s8_64_folded", "hc_gemm_s8_64_grouped"}, 64, 64, 128, 3},
                 {{"hc_gemm_s8_128_folded", "hc_gemm_s8_128_grouped"}, 128, 128, 256, 3},
                 {{"hc_gemm_wide_folded", "hc_gemm_wide_grouped"}, 16, 32, 128, 1}};
    const int tile = is_wide ? 3 : gemm->m <= 16 ? 0 : gemm->m < 128 ? 1 : 2;
    hc_cuda_step *step = hc_cuda_add_step(
        plan, "gemm", TILES[tile].kernel[gemm->mode], hc_ceil_div(gemm->m, TILES[tile].rows),
        hc_ceil_div(gemm->n, TILES[tile].columns), TILES[tile].threads,
        (gemm->x_limbs * TILES[tile].rows + gemm->w_limbs * TILES[tile].columns) * PITCH * TILES[tile].stages,
        sizeof *gemm);
    step->params.gemm = *gemm;
}

/* After a gemm without bias. */
static void add_minima(const hc_cuda_gemm *gemm, const hc_cuda_side *w, int64_t group, const float *bias, float *minima,
                       hc_cuda_plan *plan) {
    hc_cuda_step *step = hc_cuda_add_step(plan, hc_cuda_module_of(w->format.family), "hc_minima_ggml",
                                          hc_ceil_div(gemm->n * gemm->segments, HC_CUDA_MAX_THREADS), 1,
                                          HC_CUDA_MAX_THREADS, 0, sizeof step->params.minima);
    step->params.minima = (hc_cuda_minima){w->format, w->geometry, w->parts, gemm->segments, group, minima};
    step =
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
    hc_cuda_side a = {.format = x->packed ? x->packed->format : *activations}, w = {.format = packed->format};
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
    if (status != HC_OK)
        return status;
    w.parts = packed->components;
    const hc_int_mode mode =
        a.form[HC_INT_FOLDED].available && w.form[HC_INT_FOLDED].available ? HC_INT_FOLDED : HC_INT_GROUPED;
    const int64_t group = mode == HC_INT_FOLDED ? 0 : hc_cuda_segment_of(&a, &w);
    const bool has_minima = w.form[mode].has_minima;
    if (!a.form[mode].available || !w.form[mode].available || a.form[mode].has_minima ||
        (has_minima && (w.geometry.runs > 1 || w.format.m > 0)))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply these two formats: use the CPU");
    if (group < 0 || (group && (hc_cuda_cuts_blocks(&a, group) || hc_cuda_cuts_blocks(&w, group))) ||
        w.geometry.rows > MOST_ROWS || a.geometry.whole_columns != w.geometry.whole_columns ||
        (group && a.geometry.runs != w.geometry.runs) || !has_even_rows(out))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    const int64_t columns = group ? group : a.geometry.whole_columns;
    const int x_limbs = a.form[mode].n_limbs, w_limbs = w.form[mode].n_limbs;
    const int64_t most = (int64_t)a.form[mode].max_abs * w.form[mode].max_abs;
    if (columns > INT64_MAX / most)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not add %lld products in 64 bits: use the CPU",
                       (long long)columns);
    const bool is_wide = x_limbs > 1 || w_limbs > 1 || columns > INT32_MAX / most;
    const int64_t segments = group ? w.geometry.runs * hc_ceil_div(w.geometry.whole_length, group) : 1;
    if (has_minima && segments > HC_CUDA_SHARED_BYTES / (int64_t)sizeof(float))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not add minima of %lld groups: use the CPU",
                       (long long)segments);
    hc_cuda_gemm gemm = gemm_of(out);
    gemm.m = a.geometry.rows;
    gemm.n = w.geometry.rows;
    gemm.mode = mode;
    gemm.segments = segments;
    const bool is_packed = mode == HC_INT_FOLDED && !is_wide && gemm.m <= NIBBLES_MOST && reads_nibbles(&w);
    const bool is_24 = !is_wide && w.format.n == 2 && w.format.m == 4 && w.geometry.runs == 1;
    gemm.length = (int32_t)hc_round_up(columns, is_24 ? SPARSE_K : K_BYTES);
    gemm.ld = hc_round_up(segments * gemm.length, is_packed ? NIBBLES_STEP : is_24 ? SPARSE_STEP : STEP_BYTES);
    gemm.bias = has_minima ? NULL : bias;
    gemm.x_limbs = x_limbs;
    gemm.w_limbs = w_limbs;
    if (x->packed)
        a.parts = x->packed->components;
    const bool is_one_chain = mode == HC_INT_FOLDED && !is_wide;
    const bool x_is_there = is_one_chain && !is_packed && is_stored_as_integers(&a, x->packed != NULL, gemm.ld);
    const bool w_is_there = is_one_chain && is_stored_as_integers(&w, true, gemm.ld);
    hc_cuda_state *state = hc_cuda_reserve(workspace, plan, sizeof *state);
    uint32_t *row_maxima = hc_cuda_reserve(workspace, plan, gemm.m * (int64_t)sizeof *row_maxima);
    int8_t *x_integers = hc_cuda_reserve(workspace, plan, x_is_there ? 0 : x_limbs * gemm.m * gemm.ld);
    int8_t *w_integers = hc_cuda_reserve(workspace, plan,
                                         is_packed || w_is_there ? 0
                                         : is_24                 ? gemm.n * (gemm.ld / 2)
                                                                 : w_limbs * gemm.n * gemm.ld);
    uint32_t *places = is_24 ? hc_cuda_reserve(workspace, plan, gemm.n * (gemm.ld / 8)) : NULL;
    hc_cuda_add_clear(plan, state, plan->workspace_bytes);
    float *x_scales = hc_cuda_reserve(workspace, plan, gemm.m * segments * (int64_t)sizeof(float));
    float *w_scales = hc_cuda_reserve(workspace, plan, gemm.n * segments * (int64_t)sizeof(float));
    float *minima = has_minima ? hc_cuda_reserve(workspace, plan, gemm.n * segments * (int64_t)sizeof(float)) : NULL;
    gemm.x = x_integers;
    gemm.w = w_integers;
    gemm.x_scales = x_scales;
    gemm.w_scales = w_scales;
    if (!x->packed) {
        hc_cuda_reserve_parts(&a.format, &a.geometry, workspace, plan, &a.parts);
        status = hc_cuda_add_quantize(x->dense, NULL, &a.format, &a.geometry, 1, &last, &a.parts, NULL, state,
                                      row_maxima, plan, error);
    }
    const hc_cuda_integers integers = {
        .mode = mode, .group = group, .segments = segments, .length = gemm.length, .ld = gemm.ld};
    if (x_is_there) {
        gemm.x = (const int8_t *)a.parts.part[HC_CODES].data;
        gemm.x_scales = (const float *)a.parts.part[HC_SCALES].data;
    } else if (status == HC_OK) {
        hc_cuda_integers of_x = integers;
        of_x.for_nibbles = is_packed;
        of_x.integers = x_integers;
        of_x.scales = x_scales;
        status = hc_cuda_add_integers(&a, of_x, plan, error);
    }
    if (status == HC_OK && is_packed) {
        add_nibbles(&gemm, &w, plan);
        return HC_OK;
    }
    if (w_is_there) {
        gemm.w = (const int8_t *)w.parts.part[HC_CODES].data;
        gemm.w_scales = (const float *)w.parts.part[HC_SCALES].data;
    } else if (status == HC_OK) {
        hc_cuda_integers of_w = integers;
        of_w.integers = w_integers;
        of_w.metadata = places;
        of_w.scales = w_scales;
        status = hc_cuda_add_integers(&w, of_w, plan, error);
    }
    if (status != HC_OK)
        return status;
    if (is_24) {
        add_24(&gemm, places, plan);
        return HC_OK;
    }
    add_gemm(&gemm, is_wide, plan);
    if (has_minima)
        add_minima(&gemm, &w, group, bias, minima, plan);
    return HC_OK;
}
