/* Steps of a matmul of float values with packed weights: few rows of x meet codes, more meet decoded values. */
#include "cuda/formats/families.h"
#include "cuda/matmul/plans.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

enum { GEMV_MOST = 8, FLOATS_COLUMNS = 512, UNIT = 1024 /* columns of a count of rounds */ };

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
        !hc_cuda_words_kernel_of(format, form.bits, HC_CUDA_ONE_VECTOR).name)
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

/* Bits of a code of a pattern 2:4 where it can be read by words, and x whole from shared memory, of so many bytes. */
static int kept_word_bits(const hc_cuda_gemv *gemv, int64_t x_bytes) {
    const hc_format *format = &gemv->format;
    const hc_geometry *g = &gemv->geometry;
    const hc_stored_form form = hc_form_of(format);
    const hc_component *codes = &gemv->parts.part[HC_CODES], *places = &gemv->parts.part[HC_METADATA];
    if (format->n != 2 || format->m != 4 || !(hc_form_is_nibbles(&form) || hc_form_is_bytes(&form)) ||
        !hc_cuda_words_kernel_of(format, form.bits, HC_CUDA_KEPT_WORDS).name)
        return 0;
    const bool is_whole = gemv->lanes == 16 ? g->group * form.bits % 32 == 0 && g->run_length % g->group == 0 &&
                                                  g->whole_length == 2 * g->run_length
                                            : g->whole_length % 64 == 0;
    const bool is_aligned = ((uintptr_t)codes->data | (uintptr_t)codes->row_stride) % 4 == 0 &&
                            ((uintptr_t)places->data | (uintptr_t)places->row_stride) % 2 == 0;
    return is_whole && is_aligned && x_bytes <= HC_CUDA_LARGE_SHARED_BYTES && has_pieces_of_16(&gemv->x) ? form.bits
                                                                                                         : 0;
}

static int64_t kept_x_bytes(const hc_cuda_product *p) { return p->columns * (int64_t)sizeof(float) / 8 * 9; }

/* Codes that vectors meet. */
static hc_cuda_work gemv_work(const hc_cuda_product *p) {
    return (hc_cuda_work){.codes = (double)p->m * (double)p->n * (double)p->columns};
}

const char *hc_cuda_words_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    (void)path;
    return p->word_bits ? NULL : "codes have no kernel for words, or codes or x lie at addresses that it does not read";
}

hc_cuda_work hc_cuda_words_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    (void)path;
    return gemv_work(p);
}

void hc_cuda_words_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    hc_cuda_gemv *gemv = &p->gemv;
    const bool has_one = gemv->vectors == 1;
    const int threads = path->threads, rows_at_once = has_one && !p->is_kept ? HC_CUDA_GEMV_ROWS : 1;
    /* a stage: 16 bytes of codes of each thread and row, and x that those of a team meet, with gaps */
    const int64_t x_bytes = gemv->lanes * (16 * 8 / p->word_bits) * (int64_t)sizeof(float) / 8 * 9;
    const int64_t stage_bytes = x_bytes * gemv->vectors + threads * 16 * rows_at_once;
    const int64_t stages = (int64_t)sizeof gemv->table + HC_CUDA_GEMV_STAGES(gemv->vectors) * stage_bytes;
    const hc_cuda_words_kernel kernel = p->is_kept ? HC_CUDA_KEPT_WORDS
                                        : has_one  ? HC_CUDA_ONE_VECTOR
                                                   : HC_CUDA_VECTORS;
    const hc_cuda_entry entry = hc_cuda_words_kernel_of(&gemv->format, p->word_bits, kernel);
    gemv->format = hc_cuda_stored_like_in_words(&gemv->format);
    hc_cuda_add_step(plan, entry.module, entry.name,
                     hc_ceil_div(hc_ceil_div(p->n, rows_at_once) * gemv->lanes, threads), p->is_kept ? p->m : 1,
                     threads, p->is_kept ? kept_x_bytes(p) : stages, sizeof *gemv)
        ->params.gemv = *gemv;
}

/* Whole warps whose floats fit in shared memory. */
static int group_threads(const hc_cuda_product *p, const hc_cuda_path *path) {
    const int64_t fit = HC_CUDA_SHARED_BYTES / (p->gemv.ld * (int64_t)sizeof(float));
    return (int)hc_min(path->threads, fit / HC_WARP * HC_WARP);
}

const char *hc_cuda_groups_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    return group_threads(p, path) ? NULL : "groups of so many values";
}

hc_cuda_work hc_cuda_groups_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    (void)path;
    return gemv_work(p);
}

void hc_cuda_groups_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    hc_cuda_gemv gemv = p->gemv;
    const int threads = group_threads(p, path);
    const hc_cuda_entry kernel = hc_cuda_kernel_of(&gemv.format, p->is_kept ? HC_CUDA_GEMV_KEPT : HC_CUDA_GEMV_PLAIN);
    gemv.format = hc_cuda_stored_like(&gemv.format, HC_CUDA_GEMV_PLAIN);
    gemv.format = hc_cuda_add_record(&gemv.format, &gemv.geometry, plan);
    hc_cuda_add_step(plan, kernel.module, kernel.name, hc_ceil_div(p->n * gemv.lanes, threads), 1, threads,
                     threads * gemv.ld * (int64_t)sizeof(float), sizeof gemv)
        ->params.gemv = gemv;
}

const char *hc_cuda_chains_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    return path->kernel[p->is_kept] ? NULL : "there is no such tile for weights in a pattern";
}

hc_cuda_work hc_cuda_chains_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    return (hc_cuda_work){.rounds = (double)hc_cuda_rounds(p, path) * (double)p->columns / UNIT,
                          .codes = (double)p->n * (double)p->columns}; /* which become floats before */
}

void hc_cuda_chains_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    const bool is_bf16 = p->section == HC_CUDA_DEVICE;
    const int size = (int)sizeof(float), pitch = is_bf16 ? path->step : (path->step + 4) * size;
    const int stages = path->stages * (path->rows + path->columns) * pitch;
    const int sums = is_bf16 ? path->rows * (path->columns + 8) * size : 0; /* after the stages, in their memory */
    hc_cuda_add_step(plan,
                     is_bf16      ? "floats_bf16"
                     : p->is_kept ? "patterns"
                                  : "floats",
                     path->kernel[p->is_kept], hc_ceil_div(p->m, path->rows), hc_ceil_div(p->n, path->columns),
                     path->threads, hc_max(stages, sums), sizeof p->sgemm)
        ->params.sgemm = p->sgemm;
}

static hc_status load_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                             const hc_cuda_plan *plan, hc_cuda_product *p, hc_error *error) {
    hc_geometry rows;
    hc_format whole = packed->format; /* of a pattern, kept values alone meet x */
    whole.n = whole.m = 0;
    hc_cuda_init_product(p, plan);
    p->is_kept = packed->format.m > 0;
    hc_geometry *geometry = &p->w.geometry;
    const int last = x->ndim - 1;
    hc_status status = hc_cuda_packed_geometry(packed, geometry, error);
    if (status == HC_OK)
        status = hc_cuda_refuse(&whole, geometry, false, error);
    if (status == HC_OK)
        status = hc_geometry_of_axes(NULL, 1, x->ndim, x->shape, 1, &last, &rows, error);
    if (status != HC_OK)
        return status;
    if (x->dtype == HC_F64 || geometry->rows > HC_CUDA_MOST_ROWS || !hc_cuda_has_even_rows(out) ||
        rows.columns != geometry->whole_columns || rows.rows == 0 || (p->is_kept && geometry->runs > 1))
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not multiply arrays of these shapes or float64: use the CPU");
    const hc_cuda_gemm to = hc_cuda_gemm_of(out);
    p->m = rows.rows;
    p->n = geometry->rows;
    p->columns = geometry->whole_columns;
    p->section = rows.rows <= GEMV_MOST && !hc_sums_of_codes_overflow(&packed->format) ? HC_CUDA_GEMV
                 : plan->device_order && !p->is_kept                                   ? HC_CUDA_DEVICE
                                                                                       : HC_CUDA_CHAIN;
    if (p->section != HC_CUDA_GEMV) {
        p->sgemm = (hc_cuda_sgemm){
            .m = p->m, .n = p->n, .k = p->columns, .bias = bias, .y = to.y, .y_row = to.y_row, .y_column = to.y_column};
        hc_rows_init(&p->sgemm.x, x, &rows, 1, &last);
        p->sgemm.has_16 = p->columns % 4 == 0;
        return HC_OK;
    }
    const bool has_groups = hc_has_groups(&packed->format);
    p->gemv = (hc_cuda_gemv){.format = packed->format,
                             .geometry = *geometry,
                             .parts = packed->components,
                             .vectors = rows.rows,
                             .lanes = has_groups ? 16 : 8,
                             .ld = has_groups   ? (int32_t)geometry->group | 1
                                   : p->is_kept ? (8 / packed->format.m + 2) * packed->format.n | 1
                                                : 9,
                             .bias = bias,
                             .y = to.y,
                             .y_row = to.y_row,
                             .y_column = to.y_column};
    hc_rows_init(&p->gemv.x, x, &rows, 1, &last);
    if (p->gemv.x.rows.n > 1 || (!has_groups && geometry->runs > 1 && geometry->padded != geometry->columns))
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not multiply vectors at several strides: use the CPU");
    p->word_bits = p->is_kept ? kept_word_bits(&p->gemv, kept_x_bytes(p)) : word_bits(&p->gemv);
    return HC_OK;
}

/* The values of w, (n, columns), whose dropped ones are HC_CUDA_ABSENT. */
static hc_status add_decoded(const hc_packed *packed, hc_cuda_product *p, hc_cuda_plan *plan, hc_error *error) {
    const void *decoded = NULL;
    if (!p->is_kept) {
        const hc_status status = hc_cuda_decode_rows(packed, &p->w.geometry, HC_F32, plan, &decoded, error);
        p->sgemm.w = decoded;
        return status;
    }
    const uint32_t absent = HC_CUDA_ABSENT;
    const int along = 1;
    hc_view every = {.dtype = HC_F32, .ndim = 2, .shape = {p->n, p->columns}};
    float between;
    memcpy(&between, &absent, sizeof between);
    every.strides[1] = sizeof(float);
    every.strides[0] = every.shape[1] * every.strides[1];
    every.data = hc_cuda_reserve(plan, every.shape[0] * every.strides[0]);
    p->sgemm.w = every.data;
    return hc_cuda_add_decode_kept(packed, &p->w.geometry, between, &every, 1, &along, plan, error);
}

hc_status hc_cuda_plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                              hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_product p;
    const hc_cuda_path *path;
    hc_status status = load_floats(x, packed, bias, out, plan, &p, error);
    if (status == HC_OK)
        status = hc_cuda_choose(&p, plan, &path, error);
    if (status == HC_OK && p.section != HC_CUDA_GEMV)
        status = add_decoded(packed, &p, plan, error);
    if (status != HC_OK)
        return status;
    hc_row_view *of_x = &p.sgemm.x;
    if (p.section != HC_CUDA_GEMV && (of_x->rows.n > 1 || !has_pieces_of_16(of_x))) {
        hc_cuda_floats floats = {.k = p.columns, .x = *of_x};
        const int64_t row_bytes = p.columns * (int64_t)sizeof(float);
        floats.to = hc_cuda_reserve(plan, p.m * row_bytes);
        hc_cuda_add_step(plan, "floats", "hc_floats", p.m, hc_ceil_div(p.columns, FLOATS_COLUMNS), HC_CUDA_MAX_THREADS,
                         0, sizeof floats)
            ->params.floats = floats;
        *of_x = (hc_row_view){.data = (char *)floats.to, .dtype = HC_F32, .column_stride = sizeof(float)};
        of_x->rows = (hc_dims){.n = 1, .shape = {p.m}, .stride = {row_bytes}};
    }
    path->add(&p, path, plan);
    return HC_OK;
}
