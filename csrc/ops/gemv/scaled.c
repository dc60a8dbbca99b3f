/* Blocks of rows that gemv_scaled multiplies. Codes and float16 or float32 scales are read from storage; others are
 * converted first, 16 rows at a time.
 */
#include "ops/gemv/int.h"

#include "base/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Lines up to which gemv_folded_bytes is faster than gemv_turned (Zen 4, 2026-11). */
enum { FEW_LINES = 3, AT_ONCE = 16 };

void hc_integers_scales(const hc_integers_job *job, const hc_gemv_row *row, float *scales) {
    const int64_t parts = hc_ceil_div(job->geometry->group, job->segment), groups = job->geometry->groups;
    const float row_scale = row->row_scale, unit = job->unit;
    /* Scales that were multiplied in advance are bytes of at most 448 times the coarse scale. */
    if (job->weights.form.second && (row_scale != 1 || fabsf(row->coarse) > FLT_MAX / 512))
        for (int64_t g = 0; g < groups; g++) {
            float scale = row_scale * scales[g];
            scale = FLT_MAX < scale ? FLT_MAX : scale; /* two comparisons in sequence: compilers vectorize these */
            scales[g] = scale < -FLT_MAX ? -FLT_MAX : scale;
        }
    if (unit != 1)
        for (int64_t g = 0; g < groups; g++)
            scales[g] *= unit;
    for (int64_t s = job->segments - 1; parts > 1 && s >= 0; s--)
        scales[s] = scales[s / parts];
}

void hc_integers_store(const hc_rows *out, int64_t row, int64_t vector, int64_t n, const float *y) {
    char *to = hc_row(out, vector) + row * out->column_stride;
    for (int64_t i = 0; i < n; i++, to += out->column_stride)
        *(float *)to = y[i] == y[i] ? y[i] : NAN;
}

bool hc_integers_loads_scales(const hc_integers_job *job) {
    const hc_stored_form *form = &job->weights.form;
    return job->kind == HC_ORDER_GROUPED && (!job->scaled || form->second || job->unit != 1 ||
                                             (form->scale != HC_SCALE_F16 && form->scale != HC_SCALE_F32));
}

/* Integer scales or zero points of some rows as float32; returns the distance of the rows, or 0 if they have gaps or
 * another width. Rows without a gap are one long row. */
static int64_t load_rows(const hc_integers_job *job, hc_component_id id, int bits, int64_t block, int64_t n_rows,
                         void *bytes, float *out) {
    const hc_gemv_weights *weights = &job->weights;
    const int64_t row_bytes = weights->packed->components->part[id].row_stride, groups = job->geometry->groups;
    const int64_t all = n_rows * groups;
    if (bits > 8 || row_bytes * 8 != groups * bits || all > HC_GEMV_SCALED_BYTES - 8)
        return 0;
    const uint8_t *stored = hc_part(weights->packed->components, id, weights->packed->first_row + block);
    if (bits != 4 && bits != 8) {
        weights->unpack(stored, n_rows * row_bytes, bits, all, bytes);
        stored = bytes;
    }
    weights->scales(stored, bits == 4 ? HC_SCALES_U4 : HC_SCALES_U8, 1, all, out);
    return groups;
}

/* Converts codes of other widths to bytes, and scales that the kernel does not read and zero points to float32, for some
 * rows. */
static void spread_rows(const hc_integers_job *job, int64_t block, int64_t n_rows, const hc_integers_scratch *scratch,
                        hc_gemv_scaled_args *args) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_stored_form *form = &weights->form;
    const bool unpacks = weights->unpacks && !job->is_packed;
    const bool loads = hc_integers_loads_scales(job);
    float *zeros = form->has_zero_points ? scratch->values : NULL;
    const int64_t n = job->padded_segments, stride = unpacks ? hc_round_up(weights->scratch_bytes, HC_CACHE_LINE) : 0;
    int64_t ld_zeros = 0;
    if (zeros && !unpacks && !loads)
        ld_zeros = load_rows(job, HC_ZERO_POINTS, form->bits, block, n_rows, scratch->scaled, zeros);
    const bool has_all = !unpacks && !loads && (!zeros || ld_zeros);
    for (int64_t i = 0; !has_all && i < n_rows; i++) {
        float *scales = scratch->scales + i * n;
        hc_gemv_row row;
        if (!unpacks && form->scale == HC_SCALE_E8M0) { /* powers of two, and the unit is one, too */
            const int64_t stored = weights->packed->first_row + block + i;
            weights->scales(hc_part(weights->packed->components, HC_SCALES, stored), HC_SCALES_E8M0, job->unit,
                            job->geometry->groups, scales);
            continue;
        }
        hc_gemv_row_load(weights, block + i, loads, scratch->row + i * stride, scales, &row);
        if (loads)
            hc_integers_scales(job, &row, scales);
        if (zeros)
            memcpy(zeros + i * n, row.zeros, (size_t)job->segments * sizeof *zeros);
        if (unpacks && i == 0)
            args->codes = row.codes, args->code_stride = stride;
    }
    args->zeros = zeros;
    args->ld_zeros = ld_zeros ? ld_zeros : n;
    if (loads) {
        args->scale_bits = 32;
        args->scales = (const uint8_t *)scratch->scales;
        args->scale_stride = n * (int64_t)sizeof(float);
    }
}

void hc_integers_scaled(const hc_integers_job *job, int64_t block, int64_t n_rows, const hc_integers_scratch *scratch) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_components *components = weights->packed->components;
    const int64_t row = weights->packed->first_row + block;
    hc_gemv_scaled_args args = {.bits = job->is_packed ? weights->form.bits : weights->bits,
                                .flip = weights->flip,
                                .table = weights->as_integers && weights->bits == 4 ? weights->table : NULL,
                                .words = (int)(job->segment * weights->bits / 32),
                                .scale_bits = weights->form.scale == HC_SCALE_F16 ? 16 : 32,
                                .is_small = weights->form.bits <= 6 && !weights->as_integers && !job->is_packed,
                                .n_rows = (int)n_rows,
                                .segments = job->segments,
                                .code_stride = components->part[HC_CODES].row_stride,
                                .scale_stride = components->part[HC_SCALES].row_stride,
                                .codes = hc_part(components, HC_CODES, row),
                                .scales = hc_part(components, HC_SCALES, row),
                                .x_bytes = job->x_bytes,
                                .zero = (int)weights->zero,
                                .ld_start = job->words,
                                .ld_scales = job->padded_segments,
                                .scratch = scratch->scaled};
    spread_rows(job, block, n_rows, scratch, &args);
    for (int64_t v = 0; v < job->n_vectors; v += args.n_lines) {
        const int64_t left = job->n_vectors - v;
        float y[HC_INTEGERS_ROWS * HC_GEMV_TURNED_LINES];
        args.n_lines = job->scaled_lines ? (int)hc_min(left, job->scaled_lines) : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        args.x = job->x + v * job->x_bytes;
        args.start = job->start + v * job->words;
        args.x_scales = job->x_scales + v * job->padded_segments;
        args.x_sums = job->sums + v * job->padded_segments;
        args.out = y;
        job->scaled(&args);
        for (int line = 0; line < args.n_lines; line++)
            hc_integers_store(job->out, block, job->first_vector + v + line, n_rows, y + line * HC_INTEGERS_ROWS);
    }
}

/* Whether gemv_scaled supports these segments. */
static bool reads_scaled(const hc_integers_job *job) {
    const hc_stored_form *form = &job->weights.form;
    const int64_t words = job->segment * job->weights.bits / 32;
    return job->kind == HC_ORDER_GROUPED && job->n_signed_limbs == 1 && job->segment == job->geometry->group &&
           !job->densifies && (words == 4 || words == 8 || words == 16 || words == 32) &&
           form->scale != HC_SCALE_NONE && (!job->weights.as_integers || job->weights.is_short);
}

static void use_scaled(hc_integers_job *job, const hc_kernel *kernel, hc_gemv_scaled_fn *fn) {
    job->scaled = fn;
    job->scaled_lines = fn ? kernel->mr : 0;
}

void hc_integers_scaled_plan(hc_integers_job *job, const hc_run *run) {
    const hc_stored_form *form = &job->weights.form;
    if (!reads_scaled(job))
        return;
    if (form->has_zero_points) {
        if (!job->weights.unpacks && job->n_vectors >= HC_BEST(gemv_scaled_zeros, run)->nr)
            use_scaled(job, HC_BEST(gemv_scaled_zeros, run), HC_PICK(gemv_scaled_zeros, run));
        return;
    }
    if (job->weights.unpacks && !job->weights.as_integers && !form->lift)
        use_scaled(job, HC_BEST(gemv_scaled_packed, run), HC_PICK(gemv_scaled_packed, run));
    job->is_packed = job->scaled;
    job->weights.keeps_codes = job->is_packed;
    if (!job->is_packed)
        use_scaled(job, HC_BEST(gemv_scaled, run), HC_PICK(gemv_scaled, run));
}

/* Rows of bytes, or of codes that a kernel unpacks, with integer scales. */
static bool has_factors(const hc_integers_job *job) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_stored_form *form = &weights->form;
    return job->folds && !job->folded && !job->densifies && !weights->as_integers && weights->bits == 8 &&
           !form->lift && !form->has_zero_points && job->segment == job->geometry->group &&
           form->second == HC_SECOND_ROW;
}

/* gemv_folded_bytes multiplies every sum of a word by its scale, gemv_turned only those of groups, but transposes codes.
 * Products of scales and some sums fit int32. */
void hc_integers_turned_plan(hc_integers_job *job, const hc_run *run) {
    hc_gemv_weights *weights = &job->weights;
    const hc_stored_form *form = &weights->form;
    const int64_t words = job->segment / 4, lines = job->n_vectors * job->n_signed_limbs;
    if (!has_factors(job))
        return;
    const bool is_packed = weights->unpacks && HC_PICK(gemv_folded_packed, run);
    const int64_t most_registers = INT32_MAX / (4LL << form->bits << 7 << hc_min(form->scale_bits, 16));
    if (lines <= FEW_LINES && (words == 4 || words == 8 || words % 16 == 0) && most_registers > 0 &&
        form->scale_bits <= 16) {
        job->folded_bytes = is_packed ? HC_PICK(gemv_folded_packed, run) : HC_PICK(gemv_folded_bytes, run);
        job->is_packed = job->folded_bytes && is_packed;
        job->most = most_registers;
    }
    const int bits = form->bits - 1 + 7 + form->scale_bits; /* of one product */
    const int64_t most_segments = bits <= 24 ? INT32_MAX / (job->segment << bits) : 0;
    if (!job->folded_bytes && (words == 4 || words == 8 || words == 16 || words == 32) && most_segments > 0) {
        job->is_packed = weights->unpacks && HC_PICK(gemv_turned_packed, run);
        const hc_kernel *kernel = job->is_packed ? HC_BEST(gemv_turned_packed, run) : HC_BEST(gemv_turned, run);
        job->turned = job->is_packed ? kernel->fn.gemv_turned_packed : kernel->fn.gemv_turned;
        job->scaled_lines = kernel->mr;
        job->most = most_segments;
        if (!job->turned || lines < kernel->nr) {
            job->turned = NULL;
            job->is_packed = false;
        }
    }
    weights->keeps_codes = job->is_packed;
}

/* gemv_turned, for all lines. */
static void turned_lines(const hc_integers_job *job, const uint8_t *codes, int64_t code_stride, int64_t ld_scales,
                         int64_t n_rows, const hc_integers_scratch *scratch,
                         int64_t sums[HC_INTEGERS_LINES][HC_INTEGERS_ROWS]) {
    const hc_gemv_weights *weights = &job->weights;
    const int64_t n = job->padded_segments, lines = job->n_vectors * job->n_signed_limbs;
    hc_gemv_scaled_args args = {.bits = job->is_packed ? weights->form.bits : weights->bits,
                                .flip = weights->flip,
                                .words = (int)(job->segment / 4),
                                .scale_bits = 32,
                                .is_small = weights->form.bits <= 6 && !job->is_packed,
                                .n_rows = (int)n_rows,
                                .segments = job->segments,
                                .code_stride = code_stride,
                                .codes = codes,
                                .scale_stride = ld_scales * (int64_t)sizeof(float),
                                .scales = (const uint8_t *)scratch->scales,
                                .x_bytes = job->x_bytes,
                                .zero = (int)weights->zero,
                                .ld_scales = n,
                                .scratch = scratch->scaled,
                                .most = job->most};
    for (int64_t first = 0; first < lines; first += args.n_lines) {
        args.n_lines = (int)hc_min(lines - first, job->scaled_lines);
        args.x = job->x + first * job->x_bytes;
        args.x_sums = job->sums + first * n;
        args.sums = sums[first];
        job->turned(&args);
    }
}

/* gemv_folded_bytes or gemv_folded_packed, for all lines. */
static void folded_lines(const hc_integers_job *job, const uint8_t *codes, int64_t code_stride, int64_t ld_scales,
                         int64_t n_rows, const hc_integers_scratch *scratch,
                         int64_t sums[HC_INTEGERS_LINES][HC_INTEGERS_ROWS]) {
    const hc_gemv_weights *weights = &job->weights;
    const int64_t lines = job->n_vectors * job->n_signed_limbs;
    int32_t *factors = (int32_t *)(void *)scratch->scales; /* as many as padded_segments for each of 16 rows */
    for (int64_t i = 0; i < n_rows * ld_scales; i += AT_ONCE) {
        float scales[AT_ONCE];
        int32_t integers[AT_ONCE];
        memcpy(scales, factors + i, sizeof scales);
        for (int j = 0; j < AT_ONCE; j++)
            integers[j] = (int32_t)scales[j];
        memcpy(factors + i, integers, sizeof integers);
    }
    hc_gemv_folded_bytes_args args = {.bits = weights->form.bits,
                                      .flip = weights->flip,
                                      .words = (int)(job->segment / 4),
                                      .is_small = weights->form.bits <= 6 && weights->form.scale_bits <= 15,
                                      .n_rows = (int)n_rows,
                                      .row_bytes = job->is_packed ? weights->row_bytes : job->geometry->padded,
                                      .most = job->most,
                                      .code_stride = code_stride,
                                      .codes = codes,
                                      .ld_factors = ld_scales,
                                      .factors = factors,
                                      .x_bytes = job->x_bytes};
    for (int64_t line = 0; line < lines; line += args.n_lines) {
        const int64_t left = lines - line;
        args.n_lines = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        args.x = job->x + line * job->x_bytes;
        args.start = job->start + line * job->words;
        args.sums = sums[line];
        job->folded_bytes(&args);
    }
}

void hc_integers_turned(const hc_integers_job *job, int64_t block, int64_t n_rows, const hc_integers_scratch *scratch,
                        float row_scales[HC_INTEGERS_ROWS], int64_t sums[HC_INTEGERS_LINES][HC_INTEGERS_ROWS]) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_components *components = weights->packed->components;
    const uint8_t *codes = hc_part(components, HC_CODES, weights->packed->first_row + block);
    int64_t stride = components->part[HC_CODES].row_stride;
    int64_t ld_scales =
        load_rows(job, HC_SCALES, weights->form.scale_bits, block, n_rows, scratch->scaled, scratch->scales);
    if (!ld_scales) {
        ld_scales = job->padded_segments;
        for (int64_t i = 0; i < n_rows; i++) {
            hc_gemv_row row;
            hc_gemv_row_load(weights, block + i, true, scratch->row, scratch->scales + i * ld_scales, &row);
        }
    }
    if (weights->unpacks && !job->is_packed) {
        const int64_t unpacked = hc_round_up(weights->scratch_bytes, HC_CACHE_LINE), n_codes = job->geometry->padded;
        for (int64_t i = 0; i < n_rows; i++)
            weights->unpack(codes + i * stride, weights->row_bytes, weights->form.bits, n_codes,
                            scratch->row + i * unpacked);
        codes = scratch->row;
        stride = unpacked;
    }
    for (int64_t i = 0; i < n_rows; i++)
        row_scales[i] = hc_load_f32(hc_part(components, HC_COARSE, weights->packed->first_row + block + i));
    if (job->turned)
        turned_lines(job, codes, stride, ld_scales, n_rows, scratch, sums);
    else
        folded_lines(job, codes, stride, ld_scales, n_rows, scratch, sums);
}
