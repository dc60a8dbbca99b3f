/* 4-bit integer weights with 2:4, times 1 to 8 integer vectors, directly from storage (int_nm.c has the other
 * patterns). S is exact in every order, and
 *
 *   y = float32((float64(s_x) * float64(s_w)) * float64(S))      as in product.h
 *
 * A value of x with more than 8 bits is split into signed 8-bit limbs, each a separate vector for the kernel.
 */
#include "base/convert.h"
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { MAX_VECTORS = 8, MAX_SIGNED_LIMBS = 4, TASK_BYTES = 64 << 10, LONGEST = 1 << 18, LONGEST_PANELS = 1 << 16 };
enum { MEMORY = 16 << 20 };

typedef struct {
    const hc_packed_context *weights;
    hc_gemv_24_integers_fn *kernel;
    hc_gemv_24_panels_fn *panels; /* or NULL; replaces kernel */
    hc_gemv_24_args args;         /* the arguments that all rows share */
    int64_t rows, task_rows, n_vectors, ldx;
    int n_signed_limbs;
    const int8_t *x; /* (n_vectors, n_signed_limbs, ldx), in the kernel's order */
    float x_scales[MAX_VECTORS];
    const hc_rows *out;
} hc_24_job;

static float row_scale(const hc_24_job *job, int64_t stored) {
    return hc_load_f32(hc_part(job->weights->components, HC_COARSE, stored));
}

static void store_row(const hc_24_job *job, char *const y[], int64_t row, float scale, const int64_t *sums) {
    for (int64_t v = 0; v < job->n_vectors; v++) {
        int64_t sum = 0;
        for (int d = job->n_signed_limbs - 1; d >= 0; d--)
            sum = sum * 256 + sums[v * job->n_signed_limbs + d];
        const float value = (float)((double)job->x_scales[v] * (double)scale * (double)sum);
        *(float *)(y[v] + row * job->out->column_stride) = value == value ? value : NAN;
    }
}

static void panels_rows(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_24_job *job = context;
    const hc_components *parts = job->weights->components;
    const int64_t n_lines = job->n_vectors * job->n_signed_limbs;
    const int64_t last = hc_min((task + 1) * job->task_rows, job->rows);
    hc_gemv_24_panels_args args = {.flip = job->args.flip,
                                   .zero = job->args.zero,
                                   .words = job->args.words,
                                   .code_bytes = job->args.code_bytes,
                                   .metadata_bytes = job->args.metadata_bytes,
                                   .ldx = job->ldx};
    char *y[MAX_VECTORS];
    for (int64_t v = 0; v < job->n_vectors; v++)
        y[v] = hc_row(job->out, v);
    for (int64_t row = task * job->task_rows; row < last; row += HC_GEMV_ROWS) {
        int32_t sums[MAX_VECTORS * MAX_SIGNED_LIMBS][HC_GEMV_ROWS];
        for (int r = 0; r < HC_GEMV_ROWS; r++) {
            const int64_t stored = job->weights->first_row + hc_min(row + r, last - 1);
            args.codes[r] = hc_part(parts, HC_CODES, stored);
            args.metadata[r] = hc_part(parts, HC_METADATA, stored);
            args.scales[r] = hc_part(parts, HC_SCALES, stored);
        }
        for (int64_t line = 0; line < n_lines; line += args.n_vectors) {
            args.n_vectors = n_lines - line >= 4 ? 4 : n_lines - line >= 2 ? 2 : 1;
            args.x = (const uint8_t *)job->x + line * job->ldx;
            args.sums = sums[line];
            job->panels(&args);
        }
        for (int64_t r = 0; r < hc_min(HC_GEMV_ROWS, last - row); r++) {
            int64_t of_row[MAX_VECTORS * MAX_SIGNED_LIMBS];
            for (int64_t line = 0; line < n_lines; line++)
                of_row[line] = sums[line][r];
            store_row(job, y, row + r, row_scale(job, job->weights->first_row + row + r), of_row);
        }
    }
}

static void rows_24(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_24_job *job = context;
    const hc_components *parts = job->weights->components;
    const int64_t n_lines = job->n_vectors * job->n_signed_limbs, first = task * job->task_rows;
    char *y[MAX_VECTORS];
    for (int64_t v = 0; v < job->n_vectors; v++)
        y[v] = hc_row(job->out, v);
    for (int64_t row = first; row < hc_min(first + job->task_rows, job->rows); row++) {
        int64_t sums[MAX_VECTORS * MAX_SIGNED_LIMBS];
        hc_gemv_24_args args = job->args;
        const int64_t stored = job->weights->first_row + row;
        args.codes = hc_part(parts, HC_CODES, stored);
        args.metadata = hc_part(parts, HC_METADATA, stored);
        args.scales = hc_part(parts, HC_SCALES, stored);
        for (int64_t line = 0; line < n_lines; line += args.n_vectors) {
            args.n_vectors = n_lines - line >= 4 ? 4 : n_lines - line >= 2 ? 2 : 1;
            args.x = job->x + line * job->ldx;
            args.sums = sums + line;
            job->kernel(&args);
        }
        store_row(job, y, row, row_scale(job, stored), sums);
    }
}

/* Offset of the first column of the quad at k in the kernel's order, and the distance of the four columns. */
static int64_t place_quad(const hc_24_job *job, int64_t k, int64_t *step) {
    if (!job->panels) {
        *step = 64;
        return k / 256 * 256 + k % 256 / 4;
    }
    const int64_t group = k / 32 % 16, quad = k / 4 % 8;
    const int64_t number = group / 2 % 4 * 8 + group / 8 * 4 + group % 2 * 2 + quad / 2 % 2;
    *step = quad % 2 == 0 ? 1 : 16;
    return k / 512 * 512 + (quad / 4 * 2 + quad % 2) * 128 +
           (quad % 2 == 0 ? 4 * number : number % 16 + number / 16 * 64);
}

/* Decodes vector v and splits it into limbs; memory has 3 x padded bytes. */
static void load_vector(hc_24_job *job, const hc_packed_context *x, int64_t v, int n_limbs, int8_t *memory,
                        int8_t *limbs) {
    const hc_geometry *geometry = x->geometry;
    const int64_t padded = geometry->padded;
    const hc_tile tile = {x->first_row + v, 1, 0, padded};
    const hc_int_tile out = {
        .limb = {memory, memory + padded, memory + 2 * padded}, .ld = padded, .row_scale = job->x_scales + v};
    job->x_scales[v] = 0; /* without columns */
    hc_decode_int_tile(x->run, x->format, geometry, x->components, &tile, HC_INT_FOLDED, &out);
    for (int64_t k = 0, to = 0, step = 0; k < geometry->columns; k++, to += step) {
        int32_t value = hc_gemv_value(memory + k, padded, n_limbs);
        if (k % 4 == 0)
            to = place_quad(job, k, &step);
        for (int d = 0; d < job->n_signed_limbs; d++)
            limbs[d * job->ldx + to] = (int8_t)(hc_gemv_limb(&value) ^ -128); /* + 128 */
    }
}

/* false if no kernel reads these weights as they are stored. */
static bool choose(hc_24_job *job, const hc_product *p) {
    const hc_format *format = p->w_packed->format;
    const hc_geometry *geometry = p->w_packed->geometry;
    const hc_stored_form form = hc_form_of(format);
    if (!hc_form_is_integers(&form) || geometry->columns > LONGEST)
        return false;
    const int64_t words = geometry->group / 8;
    const bool folds = form.bits == 4 && hc_form_has_nibble_scales(&form) && geometry->group % 8 == 0 &&
                       (words == 2 || words == 4 || words == 8);
    if (!folds)
        return false;
    const int flip = form.is_signed ? 1 << (form.bits - 1) : 0;
    *job = (hc_24_job){.weights = p->w_packed,
                       .rows = p->w->rows,
                       .n_vectors = p->x->rows,
                       .out = &p->out,
                       .kernel = HC_PICK(gemv_24_folded, p->run),
                       .panels = geometry->columns <= LONGEST_PANELS ? HC_PICK(gemv_24_panels, p->run) : NULL,
                       .n_signed_limbs = hc_gemv_limbs(&p->x->form[HC_INT_FOLDED])};
    job->ldx = hc_round_up(hc_max(geometry->padded * 2, p->x_packed->geometry->padded), 1024);
    job->args = (hc_gemv_24_args){.flip = flip,
                                  .zero = flip,
                                  .words = (int)words,
                                  .code_bytes = geometry->padded * form.bits / 8,
                                  .metadata_bytes = hc_ceil_div(geometry->columns, 4),
                                  .ldx = job->ldx};
    return true;
}

const char *hc_gemv_int_24_refuses(const hc_product *p) {
    const char *reason = hc_gemv_few_refuse(p);
    hc_24_job job;
    if (reason)
        return reason;
    if (p->w_packed->format->n != 2 || p->w_packed->format->m != 4)
        return "the weights' pattern is not 2:4";
    if (!HC_PICK(gemv_24_folded, p->run))
        return "no kernel of these instruction sets";
    if (!choose(&job, p))
        return "no codes of 4 bits with integer scales of 4 bits for 16, 32 or 64 of them, or rows too long";
    return job.n_vectors * job.n_signed_limbs * job.ldx > MEMORY ? "rows too long to keep x in the cache" : NULL;
}

hc_work hc_gemv_int_24_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w_packed->geometry->columns;
    const double lines = (double)p->x->rows * hc_gemv_limbs(&p->x->form[HC_INT_FOLDED]);
    return (hc_work){.codes = codes,
                     .products = codes * lines,
                     .groups = hc_groups(p) * lines,
                     .values = hc_values_and_results(p, lines, 1)};
}

hc_status hc_gemv_int_24_run(const hc_product *p, hc_error *error) {
    const hc_geometry *x_geometry = p->x_packed->geometry;
    const int n_limbs = p->x->form[HC_INT_FOLDED].n_limbs;
    hc_24_job job;
    choose(&job, p);
    const int64_t bytes = job.n_vectors * job.n_signed_limbs * job.ldx;
    int8_t *memory = hc_alloc_aligned(bytes + 3 * x_geometry->padded);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)job.n_vectors);
    memset(memory, 128, (size_t)bytes);
    job.x = memory;
    for (int64_t v = 0; v < job.n_vectors; v++)
        load_vector(&job, p->x_packed, v, n_limbs, memory + bytes, memory + v * job.n_signed_limbs * job.ldx);
    job.task_rows = hc_max(TASK_BYTES / hc_max(job.args.code_bytes, 1), 1);
    job.task_rows = hc_round_up(job.task_rows, HC_GEMV_ROWS);
    const int64_t n_tasks = hc_ceil_div(job.rows, job.task_rows);
    hc_parallel((int)hc_min(p->run->n_threads, n_tasks), n_tasks, job.panels ? panels_rows : rows_24, &job);
    hc_free_aligned(memory);
    return HC_OK;
}
