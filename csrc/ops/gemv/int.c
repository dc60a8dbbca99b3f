/* Stored weights times few integer vectors. A value of x with more than 8 bits is split into signed 8-bit limbs. Each
 * limb is a separate vector for the kernel, which computes the exact dot product of every segment:
 *
 *   x = sum_d 256^d x_d, |x_d| <= 128      dot_s = sum_d 256^d (sum_k x_d[k] u[k] - zero sum_k x_d[k])
 *
 * A segment ends at every group boundary of either side. Rows with one group are split every SEGMENT codes. More than
 * HC_GEMV_MOST vectors are multiplied in several turns.
 */
#include "ops/gemv/int.h"
#include "base/convert.h"
#include "base/threads.h"
#include "ops/codec/decode.h"
#include "ops/product/pack.h"

#include <math.h>
#include <string.h>

enum { SEGMENT = 1024, LONGEST = 65536 };

/* Places the scratch memory of a thread from `memory` on. With memory NULL it only returns the bytes. */
static int64_t scratch_init(const hc_integers_job *job, uint8_t *memory, hc_integers_scratch *scratch) {
    const int64_t line = job->padded_segments * (int64_t)sizeof(float), limbs = job->n_signed_limbs * line;
    const bool reads_rows = job->scaled || job->turned || job->folded_bytes;
    const int64_t grouped = job->kind == HC_ORDER_GROUPED || reads_rows ? HC_INTEGERS_ROWS * line : 0;
    const int64_t rows = reads_rows && job->weights.unpacks && !job->is_packed ? HC_INTEGERS_ROWS : 1;
    const int64_t row_at = reads_rows ? HC_GEMV_SCALED_BYTES : 0;
    const int64_t dots_at = row_at + rows * hc_round_up(job->weights.scratch_bytes, HC_CACHE_LINE);
    const int64_t corrections_at = dots_at + job->n_vectors * limbs, ones_at = corrections_at + limbs;
    const int64_t scales_at = ones_at + line, values_at = scales_at + grouped;
    const int64_t dense_at = values_at + job->n_vectors * grouped;
    if (memory)
        *scratch = (hc_integers_scratch){
            .scaled = memory,
            .row = memory + row_at,
            .dots = (int32_t *)(memory + dots_at),
            .corrections = (int32_t *)(memory + corrections_at),
            .ones = (float *)(memory + ones_at),
            .scales = (float *)(memory + scales_at),
            .values = memory + values_at,
            .dense = memory + dense_at,
        };
    return dense_at + (job->densifies ? hc_gemv_densified_bytes(&job->dense, &job->weights) : 0);
}

/* The part of the zero point in the dot products of vector v. */
static const int32_t *row_corrections(const hc_integers_job *job, const hc_gemv_row *row, int64_t v,
                                      const hc_integers_scratch *scratch) {
    const int64_t n = job->padded_segments, group = job->geometry->group;
    if (!row->zeros)
        return job->corrections + v * job->n_signed_limbs * n;
    for (int d = 0; d < job->n_signed_limbs; d++) {
        const int32_t *sums = job->sums + (v * job->n_signed_limbs + d) * n;
        int32_t *corrections = scratch->corrections + d * n;
        if (group == job->segment) {
            for (int64_t s = 0; s < job->segments; s++)
                corrections[s] = sums[s] * (int32_t)row->zeros[s];
            continue;
        }
        for (int64_t s = 0, g = 0, behind = 0; s < job->segments; s++) {
            corrections[s] = sums[s] * (int32_t)row->zeros[g];
            behind += job->segment;
            if (behind == group)
                behind = 0, g++;
        }
    }
    return scratch->corrections;
}

/* Joins the dot products of limbs, exactly, to float32. */
static void join_limbs(const hc_integers_job *job, const int32_t *dots, const int32_t *corrections, float *values) {
    const int64_t n = job->padded_segments;
    if (job->n_signed_limbs == 1) {
        for (int64_t s = 0; s < job->segments; s++)
            values[s] = (float)(int32_t)((uint32_t)dots[s] - (uint32_t)corrections[s]);
        return;
    }
    for (int64_t s = 0; s < job->segments; s++) {
        int64_t dot = 0;
        for (int d = job->n_signed_limbs - 1; d >= 0; d--)
            dot = dot * 256 + (int32_t)((uint32_t)dots[d * n + s] - (uint32_t)corrections[d * n + s]);
        values[s] = (float)dot;
    }
}

/* S of a row and vector v. */
static int64_t folded_sum(const hc_integers_job *job, const hc_gemv_row *row, int64_t v,
                          const hc_integers_scratch *scratch) {
    const int64_t n = job->padded_segments;
    const int32_t *corrections = row_corrections(job, row, v, scratch);
    int64_t sum = 0;
    for (int d = job->n_signed_limbs - 1; d >= 0; d--)
        sum = sum * 256 + job->sum(job->segments, job->folds ? row->scales : scratch->ones,
                                   scratch->dots + (v * job->n_signed_limbs + d) * n, corrections + d * n);
    return job->weights.form.scale == HC_SCALE_INTEGER && !job->folds ? sum * (int64_t)row->scales[0] : sum;
}

/* Dot products of a row with n lines of x from `first` on: limbs of a vector, vector after vector. */
static void dot_row(const hc_integers_job *job, hc_gemv_dots_args *args, int64_t first, int64_t n, int32_t *dots) {
    for (int64_t line = first; line < first + n; line += args->n_lines) {
        args->n_lines = (int)hc_min(first + n - line, HC_GEMV_LINES);
        args->x = job->x + line * job->x_bytes;
        args->dots = dots + line * args->ld;
        job->dots(args);
    }
}

/* GROUPED: first the dot products of 16 rows, then their chains in lanes. One limb without zero points stays int32. A
 * few lines of x, which stay in L1, are multiplied by all rows before the next lines, unless rows are unpacked. */
static void grouped_block(const hc_integers_job *job, hc_gemv_dots_args *args, int64_t block, int64_t n_rows,
                          const hc_integers_scratch *scratch) {
    const int64_t n = job->padded_segments, lines = job->n_vectors * job->n_signed_limbs;
    const bool joins = job->n_signed_limbs > 1 || job->weights.form.has_zero_points;
    const bool unpacks = job->densifies || job->weights.unpacks;
    const int64_t at_once = joins || unpacks ? lines : HC_GEMV_LINES;
    args->ld = joins ? n : HC_INTEGERS_ROWS * n;
    for (int64_t first = 0; first < lines; first += at_once)
        for (int64_t i = 0; i < n_rows; i++) {
            float *scales = scratch->scales + i * n;
            hc_gemv_row row;
            hc_gemv_row_load(&job->weights, block + i, first == 0, scratch->row, scales, &row);
            if (first == 0)
                hc_integers_scales(job, &row, scales);
            if (job->densifies)
                hc_gemv_densified_row(&job->dense, &job->weights, block + i, scratch->dense, &row);
            args->codes = row.codes;
            dot_row(job, args, first, hc_min(at_once, lines - first),
                    joins ? scratch->dots : (int32_t *)scratch->values + i * n);
            for (int64_t v = 0; joins && v < job->n_vectors; v++)
                join_limbs(job, scratch->dots + v * job->n_signed_limbs * n, row_corrections(job, &row, v, scratch),
                           (float *)scratch->values + (v * HC_INTEGERS_ROWS + i) * n);
        }
    for (int64_t v = 0; v < job->n_vectors; v++) {
        float y[HC_INTEGERS_ROWS];
        job->chain(job->segments, n, job->x_scales + v * n, scratch->scales,
                   (const int32_t *)scratch->values + v * HC_INTEGERS_ROWS * n, joins ? NULL : job->corrections + v * n,
                   y);
        hc_integers_store(job->out, block, job->first_vector + v, n_rows, y);
    }
}

/* FOLDED directly from storage: S of every row and line, a few lines at a time as above. */
static void folded_sums(const hc_integers_job *job, int64_t block, int64_t n_rows,
                        int64_t sums[HC_INTEGERS_ROWS][HC_INTEGERS_LINES]) {
    const hc_gemv_weights *weights = &job->weights;
    const hc_components *components = weights->packed->components;
    hc_gemv_folded_args args = {.flip = weights->flip,
                                .words = (int)(job->segment / 8),
                                .row_bytes = weights->row_bytes,
                                .x_bytes = job->x_bytes};
    const int64_t lines = job->n_vectors * job->n_signed_limbs;
    for (int64_t line = 0; line < lines; line += args.n_lines) {
        const int64_t left = lines - line;
        args.n_lines = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        args.x = job->x + line * job->x_bytes;
        args.start = job->start + line * job->words;
        for (int64_t i = 0; i < n_rows; i++) {
            args.codes = hc_part(components, HC_CODES, weights->packed->first_row + block + i);
            args.scales = hc_part(components, HC_SCALES, weights->packed->first_row + block + i);
            args.sums = sums[i] + line;
            job->folded(&args);
        }
    }
}

static void folded_block(const hc_integers_job *job, hc_gemv_dots_args *args, int64_t block, int64_t n_rows,
                         const hc_integers_scratch *scratch) {
    const hc_gemv_weights *weights = &job->weights;
    const bool has_sums = job->folded || job->folded_bytes || job->turned;
    const int limbs = job->n_signed_limbs, joined = has_sums ? limbs : 1;
    const int64_t lines = job->n_vectors * limbs;
    int64_t sums[HC_INTEGERS_LINES][HC_INTEGERS_ROWS], of_rows[HC_INTEGERS_ROWS][HC_INTEGERS_LINES];
    float scales[HC_INTEGERS_ROWS] = {0}, y[HC_INTEGERS_ROWS];
    args->ld = job->padded_segments;
    if (job->folded)
        folded_sums(job, block, n_rows, of_rows);
    else if (job->turned || job->folded_bytes)
        hc_integers_turned(job, block, n_rows, scratch, scales, sums);
    for (int64_t i = 0; i < n_rows && !job->turned && !job->folded_bytes; i++) {
        hc_gemv_row row = {0};
        if (job->folded) {
            const int64_t stored = weights->packed->first_row + block + i;
            row.row_scale = hc_load_f32(hc_part(weights->packed->components, HC_COARSE, stored));
        } else {
            hc_gemv_row_load(weights, block + i, true, scratch->row, NULL, &row);
            args->codes = row.codes;
            dot_row(job, args, 0, lines, scratch->dots);
            for (int64_t v = 0; v < job->n_vectors; v++)
                of_rows[i][v * limbs] = folded_sum(job, &row, v, scratch);
        }
        for (int64_t line = 0; line < lines; line += has_sums ? 1 : limbs)
            sums[line][i] = of_rows[i][line];
        scales[i] = weights->form.second ? row.row_scale : row.scales[0];
    }
    for (int64_t i = 0; i < n_rows; i++)
        scales[i] = (float)((double)scales[i] * (double)job->unit);
    for (int64_t v = 0; v < job->n_vectors; v++) {
        int64_t *all = sums[v * limbs + joined - 1];
        for (int d = joined - 2; d >= 0; d--)
            for (int64_t i = 0; i < n_rows; i++)
                all[i] = all[i] * 256 + sums[v * limbs + d][i];
        job->dequantize(1, n_rows, all, HC_INTEGERS_ROWS, job->x_scales + v, scales, y, HC_INTEGERS_ROWS);
        hc_integers_store(job->out, block, job->first_vector + v, n_rows, y);
    }
}

static void integer_rows(void *context, int64_t task, int thread) {
    const hc_integers_job *job = context;
    const hc_gemv_weights *weights = &job->weights;
    const int64_t first = task * job->task_rows, last = hc_min(first + job->task_rows, weights->rows);
    hc_integers_scratch scratch;
    scratch_init(job, job->scratch + thread * job->scratch_bytes, &scratch);
    for (int64_t s = 0; s < job->padded_segments; s++)
        scratch.ones[s] = 1;
    hc_gemv_dots_args args = {.bits = weights->bits,
                              .flip = weights->flip,
                              .table = weights->as_integers ? weights->table : NULL,
                              .is_narrow = weights->form.bits < 8,
                              .segment = job->segment,
                              .segments = job->segments,
                              .row_bytes = job->densifies ? job->dense.row_bytes
                                                          : hc_ceil_div(job->geometry->padded * weights->bits, 8),
                              .x_bytes = job->x_bytes};
    for (int64_t block = first; block < last; block += HC_INTEGERS_ROWS) {
        const int64_t n_rows = hc_min(HC_INTEGERS_ROWS, last - block);
        if (job->scaled)
            hc_integers_scaled(job, block, n_rows, &scratch);
        else if (job->kind == HC_ORDER_GROUPED)
            grouped_block(job, &args, block, n_rows, &scratch);
        else
            folded_block(job, &args, block, n_rows, &scratch);
    }
}

/* The sums of 4 neighbours of 8 n values. */
static void sum_fours(const int8_t *x, int64_t n, int32_t *sums) {
    const uint64_t bytes = 0x00ff00ff00ff00ffu;
    for (int64_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, x + 8 * i, sizeof word);
        word ^= 0x8080808080808080u; /* + 128 */
        word = (word & bytes) + (word >> 8 & bytes);
        word += word >> 16;
        sums[2 * i] = (int32_t)(word & 0xffff) - 4 * 128;
        sums[2 * i + 1] = (int32_t)(word >> 32 & 0xffff) - 4 * 128;
    }
}

/* Sums of x over words and over segments. */
static void add_limbs(const hc_integers_job *job, const int8_t *x, int32_t *start, int32_t *sums) {
    enum { AT_ONCE = 64 }; /* groups of 8 values */
    const int32_t zero = (int32_t)job->weights.zero;
    const int64_t words = job->words, segment_words = words * job->segment / job->x_bytes;
    const bool is_half = job->weights.bits == 4;
    for (int64_t i = 0; i < job->x_bytes / 8; i += AT_ONCE) {
        const int64_t n = hc_min(job->x_bytes / 8 - i, AT_ONCE);
        int32_t fours[2 * AT_ONCE];
        sum_fours(x + 8 * i, n, fours);
        for (int64_t j = 0; j < n && is_half; j++)
            start[i + j] = fours[2 * j] + fours[2 * j + 1];
        if (!is_half)
            memcpy(start + 2 * i, fours, (size_t)n * 2 * sizeof *fours);
    }
    for (int64_t s = 0; s < job->segments; s++)
        for (int64_t i = s * segment_words; i < (s + 1) * segment_words; i++)
            sums[s] += start[i];
    for (int64_t i = 0; i < words; i++)
        start[i] *= -zero;
}

/* Decodes vector v and stores its limbs, their sums, and its scales; memory has 3 x padded bytes. */
static void load_vector(const hc_integers_job *job, const hc_packed_context *x, int64_t v, int8_t *memory,
                        float *group_scales) {
    const hc_int_mode mode = job->kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    const hc_geometry *geometry = x->geometry;
    const int64_t n = job->padded_segments;
    int8_t *limbs = job->x + v * job->n_signed_limbs * job->x_bytes;
    hc_gemv_load_vector(x, mode, job->first_vector + v, job->n_signed_limbs,
                        &(hc_gemv_vector){memory, limbs, job->x_bytes, group_scales, job->x_scales + v});
    if (mode == HC_INT_GROUPED)
        for (int64_t s = 0; s < job->segments; s++)
            job->x_scales[v * n + s] = group_scales[s * job->segment / geometry->group];
    for (int d = 0; d < job->n_signed_limbs; d++, limbs += job->x_bytes) {
        const int64_t line = v * job->n_signed_limbs + d;
        add_limbs(job, limbs, job->start + line * job->words, job->sums + line * n);
        if (job->weights.bits == 4)
            hc_order_nibbles(limbs, job->x_bytes);
    }
}

/* Codes of a segment; 0 if the segments of both sides have no common grid that the kernel supports. */
static int64_t choose_segment(const hc_integers_job *job, const hc_geometry *x_geometry) {
    const hc_geometry *geometry = job->geometry;
    const int64_t columns = geometry->columns;
    int64_t segment = job->kind == HC_ORDER_FOLDED && !job->folds ? columns : geometry->group;
    if (job->kind == HC_ORDER_GROUPED) {
        const int64_t other = x_geometry->group;
        if (segment < columns && other < columns && segment % other != 0 && other % segment != 0)
            return 0;
        segment = hc_min(segment, other);
    } else if (segment >= columns) {
        return SEGMENT; /* parts of one group are added in int64 */
    }
    const int64_t bits = segment * job->weights.bits, words = bits / 32;
    const bool fits = words == 1 || words == 2 || words == 4 || words == 8 || words % 16 == 0;
    return bits % 32 == 0 && fits && segment <= LONGEST ? segment : 0;
}

/* Whether one code represents 0 in all rows. False for small floats that become bytes: their byte of 0 is not the code
 * of 0. */
static bool has_zero_byte(const hc_gemv_weights *weights) {
    return hc_gemv_zero_code(&weights->form) >= 0 && !(weights->as_integers && weights->bits == 8);
}

/* Finds the segments, their kernels and the memory; false if this path does not apply. */
static bool plan(hc_integers_job *job, const hc_product *p) {
    const hc_packed_context *x = p->x_packed;
    const hc_geometry *x_geometry = x->geometry;
    const hc_run *run = p->run;
    hc_int_form form;
    *job = (hc_integers_job){.kind = p->order, .n_vectors = hc_min(p->x->rows, HC_GEMV_MOST), .out = &p->out};
    hc_format_find(x->format->family)
        ->int_form(x->format, p->order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED, &form);
    job->n_signed_limbs = hc_gemv_limbs(&form);
    if (!hc_gemv_weights_init(&job->weights, p, false))
        return false;
    job->densifies = p->w->sparse;
    if (job->densifies && (!has_zero_byte(&job->weights) || !hc_gemv_densified_init(&job->dense, &job->weights)))
        return false;
    const hc_geometry *geometry = job->geometry = job->densifies ? &job->dense.geometry : p->w_packed->geometry;
    const hc_int_mode mode = p->order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    job->unit = ldexpf(1, -p->w->form[mode].fraction_bits);
    job->folds = p->order == HC_ORDER_FOLDED && job->weights.form.scale == HC_SCALE_INTEGER;
    job->segment = choose_segment(job, x_geometry);
    if (job->segment == 0)
        return false;
    job->folds = job->folds && job->segment >= geometry->group; /* else all segments share one */
    job->segments = hc_ceil_div(geometry->columns, job->segment);
    job->padded_segments = hc_round_up(job->segments, 16);
    job->x_bytes = hc_round_up(job->padded_segments * job->segment, 128);
    job->words = job->x_bytes * job->weights.bits / 32;
    job->dots = HC_PICK(gemv_dots, run);
    job->sum = HC_PICK(gemv_sum, run);
    job->chain = HC_PICK(gemv_chain, run);
    job->dequantize = HC_PICK(dequantize_s64, run);
    const int64_t words = job->segment / 8;
    if (job->folds && !job->weights.as_integers && p->w_packed->format->bits == 4 &&
        job->weights.form.scale_bits == 4 && geometry->columns <= 1 << 20 && (words == 2 || words == 4 || words == 8) &&
        job->segment == geometry->group)
        job->folded = HC_PICK(gemv_folded, run);
    hc_integers_turned_plan(job, run);
    hc_integers_scaled_plan(job, run);
    const int64_t tasks_rows = (64 << 10) / hc_max(job->weights.row_bytes, 1);
    job->task_rows = hc_round_up(hc_max(tasks_rows, 1), HC_INTEGERS_ROWS);
    job->scratch_bytes = hc_round_up(scratch_init(job, NULL, NULL), HC_CACHE_LINE);
    job->n_tasks = hc_ceil_div(p->w->rows, job->task_rows);
    job->n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), job->n_tasks);
    const int64_t lines = job->n_vectors * job->n_signed_limbs, n = job->padded_segments;
    job->lines_bytes = lines * (job->x_bytes + 4 * job->words + 2 * n * 4) + job->n_vectors * n * 4;
    job->load_bytes = 3 * x_geometry->padded + 4 * x_geometry->groups + 4;
    return job->lines_bytes + job->load_bytes + job->n_threads * job->scratch_bytes <= HC_WORK_BYTES;
}

const char *hc_gemv_int_refuses(const hc_product *p) {
    const char *reason = hc_gemv_int_sides_refuse(p);
    hc_integers_job job;
    if (reason)
        return reason;
    if (p->w->sparse && p->order == HC_ORDER_FOLDED)
        return "the weights have a pattern";
    return plan(&job, p) ? NULL : "codes or groups that no kernel reads as they are stored, or rows too long";
}

/* Sums of short segments share registers; a longer segment, and the result, are reduced separately. */
hc_work hc_gemv_int_work(const hc_product *p) {
    enum { SHORT = 8 /* words */ };
    hc_integers_job job;
    plan(&job, p);
    const bool in_lanes = job.scaled || job.turned; /* of which the last ones may be empty */
    const double rows = (double)(in_lanes ? hc_round_up(p->w->rows, HC_INTEGERS_ROWS) : p->w->rows),
                 values = (double)p->x->rows * (double)p->w->columns;
    const double turns = (double)hc_ceil_div(p->x->rows, HC_GEMV_MOST), codes = rows * (double)p->w->columns;
    const double lines = (double)(p->x->rows * job.n_signed_limbs);
    /* the chain over segments has 16 lanes, of which the last may be empty */
    const double sums = rows * lines * (double)(job.scaled ? job.segments : hc_groups_in_lanes(p, job.segments));
    const bool is_grouped = job.kind == HC_ORDER_GROUPED, is_short = job.segment * job.weights.bits / 32 <= SHORT;
    const bool has_sums = job.folded || job.folded_bytes || job.turned;
    const int small = job.scaled ? HC_BEST(gemv_scaled, p->run)->small : 0; /* codes above are widened */
    const bool widens = small && (1 << job.weights.bits) > small + 1;
    const bool joins = is_grouped ? job.n_signed_limbs > 1 || widens : (is_short && !has_sums) || job.folded_bytes;
    return (hc_work){.codes = turns * codes,
                     .decoded = hc_integers_loads_scales(&job) ? turns * rows * (double)job.segments : 0,
                     .unpacked = hc_unpacked(p) ? turns * codes : 0,
                     .limbs = values * (job.n_signed_limbs - 1),
                     .spread = job.densifies ? turns * hc_spread(p) : 0,
                     .products = codes * lines,
                     .wide = joins ? codes * lines : 0,
                     .groups = is_grouped || (!is_short && !has_sums) ? sums : rows * lines,
                     .values = hc_values_and_results(p, (double)p->x->rows, 10)};
}

/* The vectors of a turn in the form of the kernels, at the start of the job's memory. */
static void load_vectors(hc_integers_job *job, const hc_packed_context *x) {
    const int64_t lines = job->n_vectors * job->n_signed_limbs, n = job->padded_segments;
    uint8_t *memory = (uint8_t *)job->x;
    memset(memory, 0, (size_t)job->lines_bytes);
    job->sums = (int32_t *)(void *)(memory + lines * job->x_bytes);
    job->corrections = job->sums + lines * n;
    job->start = job->corrections + lines * n;
    job->x_scales = (float *)(job->start + lines * job->words);
    float *group_scales = (float *)(void *)(memory + job->lines_bytes);
    for (int64_t v = 0; v < job->n_vectors; v++)
        load_vector(job, x, v, (int8_t *)(group_scales + x->geometry->groups), group_scales);
    for (int64_t i = 0; i < lines * n; i++)
        job->corrections[i] = job->sums[i] * (int32_t)job->weights.zero;
}

hc_status hc_gemv_int_run(const hc_product *p, hc_error *error) {
    const int64_t n_vectors = p->x->rows;
    hc_integers_job job;
    plan(&job, p);
    job.x = hc_alloc_aligned(job.lines_bytes + job.load_bytes);
    job.scratch = hc_alloc_aligned(job.scratch_bytes * job.n_threads);
    const bool has_memory = job.x && job.scratch;
    if (has_memory)
        memset(job.scratch, 0, (size_t)(job.scratch_bytes * job.n_threads));
    for (; has_memory && job.first_vector < n_vectors; job.first_vector += job.n_vectors) {
        job.n_vectors = hc_min(n_vectors - job.first_vector, HC_GEMV_MOST);
        load_vectors(&job, p->x_packed);
        hc_parallel(job.n_threads, job.n_tasks, integer_rows, &job);
    }
    hc_free_aligned(job.scratch);
    hc_free_aligned(job.x);
    return has_memory ? HC_OK
                      : hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)n_vectors);
}
