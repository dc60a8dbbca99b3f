/* Weights times few float vectors, read as they are stored or decoded a row at a time: x is put into the kernel's order
 * once, then every call takes four rows and up to four vectors.
 */
#include "base/convert.h"
#include "base/threads.h"
#include "ops/codec/encoder.h"
#include "ops/gemv/stored.h"

#include <math.h>
#include <string.h>

enum { MAX_CHUNKS = 2, TASK_BYTES = 64 << 10, X_BYTES = 16 << 20, ROW_BYTES = 1 << 20 };

bool hc_gemv_decodes(const hc_packed_context *packed, bool may_decode, hc_stored_form *form) {
    const hc_format *format = packed->format;
    const hc_format_ops *ops = hc_format_find(format->family);
    const bool is_spread = may_decode && format->m > 0; /* kept codes back to their places */
    const int64_t group = is_spread ? packed->geometry->group / format->n * format->m : packed->geometry->group;
    return !ops->stored_form || !ops->stored_form(format, form) ||
           (may_decode && ops->has_groups(format) && group * (form->bits == 4 ? 4 : 8) % 32 != 0) ||
           (is_spread && hc_gemv_zero_code(form) < 0);
}

bool hc_gemv_weights_init(hc_gemv_weights *weights, const hc_product *product, bool may_decode) {
    const hc_packed_context *packed = product->w_packed;
    const hc_geometry *geometry = packed->geometry;
    const int64_t numbers = hc_round_up(geometry->groups, 16) * (int64_t)sizeof(float);
    *weights = (hc_gemv_weights){.packed = packed, .rows = product->w->rows};
    hc_stored_form *form = &weights->form;
    if (hc_gemv_decodes(packed, may_decode, form)) {
        const int64_t codes = geometry->padded * (int64_t)sizeof(float);
        *form = (hc_stored_form){.bits = 32};
        weights->decodes = true;
        weights->bits = 32;
        weights->row_bytes = codes;
        weights->scratch_bytes = hc_round_up(codes, HC_CACHE_LINE) + numbers;
        return may_decode && codes <= ROW_BYTES;
    }
    HC_ASSUME(form->bits == 4 || !(form->has_table || form->has_row_tables));
    weights->bits = form->bits == 4 ? 4 : 8;
    weights->flip = form->is_signed ? 1 << (form->bits - 1) : 0;
    weights->zero = (float)weights->flip;
    weights->row_bytes = hc_ceil_div(geometry->padded * form->bits, 8);
    const int64_t codes = form->bits == weights->bits ? 0 : hc_round_up(geometry->padded + 8, HC_CACHE_LINE);
    weights->scratch_bytes = 3 * numbers + codes + HC_CACHE_LINE; /* scales, zeros, bytes on the way to either */
    weights->scales = HC_PICK(gemv_scales, packed->run);
    weights->unpack = HC_PICK(gemv_unpack, packed->run);
    return true;
}

const uint8_t *hc_gemv_row_codes(const hc_gemv_weights *weights, int64_t row) {
    return hc_part(weights->packed->components, HC_CODES, weights->packed->first_row + hc_min(row, weights->rows - 1));
}

/* n unsigned integers of 2 to 10 bits as float32. */
static void load_numbers(const hc_gemv_weights *weights, const uint8_t *stored, int bits, int64_t n, uint8_t *bytes,
                         float *out) {
    if (bits == 4 || bits == 8) {
        weights->scales(stored, bits, 1, n, out);
    } else if (bits < 8) {
        weights->unpack(stored, hc_ceil_div(n * bits, 8), bits, n, bytes);
        weights->scales(bytes, HC_SCALES_U8, 1, n, out);
    } else {
        for (int64_t i = 0; i < n; i++) {
            const int64_t bit = i * bits;
            const uint32_t word = stored[bit / 8] | (uint32_t)stored[bit / 8 + 1] << 8;
            out[i] = (float)(word >> (bit % 8) & ((1u << bits) - 1));
        }
    }
}

/* A row as the format decodes it. */
static void decode_row(const hc_gemv_weights *weights, int64_t row, uint8_t *scratch, hc_gemv_row *out) {
    const hc_packed_context *packed = weights->packed;
    const hc_geometry *geometry = packed->geometry;
    const hc_tile tile = {row, 1, 0, geometry->padded};
    float *codes = (float *)scratch, *scales = (float *)(scratch + hc_round_up(weights->row_bytes, HC_CACHE_LINE));
    const hc_code_tile decoded = {codes, geometry->padded, scales, geometry->groups, &out->row_scale};
    hc_decode_codes_tile(packed->run, packed->format, geometry, packed->components, &tile, &decoded);
    const bool has_groups = hc_format_find(packed->format->family)->has_groups(packed->format);
    out->codes = scratch;
    out->scales = has_groups ? scales : NULL;
}

/* By additions: compilers have vectors of bytes for these, and none for shifts. */
static void lift_codes(uint8_t *codes, int64_t n, int lift) {
    for (int done = 0; done < lift; done++)
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)(codes[i] + codes[i]);
}

void hc_gemv_row_load(const hc_gemv_weights *weights, int64_t row, bool want_scales, uint8_t *scratch, float *scales,
                      hc_gemv_row *out) {
    const hc_stored_form *form = &weights->form;
    const hc_components *components = weights->packed->components;
    const hc_geometry *geometry = weights->packed->geometry;
    const int64_t groups = geometry->groups, numbers = hc_round_up(groups, 16);
    const bool anywhere = !scales;
    float *zeros = (float *)scratch + numbers;
    scales = anywhere ? (float *)scratch : scales;
    uint8_t *bytes = (uint8_t *)(zeros + numbers);
    row = weights->packed->first_row + hc_min(row, weights->rows - 1);
    out->zeros = out->table = NULL;
    if (weights->decodes) {
        decode_row(weights, row, scratch, out);
        return;
    }
    const uint8_t *stored = hc_part(components, HC_SCALES, row);
    const float coarse = form->has_coarse ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
    out->row_scale = form->is_coarse_fine ? 1.0f : coarse;
    out->scales = scales;
    if (!want_scales || form->scale == HC_SCALE_NONE)
        out->scales = NULL;
    else if (form->scale == HC_SCALE_INTEGER)
        load_numbers(weights, stored, form->scale_bits, groups, bytes, scales);
    else if (form->scale == HC_SCALE_F16)
        weights->scales(stored, HC_SCALES_F16, 1, groups, scales);
    else if (form->scale == HC_SCALE_E8M0)
        weights->scales(stored, HC_SCALES_E8M0, 1, groups, scales);
    else if (form->scale == HC_SCALE_E4M3)
        weights->scales(stored, HC_SCALES_E4M3, form->is_coarse_fine ? coarse : 1, groups, scales);
    else if (form->scale == HC_SCALE_OWN)
        form->row_scales(weights->packed->format, geometry, components, row, scales);
    else if (anywhere && (uintptr_t)stored % sizeof(float) == 0)
        out->scales = (const float *)(const void *)stored;
    else
        memcpy(scales, stored, (size_t)groups * sizeof(float));
    if (form->has_zero_points) {
        load_numbers(weights, hc_part(components, HC_ZERO_POINTS, row), form->bits, groups, bytes, zeros);
        out->zeros = zeros;
    }
    if (form->has_row_tables)
        memcpy(out->row_tables, hc_part(components, HC_CODEBOOK, row), sizeof out->row_tables);
    out->table = form->has_row_tables ? out->row_tables : form->has_table ? form->table : NULL;
    out->codes = hc_part(components, HC_CODES, row);
    if (form->bits != weights->bits) {
        uint8_t *codes = bytes + numbers * (int64_t)sizeof(float);
        weights->unpack(out->codes, weights->row_bytes, form->bits, geometry->padded, codes);
        if (form->lift)
            lift_codes(codes, geometry->padded, form->lift);
        out->codes = codes;
    }
}

void hc_gemv_store(const hc_rows *out, int64_t row, int64_t vector, float value) {
    *(float *)(hc_row(out, vector) + row * out->column_stride) = value == value ? value : NAN;
}

typedef struct {
    const hc_gemv_weights *weights;
    const hc_geometry *geometry;    /* of the kernel's rows */
    const hc_gemv_densified *whole; /* of a pattern, or NULL */
    bool has_groups, reads_scales;  /* the kernel takes scales as they are stored */
    void (*kernel)(const hc_gemv_floats_args *args);
    int n_chunks, chunk_vectors[MAX_CHUNKS]; /* as the kernel sees them: 1, 2 or 4 */
    float *x[MAX_CHUNKS];
    int64_t n_vectors, task_rows, scratch_bytes;
    uint8_t *scratch;
    const hc_rows *out;
} hc_floats_job;

/* Bits of a scale that gemv_groups takes as it is stored, else 0. */
static int stored_bits(const hc_stored_form *form) {
    return form->scale == HC_SCALE_F32                                ? 32
           : form->scale == HC_SCALE_F16                              ? 16
           : form->scale == HC_SCALE_INTEGER && form->scale_bits == 4 ? 4
                                                                      : 0;
}

static void float_rows(void *context, int64_t task, int thread) {
    const hc_floats_job *job = context;
    const hc_gemv_weights *weights = job->weights;
    const int64_t first = task * job->task_rows, last = hc_min(first + job->task_rows, weights->rows);
    uint8_t *scratch = job->scratch + thread * job->scratch_bytes;
    const int64_t row_scratch = job->scratch_bytes / HC_GEMV_ROWS;
    for (int64_t row = first; row < last; row += HC_GEMV_ROWS) {
        hc_gemv_row rows[HC_GEMV_ROWS];
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            if (r > 0 && row + r >= last) {
                rows[r] = rows[r - 1];
                continue;
            }
            uint8_t *at = scratch + r * row_scratch;
            hc_gemv_row_load(weights, row + r, !job->reads_scales, at, NULL, &rows[r]);
            if (job->whole)
                hc_gemv_densified_row(job->whole, weights, row + r,
                                      at + hc_round_up(weights->scratch_bytes, HC_CACHE_LINE), &rows[r]);
        }
        for (int chunk = 0; chunk < job->n_chunks; chunk++) {
            const int n_vectors = job->chunk_vectors[chunk];
            float sums[HC_GEMV_ROWS * HC_GEMV_VECTORS];
            hc_gemv_floats_args args = {.bits = weights->bits,
                                        .flip = weights->flip,
                                        .zero = weights->zero,
                                        .unit = ldexpf(1, -weights->form.fraction_bits),
                                        .exponent_bits = weights->form.exponent_bits,
                                        .special_bits = weights->form.special_bits,
                                        .n_vectors = n_vectors,
                                        .scale_bits = job->reads_scales ? stored_bits(&weights->form) : 32,
                                        .columns = job->geometry->columns,
                                        .group = job->geometry->group,
                                        .groups = job->geometry->groups,
                                        .x = job->x[chunk],
                                        .out = sums};
            for (int r = 0; r < HC_GEMV_ROWS; r++) {
                args.codes[r] = rows[r].codes;
                args.scales[r] = job->reads_scales ? hc_part(weights->packed->components, HC_SCALES,
                                                             weights->packed->first_row + hc_min(row + r, last - 1))
                                                   : (const uint8_t *)rows[r].scales;
                args.zeros[r] = rows[r].zeros;
                args.table[r] = rows[r].table;
                args.next[r] =
                    weights->decodes || job->whole ? rows[r].codes : hc_gemv_row_codes(weights, row + r + HC_GEMV_ROWS);
            }
            job->kernel(&args);
            for (int r = 0; r < HC_GEMV_ROWS && row + r < last; r++) {
                const float scale = job->has_groups || !rows[r].scales ? rows[r].row_scale : rows[r].scales[0];
                for (int v = 0; v < n_vectors && chunk * HC_GEMV_VECTORS + v < job->n_vectors; v++)
                    hc_gemv_store(job->out, row + r, chunk * HC_GEMV_VECTORS + v, sums[r * n_vectors + v] * scale);
            }
        }
    }
}

/* n vectors in the order of gemv_groups or gemv_rows, between the others of n_vectors. */
static void order_x(const hc_floats_job *job, const float *x, int64_t ldx, int n, int n_vectors, float *out) {
    const int64_t columns = job->geometry->columns, group = job->geometry->group;
    int place[64];
    for (int k = 0; k < 64; k++)
        place[k] = job->weights->bits == 32 ? k : job->weights->bits == 8 ? k % 4 * 16 + k / 4 : k % 8 * 8 + k / 8;
    for (int v = 0; v < n; v++) {
        const float *from = x + v * ldx;
        if (!job->has_groups) {
            for (int64_t k = 0; k < columns; k += 64)
                for (int64_t i = 0; i < hc_min(columns - k, 64); i++)
                    out[(k / 64 * n_vectors + v) * 64 + place[i]] = from[k + i];
            continue;
        }
        for (int64_t g = 0, k = 0; k < columns; g++, k += group) {
            float *to = out + (g / 16 * group * n_vectors + v) * 16 + g % 16;
            for (int64_t i = 0; i < hc_min(columns - k, group); i++)
                to[i * n_vectors * 16] = from[k + i];
        }
    }
}

bool hc_gemv_fits(const hc_product *product, const hc_geometry *geometry) {
    const bool has_groups = hc_format_find(product->w_packed->format->family)->has_groups(product->w_packed->format);
    const int64_t places =
        has_groups ? hc_round_up(geometry->groups, 16) * geometry->group : hc_round_up(geometry->columns, 64);
    return places * product->x->rows <= X_BYTES / (int64_t)sizeof(float);
}

hc_status hc_gemv_multiply(const hc_product *product, hc_gemv_weights *weights, hc_gemv_densified *densified,
                           hc_error *error) {
    const hc_packed_context *packed = product->w_packed;
    const hc_geometry *geometry = densified ? &densified->geometry : packed->geometry;
    const hc_run *run = product->run;
    const int64_t n_vectors = product->x->rows, ldx = product->ld_vectors;
    hc_floats_job job = {.weights = weights,
                         .n_vectors = n_vectors,
                         .out = &product->out,
                         .geometry = geometry,
                         .whole = densified,
                         .has_groups = hc_format_find(packed->format->family)->has_groups(packed->format)};
    int64_t row_scratch = hc_round_up(weights->scratch_bytes, HC_CACHE_LINE);
    if (densified)
        row_scratch += hc_gemv_densified_bytes(densified, weights);
    job.reads_scales = job.has_groups && !weights->decodes && stored_bits(&weights->form) != 0;
    const int64_t places =
        job.has_groups ? hc_round_up(geometry->groups, 16) * geometry->group : hc_round_up(geometry->columns, 64);
    job.kernel = job.has_groups ? HC_PICK(gemv_groups, run) : HC_PICK(gemv_rows, run);
    job.task_rows = hc_round_up(hc_max(TASK_BYTES / hc_max(weights->row_bytes, 1), 1), HC_GEMV_ROWS);
    job.scratch_bytes = HC_GEMV_ROWS * row_scratch;
    const int64_t n_tasks = hc_ceil_div(weights->rows, job.task_rows);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);

    int64_t x_values = 0;
    for (int64_t v = 0; v < n_vectors; v += HC_GEMV_VECTORS) {
        const int64_t n = hc_min(n_vectors - v, HC_GEMV_VECTORS);
        job.chunk_vectors[job.n_chunks] = n == 3 ? 4 : (int)n;
        x_values += places * job.chunk_vectors[job.n_chunks++];
    }
    float *ordered = hc_alloc_aligned(x_values * (int64_t)sizeof(float));
    job.scratch = hc_alloc_aligned(job.scratch_bytes * n_threads);
    hc_status status = HC_OK;
    if (ordered && job.scratch) {
        if (job.whole) /* codes of the last group that no column has */
            memset(job.scratch, 0, (size_t)(job.scratch_bytes * n_threads));
        memset(ordered, 0, (size_t)x_values * sizeof(float));
        float *next = ordered;
        for (int chunk = 0; chunk < job.n_chunks; next += places * job.chunk_vectors[chunk++]) {
            const int64_t v = chunk * HC_GEMV_VECTORS;
            job.x[chunk] = next;
            order_x(&job, product->vectors + v * ldx, ldx, (int)hc_min(n_vectors - v, HC_GEMV_VECTORS),
                    job.chunk_vectors[chunk], next);
        }
        hc_parallel(n_threads, n_tasks, float_rows, &job);
    } else {
        status = hc_fail(error, HC_MEMORY, "matmul: no memory for %lld vectors", (long long)n_vectors);
    }
    hc_free_aligned(job.scratch);
    hc_free_aligned(ordered);
    return status;
}

const char *hc_gemv_refuses(const hc_product *p) {
    HC_ASSUME(p->order == HC_ORDER_GEMV && p->x->rows <= HC_GEMV_MOST);
    return !p->w_packed || p->w_packed->geometry->runs != 1 ? "the weights are no packed rows of one run" : NULL;
}

const char *hc_gemv_int_sides_refuse(const hc_product *p) {
    if (p->x->rows > HC_GEMV_MOST)
        return "x has more than 8 rows";
    if (!p->w_packed || !p->x_packed || p->w_packed->geometry->runs != 1 || p->x_packed->geometry->runs != 1)
        return "a side is no packed rows of one run";
    return p->x->sparse ? "x has a pattern" : NULL;
}

const char *hc_gemv_float_refuses(const hc_product *p) {
    hc_gemv_weights weights;
    const char *reason = hc_gemv_refuses(p);
    if (reason)
        return reason;
    if (p->w->sparse)
        return "the weights have a pattern";
    if (!hc_gemv_weights_init(&weights, p, true) || !hc_gemv_fits(p, p->w_packed->geometry))
        return "rows too long to keep one in the cache";
    return NULL;
}

hc_work hc_gemv_float_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns, vectors = (double)p->x->rows;
    hc_stored_form form;
    const bool decodes = hc_gemv_decodes(p->w_packed, true, &form);
    return (hc_work){decodes ? 0 : codes, decodes ? codes : 0, codes * vectors, vectors * (double)p->w->columns};
}

hc_status hc_gemv_float_run(const hc_product *p, hc_error *error) {
    hc_gemv_weights weights;
    hc_gemv_weights_init(&weights, p, true);
    return hc_gemv_multiply(p, &weights, NULL, error);
}
