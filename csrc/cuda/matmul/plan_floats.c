/* Steps of a matmul of float values with packed weights: few rows of x meet codes, more meet decoded values. */
#include "cuda/matmul/plans.h"
#include "cuda/weights.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

enum { GEMV_MOST = 8, BF16_FEW = 64, FLOATS_COLUMNS = 512 };

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
        !hc_cuda_words_kernel_of(format->family, form.bits, HC_CUDA_ONE_VECTOR))
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

/* The kernel of the tile that ends first: rounds of blocks on the multiprocessors, by the time of one, in microseconds of an H200 with
 * 8,192 columns. */
static hc_cuda_step *add_chains(const hc_cuda_sgemm *sgemm, bool is_kept, hc_cuda_plan *plan) {
    static const struct {
        const char *kernel, *kept; /* NULL: there is none */
        int rows, columns, threads, k, stages, time;
    } TILES[] = {{"hc_sgemm_16", NULL, 16, 64, 128, 32, 5, 150},
                 {"hc_sgemm_32", "hc_sgemm_kept_32", 32, 64, 128, 32, 4, 205},
                 {"hc_sgemm_64", NULL, 64, 64, 256, 32, 4, 260},
                 {"hc_sgemm_128", "hc_sgemm_kept_128", 128, 128, 256, 16, 4, 838}};
    const int at_once = hc_cuda_multiprocessors_of(plan);
    int64_t least = INT64_MAX;
    int best = 0;
    for (int i = 0; i < (int)(sizeof TILES / sizeof TILES[0]); i++) {
        const int64_t blocks = hc_ceil_div(sgemm->m, TILES[i].rows) * hc_ceil_div(sgemm->n, TILES[i].columns);
        const int64_t time = hc_ceil_div(blocks, at_once) * TILES[i].time;
        if (time < least && (TILES[i].kept || !is_kept)) {
            least = time;
            best = i;
        }
    }
    const int64_t stage = (TILES[best].rows + TILES[best].columns) * (TILES[best].k + 4) * (int64_t)sizeof(float);
    return hc_cuda_add_step(plan, is_kept ? "patterns" : "floats", is_kept ? TILES[best].kept : TILES[best].kernel,
                            hc_ceil_div(sgemm->m, TILES[best].rows), hc_ceil_div(sgemm->n, TILES[best].columns),
                            TILES[best].threads, TILES[best].stages * stage, sizeof *sgemm);
}

static hc_cuda_step *add_bf16(const hc_cuda_sgemm *sgemm, hc_cuda_plan *plan) {
    const bool has_few = sgemm->m <= BF16_FEW;
    const int rows = has_few ? 32 : 128, columns = has_few ? 64 : 128, step_bytes = has_few ? 128 : 64; /* both parts */
    return hc_cuda_add_step(plan, "floats_bf16", has_few ? "hc_gemm_bf16_32" : "hc_gemm_bf16_128",
                            hc_ceil_div(sgemm->m, rows), hc_ceil_div(sgemm->n, columns), has_few ? 128 : 256,
                            hc_max(2 * (rows + columns) * step_bytes, rows * (columns + 8) * (int)sizeof(float)),
                            sizeof *sgemm);
}

/* Bits of a code of a pattern 2:4 where it can be read by words, and x whole from shared memory, of so many bytes. */
static int kept_word_bits(const hc_cuda_gemv *gemv, int64_t x_bytes) {
    const hc_format *format = &gemv->format;
    const hc_geometry *g = &gemv->geometry;
    const hc_stored_form form = hc_form_of(format);
    const hc_component *codes = &gemv->parts.part[HC_CODES], *places = &gemv->parts.part[HC_METADATA];
    if (format->n != 2 || format->m != 4 || !(hc_form_is_nibbles(&form) || hc_form_is_bytes(&form)) ||
        !hc_cuda_words_kernel_of(format->family, form.bits, HC_CUDA_KEPT_WORDS))
        return 0;
    const bool is_whole = gemv->lanes == 16 ? g->group * form.bits % 32 == 0 && g->run_length % g->group == 0 &&
                                                  g->whole_length == 2 * g->run_length
                                            : g->whole_length % 64 == 0;
    const bool is_aligned = ((uintptr_t)codes->data | (uintptr_t)codes->row_stride) % 4 == 0 &&
                            ((uintptr_t)places->data | (uintptr_t)places->row_stride) % 2 == 0;
    return is_whole && is_aligned && x_bytes <= HC_CUDA_LARGE_SHARED_BYTES && has_pieces_of_16(&gemv->x) ? form.bits
                                                                                                         : 0;
}

hc_status hc_cuda_plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
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
    if (x->dtype == HC_F64 || geometry.rows > HC_CUDA_MOST_ROWS || !hc_cuda_has_even_rows(out) ||
        rows.columns != geometry.whole_columns || rows.rows == 0 || (is_kept && geometry.runs > 1))
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not multiply arrays of these shapes or float64: use the CPU");
    const hc_cuda_gemm to = hc_cuda_gemm_of(out);
    if (rows.rows <= GEMV_MOST && !hc_sums_of_codes_overflow(&packed->format)) {
        const bool has_groups = hc_has_groups(&packed->format);
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
            /* a stage: 16 bytes of codes of each thread and row, and x that those of a team meet, with gaps */
            const int threads = HC_CUDA_GEMV_THREADS, rows_at_once = gemv.vectors > 1 ? 1 : HC_CUDA_GEMV_ROWS;
            const int64_t x_bytes = gemv.lanes * (16 * 8 / bits) * (int64_t)sizeof(float) / 8 * 9;
            const int64_t stage_bytes = x_bytes * gemv.vectors + threads * 16 * rows_at_once;
            const int64_t teams = hc_ceil_div(geometry.rows, rows_at_once);
            hc_cuda_step *step = hc_cuda_add_step(
                plan, hc_cuda_module_of(packed->format.family),
                hc_cuda_words_kernel_of(packed->format.family, bits,
                                        gemv.vectors > 1 ? HC_CUDA_VECTORS : HC_CUDA_ONE_VECTOR),
                hc_ceil_div(teams * gemv.lanes, threads), 1, threads,
                (int64_t)sizeof gemv.table + HC_CUDA_GEMV_STAGES(gemv.vectors) * stage_bytes, sizeof gemv);
            step->params.gemv = gemv;
            return HC_OK;
        }
        const int64_t x_bytes = geometry.whole_columns * (int64_t)sizeof(float) / 8 * 9;
        const int kept_bits = is_kept ? kept_word_bits(&gemv, x_bytes) : 0;
        if (kept_bits) {
            hc_cuda_step *step =
                hc_cuda_add_step(plan, hc_cuda_module_of(packed->format.family),
                                 hc_cuda_words_kernel_of(packed->format.family, kept_bits, HC_CUDA_KEPT_WORDS),
                                 hc_ceil_div(geometry.rows * gemv.lanes, HC_CUDA_GEMV_THREADS), gemv.vectors,
                                 HC_CUDA_GEMV_THREADS, x_bytes, sizeof gemv);
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
    const void *decoded = NULL;
    if (is_kept) {
        const uint32_t absent = HC_CUDA_ABSENT;
        const int along = 1;
        hc_view every = {.dtype = HC_F32, .ndim = 2, .shape = {geometry.rows, geometry.whole_columns}};
        float between;
        memcpy(&between, &absent, sizeof between);
        every.strides[1] = sizeof(float);
        every.strides[0] = every.shape[1] * every.strides[1];
        every.data = hc_cuda_reserve(workspace, plan, every.shape[0] * every.strides[0]);
        decoded = every.data;
        status = hc_cuda_add_decode_kept(packed, &geometry, between, &every, 1, &along, workspace, plan, error);
    } else {
        status = hc_cuda_decode_rows(packed, &geometry, HC_F32, workspace, plan, &decoded, error);
    }
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
    if (sgemm.x.rows.n > 1 || !has_pieces_of_16(&sgemm.x)) {
        hc_cuda_floats floats = {.k = sgemm.k, .x = sgemm.x};
        const int64_t row_bytes = sgemm.k * (int64_t)sizeof(float);
        floats.to = hc_cuda_reserve(workspace, plan, sgemm.m * row_bytes);
        hc_cuda_add_step(plan, "floats", "hc_floats", sgemm.m, hc_ceil_div(sgemm.k, FLOATS_COLUMNS),
                         HC_CUDA_MAX_THREADS, 0, sizeof floats)
            ->params.floats = floats;
        sgemm.x = (hc_row_view){.data = (char *)floats.to, .dtype = HC_F32, .column_stride = sizeof(float)};
        sgemm.x.rows = (hc_dims){.n = 1, .shape = {sgemm.m}, .stride = {row_bytes}};
    }
    sgemm.has_16 = sgemm.k % 4 == 0;
    hc_cuda_step *step = plan->device_order && !is_kept ? add_bf16(&sgemm, plan) : add_chains(&sgemm, is_kept, plan);
    step->params.sgemm = sgemm;
    return HC_OK;
}
