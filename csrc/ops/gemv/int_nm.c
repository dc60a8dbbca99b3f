/* Integer weights with a pattern times 1 to 8 integer vectors, like int_24.c for 2:4. With exactly 4 nonzeros of every
 * 8, 16, 32 or 64 columns, 8-bit codes, and 4-bit codes with integer scales or none, are read as they are stored. With
 * fewer nonzeros, some rows at a time are decoded like panels (pack_nm.c).
 */
#include "base/convert.h"
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <string.h>

enum { ROWS = 8, MAX_VECTORS = 8, MAX_SIGNED_LIMBS = 4, TASK_BYTES = 64 << 10, LONGEST = 1 << 18, FLIP = 128 };

static const uint8_t ONE[8] = {1}; /* a scale of 1 */

typedef struct {
    const hc_packed_context *weights;
    const hc_source *source; /* of the weights */
    hc_nm_form form;
    hc_gemv_nm_integers_fn *kernel;
    hc_gemv_nm_integers_args args; /* the arguments that all rows share */
    bool is_stored;                /* codes are read from storage */
    hc_component_id scale;         /* component of the group scales, then of the row's own scale */
    bool is_half;                  /* that component is float16 */
    int64_t rows, task_rows, n_tasks, n_vectors, ldx;
    int n_threads;
    int n_signed_limbs;
    uint8_t *x; /* (n_vectors, n_signed_limbs, ldx), signed limbs, XOR FLIP */
    float x_scales[MAX_VECTORS];
    int64_t row_bytes, scratch_bytes; /* of a row of codes or positions; of a thread */
    int64_t x_total, bytes;           /* of all vectors; of all memory */
    int8_t *scratch;
    const hc_rows *out;
} hc_int_nm_job;

/* Addresses of the codes and positions of some rows, and their scales. */
static void load_rows(const hc_int_nm_job *job, int64_t row, int64_t rows, int8_t *scratch,
                      hc_gemv_nm_integers_args *args, float *row_scales) {
    const hc_components *parts = job->weights->components;
    const int64_t stored = job->weights->first_row + row;
    if (!job->is_stored) {
        const int64_t bytes = ROWS * job->row_bytes;
        const hc_int_tile tile = {
            .limb = {scratch, scratch + bytes, scratch + 2 * bytes}, .ld = job->row_bytes, .row_scale = row_scales};
        hc_nm_integers(job->source, &job->form, row, rows, 0, job->source->columns, &tile);
        args->codes = (const uint8_t *)tile.limb[0];
        args->metadata = (const uint8_t *)tile.limb[1];
        return;
    }
    args->codes = hc_part(parts, HC_CODES, stored);
    args->metadata = hc_part(parts, HC_METADATA, stored);
    args->scales = args->words ? hc_part(parts, HC_SCALES, stored) : ONE;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *scale = hc_part(parts, job->scale, stored + r);
        row_scales[r] = job->is_half ? hc_f16_to_f32(hc_load_u16(scale)) : hc_load_f32(scale);
    }
}

static void nonzero_rows(void *context, int64_t task, int thread) {
    const hc_int_nm_job *job = context;
    const int64_t n_lines = job->n_vectors * job->n_signed_limbs, first = task * job->task_rows;
    const int64_t last = hc_min(first + job->task_rows, job->rows);
    int8_t *scratch = job->scratch + thread * job->scratch_bytes;
    int64_t sums[ROWS * MAX_VECTORS * MAX_SIGNED_LIMBS];
    float row_scales[ROWS];
    hc_gemv_nm_integers_args args = job->args;
    args.ld_sums = n_lines;
    for (int64_t row = first; row < last; row += args.rows) {
        args.rows = hc_min(ROWS, last - row);
        load_rows(job, row, args.rows, scratch, &args, row_scales);
        for (int64_t line = 0; line < n_lines; line += args.n_vectors) {
            args.n_vectors = n_lines - line >= 4 ? 4 : n_lines - line >= 2 ? 2 : 1;
            args.x = job->x + line * job->ldx;
            args.sums = sums + line;
            job->kernel(&args);
        }
        for (int64_t r = 0; r < args.rows; r++)
            for (int64_t v = 0; v < job->n_vectors; v++) {
                int64_t sum = 0;
                for (int d = job->n_signed_limbs - 1; d >= 0; d--)
                    sum = sum * 256 + sums[r * n_lines + v * job->n_signed_limbs + d];
                const double scale = (double)job->x_scales[v] * (double)row_scales[r];
                hc_gemv_store(job->out, row + r, v, (float)(scale * (double)sum));
            }
    }
}

/* Vector v as unsigned limbs, which the kernel needs. */
static void load_vector(hc_int_nm_job *job, const hc_packed_context *x, int64_t v, int8_t *memory) {
    uint8_t *limbs = job->x + v * job->n_signed_limbs * job->ldx;
    hc_gemv_load_vector(x, HC_INT_FOLDED, v, job->n_signed_limbs,
                        &(hc_gemv_vector){memory, (int8_t *)limbs, job->ldx, NULL, job->x_scales + v});
    for (int i = 0; i < job->n_signed_limbs; i++)
        for (int64_t k = 0; k < x->geometry->columns; k++)
            limbs[i * job->ldx + k] ^= FLIP;
}

/* The bits of the codes, 4 or 8, if a kernel reads them as they are stored; otherwise 0. */
static int code_bits(hc_int_nm_job *job) {
    const hc_format *format = job->weights->format;
    const hc_geometry *geometry = job->weights->geometry;
    const hc_stored_form form = hc_form_of(format);
    if (job->form.per_step != 4 || !hc_form_is_integers(&form))
        return 0;
    const int64_t words = geometry->group / 8;
    const bool plain =
        !form.second && geometry->groups == 1 && (form.scale == HC_SCALE_F32 || form.scale == HC_SCALE_F16);
    const bool scaled =
        hc_form_has_nibble_scales(&form) && geometry->group % 8 == 0 && (words == 2 || words == 4 || words == 8);
    job->scale = scaled ? HC_COARSE : HC_SCALES;
    job->is_half = plain && form.scale == HC_SCALE_F16;
    job->args.flip = job->args.zero = form.is_signed ? 1 << (form.bits - 1) : 0;
    job->args.words = scaled ? (int)words : 0;
    job->args.scale_bytes = scaled ? hc_ceil_div(geometry->groups, 2) : (int64_t)sizeof ONE;
    return form.bits == 8 && plain && form.is_signed ? 8 : form.bits == 4 && (plain || scaled) ? 4 : 0;
}

/* The longest step with at most 4 nonzeros; 0 if there is none, or no kernel for it. */
static int longest_step(const hc_product *p) {
    const hc_format *format = p->w_packed->format;
    int kr = HC_PICK(gemv_nm_dots, p->run) ? 64 : 0;
    while (kr >= 8 && (kr % format->m || kr / format->m * format->n > 4))
        kr /= 2;
    return kr < 8 ? 0 : kr;
}

static void choose_nonzeros(hc_int_nm_job *job, const hc_product *p) {
    const hc_format *format = job->weights->format;
    const hc_run *run = p->run;
    hc_gemv_nm_integers_fn *const dots = HC_PICK(gemv_nm_dots, run), *const folded = HC_PICK(gemv_nm_folded, run);
    const int kr = longest_step(p);
    hc_nm_form_init(&job->form, format, kr, run);
    job->args.kr = kr;
    job->args.base = job->form.base;
    const int bits = code_bits(job);
    const int64_t slots = hc_ceil_div(job->source->columns, kr) * 4, padded = job->weights->geometry->padded;
    job->is_stored = bits == 8 || (bits == 4 && folded);
    job->kernel = job->is_stored && bits == 4 ? folded : dots;
    const hc_component *parts = job->weights->components->part;
    job->row_bytes = hc_round_up(hc_max(slots, padded) + 64, HC_CACHE_LINE);
    if (job->is_stored) {
        job->args.position_bits = hc_position_bits(format->m);
        job->args.code_bytes = hc_ceil_div(padded * bits, 8);
        job->args.metadata_bytes = hc_ceil_div(job->weights->geometry->columns * job->args.position_bits, 8);
        job->args.codes_stride = parts[HC_CODES].row_stride;
        job->args.metadata_stride = parts[HC_METADATA].row_stride;
        job->args.scales_stride = job->args.words ? parts[HC_SCALES].row_stride : 0;
    } else {
        job->scratch_bytes = 3 * ROWS * job->row_bytes;
        job->args.position_bits = 8;
        job->args.code_bytes = job->args.metadata_bytes = slots;
        job->args.codes_stride = job->args.metadata_stride = job->row_bytes;
    }
    job->ldx = job->args.ldx = hc_round_up(job->row_bytes / 4, 16) * kr; /* as the longest row of codes */
}

/* false if it needs too much memory. */
static bool plan(hc_int_nm_job *job, const hc_product *p) {
    *job = (hc_int_nm_job){.weights = p->w_packed,
                           .source = p->w,
                           .rows = p->w->rows,
                           .n_vectors = p->x->rows,
                           .n_signed_limbs = hc_gemv_limbs(&p->x->form[HC_INT_FOLDED]),
                           .out = &p->out};
    choose_nonzeros(job, p);
    job->task_rows = hc_round_up(hc_max(TASK_BYTES / hc_max(job->args.code_bytes, 1), 1), ROWS);
    job->n_tasks = hc_ceil_div(job->rows, job->task_rows);
    job->n_threads = (int)hc_min(hc_min(p->run->n_threads, HC_MAX_THREADS), job->n_tasks);
    job->x_total = job->n_vectors * job->n_signed_limbs * job->ldx;
    job->bytes = job->x_total + job->scratch_bytes * job->n_threads + 3 * p->x_packed->geometry->padded;
    return job->bytes <= HC_WORK_BYTES;
}

const char *hc_gemv_int_nm_refuses(const hc_product *p) {
    const char *reason = hc_gemv_few_refuse(p);
    hc_int_nm_job job;
    if (reason)
        return reason;
    if (!p->w->sparse)
        return "the weights have no pattern";
    if (p->w->form[HC_INT_FOLDED].n_limbs != 1)
        return "the weights' integers take more than 8 bits";
    if (longest_step(p) == 0)
        return "no kernel for this pattern: more than 4 of every 8 to 64 columns, or none here";
    return p->w_packed->geometry->columns > LONGEST || !plan(&job, p) ? "rows too long to keep x in the cache" : NULL;
}

hc_status hc_gemv_int_nm_run(const hc_product *p, hc_error *error) {
    hc_int_nm_job job;
    plan(&job, p);
    uint8_t *memory = hc_alloc_aligned(job.bytes);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)job.n_vectors);
    job.x = memory;
    job.scratch = (int8_t *)memory + job.x_total;
    int8_t *limbs = job.scratch + job.scratch_bytes * job.n_threads;
    memset(memory, FLIP, (size_t)job.x_total);
    for (int64_t v = 0; v < job.n_vectors; v++)
        load_vector(&job, p->x_packed, v, limbs);
    hc_parallel(job.n_threads, job.n_tasks, nonzero_rows, &job);
    hc_free_aligned(memory);
    return HC_OK;
}

hc_work hc_gemv_int_nm_work(const hc_product *p) {
    const double lines = (double)p->x->rows * hc_gemv_limbs(&p->x->form[HC_INT_FOLDED]);
    const double whole = (double)p->w->rows * (double)p->w->columns;
    hc_int_nm_job job;
    plan(&job, p);
    const double bytes = (double)p->w->rows * (double)job.args.code_bytes, slots = whole * 4 / longest_step(p);
    return (hc_work){.codes = job.is_stored ? bytes : 0,
                     .decoded = job.is_stored ? 0 : bytes,
                     .unpacked = !job.is_stored && hc_unpacked(p) ? bytes : 0,
                     .products = slots * lines,
                     .wide = job.is_stored && p->w_packed->format->bits <= 4 ? slots * lines : 0,
                     .groups = job.is_stored ? hc_groups(p) * lines : 0,
                     .values = hc_values_and_results(p, lines, 1)};
}
