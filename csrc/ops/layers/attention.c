/* Attention, tile by tile of keys, with a running maximum (kernels/layers/layers.h states the sums).
 *
 *   task      a batch, a head of keys, some positions of queries, each with the query heads of that key head. With few
 *             queries a task has several heads of keys, since the heads of a token are adjacent in memory.
 *   tile      HC_KEYS keys from a multiple of HC_KEYS on. Plain keys are read in place, packed keys are decoded once per
 *             task. Few rows of queries read 8-bit codes in place, if there is a kernel for them. With a bias each
 *             query head has copies that are one value longer. Halves of keys are joined, also as the values' tile.
 *   block     HC_QUERIES rows, one per lane, if a task has more than a few; otherwise rows are contiguous. Same bits.
 *
 * Memory: for each thread queries, answers, maxima and sums of a task, and two tiles, three of halves, or four with a
 * bias. Dao et al., "FlashAttention", 2022 (arXiv 2205.14135); Milakov and Gimelshein, 2018 (arXiv 1805.02867).
 */
#include "base/convert.h"
#include "base/threads.h"
#include "hc_layers.h"
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/codec/decode.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    POSITIONS = 16, /* of a task, at least */
    MANY = 64,      /* rows of a task, if TASKS tasks per thread remain */
    TASKS = 4,
    FEW = 16,        /* rows of queries of a head */
    FEW_OF_BLOCK = 8 /* rows that are as fast one by one; measured with AVX2 on Zen 4 */
};

typedef struct {
    const hc_run *run;
    const hc_attention *given;
    hc_geometry geometry[2]; /* geometry of packed keys and values */
    int64_t positions;       /* of a task */
    int64_t blocks;          /* tasks per head */
    int64_t width;           /* of a row: one more than `given` with a bias */
    int64_t half;            /* values that k and v have of a row each, 0 if rows are whole */
    int64_t kv_heads, share; /* heads of keys, and how many of them have the same keys in memory */
    int64_t group, rows, tile_ld[2];
    int64_t heads, parts; /* heads of keys per task; tasks per batch and block of positions */
    hc_attend_fn *attend;
    bool in_lanes; /* attend is an attend_block */
    hc_pack_x32_fn *transpose;
    bool reads_codes[2]; /* whether codes of keys, of values are read as they are stored */
    float *memory;
    int64_t thread_floats;
} attention_job;

/* Prefetches the rows of the next tile. They are too far apart for hardware prefetchers. */
static void fetch_next(const hc_component *part, int64_t row_bytes, int64_t keys) {
    const int64_t stride = part->row_stride, step = hc_max(1, HC_CACHE_LINE / hc_max(1, stride));
    for (int64_t key = 0; key < keys; key += step)
        for (int64_t byte = 0; byte < row_bytes; byte += HC_CACHE_LINE)
            __builtin_prefetch(part->data + (HC_KEYS + key) * stride + byte, 0, 3);
}

static bool is_decoded(const attention_job *job, int side) {
    return (side ? job->given->v.packed : job->given->k.packed) && !job->reads_codes[side];
}

/* The tile of keys or values for the kernel: in place, or decoded to `space`. */
static hc_attend_keys tile_of(const attention_job *job, int side, int64_t batch, int64_t head, int64_t first,
                              int64_t keys, int64_t ahead, float *space) {
    const hc_attention *given = job->given;
    const hc_kept *kept = side ? &given->v : &given->k;
    const int64_t row = batch * kept->step[0] + head / job->share * kept->step[1] + first * kept->step[2];
    if (!kept->packed)
        return (hc_attend_keys){.data = kept->data + row, .ld = kept->step[2]};
    hc_components parts = kept->packed->components;
    if (job->reads_codes[side]) {
        const int64_t codes = parts.part[HC_CODES].row_stride, scales = parts.part[HC_SCALES].row_stride;
        return (hc_attend_keys){.codes = (const int8_t *)hc_part(&parts, HC_CODES, row),
                                .scales = hc_part(&parts, HC_SCALES, row),
                                .ld = codes * kept->step[2],
                                .scales_ld = scales * kept->step[2],
                                .group = job->geometry[side].group};
    }
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        if (parts.part[i].data) {
            const int64_t row_bytes = parts.part[i].row_stride;
            parts.part[i].data += row * row_bytes;
            parts.part[i].row_stride *= kept->step[2];
            fetch_next(&parts.part[i], row_bytes, hc_min(ahead, HC_KEYS));
        }
    parts.first_row += row; /* shared components have a value for several rows */
    hc_geometry geometry = job->geometry[side];
    geometry.rows = keys;
    const hc_tile tile = {0, keys, 0, geometry.padded};
    hc_decode_tile(job->run, &kept->packed->format, &geometry, &parts, &tile, space, geometry.padded);
    return (hc_attend_keys){.data = space, .ld = geometry.padded};
}

/* Rows of a tile with a further value each: the bias of the key, or 0 for values. */
static void extend(const attention_job *job, const float *bias, int64_t keys, hc_attend_keys *tile, float *space) {
    const int64_t width = job->given->width;
    for (int64_t key = 0; key < keys; key++) {
        memcpy(space + key * job->width, tile->data + key * tile->ld, (size_t)width * sizeof *space);
        space[key * job->width + width] = bias ? bias[key] : 0;
    }
    *tile = (hc_attend_keys){.data = space, .ld = job->width};
}

/* A tile of whole rows in `space`, from those of both halves. */
static hc_attend_keys joined(const attention_job *job, const hc_attend_keys half[2], int64_t keys, float *space) {
    const int64_t values = job->half, turned = job->given->turned;
    for (int64_t key = 0; key < keys; key++)
        for (int side = 0; side < 2; side++)
            memcpy(space + (2 * key + side) * values, half[side].data + key * half[side].ld,
                   (size_t)values * sizeof *space);
    hc_run run = *job->run;
    run.n_threads = 1;
    if (turned)
        hc_rotate_heads(&run, 2 * keys * (values / turned), turned, space);
    return (hc_attend_keys){.data = space, .ld = 2 * values};
}

/* Queries of a task that share a head of keys, and their running results after some tiles. */
typedef struct {
    int64_t batch, head, first, rows;
    float *q, *answer, *largest, *sum;
} attention_rows;

/* Rows [r, r + count) are `step` values apart in q or in the output, from `at` on: those of one position, or all rows if a
 * position has one. They are in one block. */
typedef struct {
    int64_t count, at, step;
} row_run;
static row_run run_from(const attention_job *job, const attention_rows *some, int64_t r, const int64_t *step) {
    const int64_t group = job->group, head = some->head * group + r % group;
    const int64_t left = hc_min(some->rows - r, job->in_lanes ? HC_QUERIES - r % HC_QUERIES : 1);
    const int64_t at = some->batch * step[0] + head * step[1] + (some->first + r / group) * step[2];
    return group == 1 ? (row_run){left, at, step[2]} : (row_run){hc_min(left, group - r % group), at, step[1]};
}

/* Element 0 of row r of a block; element i is HC_QUERIES * i further. */
static int64_t lane_of(int64_t width, int64_t r) { return r / HC_QUERIES * HC_QUERIES * width + r % HC_QUERIES; }

static void begin_rows(const attention_job *job, const attention_rows *some) {
    const hc_attention *given = job->given;
    const int64_t width = job->width, all = job->in_lanes ? hc_round_up(some->rows, HC_QUERIES) : some->rows;
    memset(some->answer, 0, (size_t)(all * width) * sizeof *some->answer);
    if (all > some->rows) /* lanes without a row */
        memset(some->q + (all - HC_QUERIES) * width, 0, (size_t)(HC_QUERIES * width) * sizeof *some->q);
    row_run run;
    for (int64_t r = 0; r < some->rows; r += run.count) {
        run = run_from(job, some, r, given->q_step);
        if (job->in_lanes)
            job->transpose(given->q + run.at, run.step * (int64_t)sizeof(float), (int)run.count, given->width,
                           some->q + lane_of(width, r), HC_QUERIES, 0);
        else
            memcpy(some->q + r * width, given->q + run.at, (size_t)given->width * sizeof *some->q);
    }
    for (int64_t r = 0; given->bias && r < some->rows; r++)
        some->q[job->in_lanes ? lane_of(width, r) + HC_QUERIES * (width - 1) : r * width + width - 1] =
            (float)(1 / (double)given->scale);
    for (int64_t r = 0; r < all; r++) {
        /* a sink is a score before all others, whose value is 0 */
        const bool has_sink = given->sinks && r < some->rows;
        some->largest[r] = has_sink ? given->sinks[some->head * job->group + r % job->group] : -INFINITY;
        some->sum[r] = has_sink ? 1 : 0;
    }
}

/* answer / sum of a block */
static void divide_lanes(int64_t width, const float *sum, float *answer) {
    for (int64_t i = 0; i < width; i++)
        for (int r = 0; r < HC_QUERIES; r++)
            answer[i * HC_QUERIES + r] /= sum[r];
}

static void end_rows(const attention_job *job, const attention_rows *some) {
    const hc_attention *given = job->given;
    const int64_t width = job->width, values = given->width;
    for (int64_t r = 0; job->in_lanes && r < some->rows; r += HC_QUERIES) {
        float sum[HC_QUERIES];
        memcpy(sum, some->sum + r, sizeof sum);
        divide_lanes(width, sum, some->answer + r * width);
    }
    row_run run;
    for (int64_t r = 0; r < some->rows; r += run.count) {
        run = run_from(job, some, r, given->out_step);
        float *to = given->out + run.at;
        const float *from = some->answer + (job->in_lanes ? lane_of(width, r) : r * width);
        if (!job->in_lanes)
            for (int64_t i = 0; i < values; i++)
                to[i] = from[i] / some->sum[r];
        else if (run.step >= 0 && run.step <= INT32_MAX)
            for (int64_t i = 0; i < values; i += HC_QUERIES)
                job->transpose(from + i * HC_QUERIES, HC_QUERIES * sizeof(float), (int)hc_min(HC_QUERIES, values - i),
                               run.count, to + i, (int)run.step, 0);
        else
            for (int64_t l = 0; l < run.count; l++)
                for (int64_t i = 0; i < values; i++)
                    to[l * run.step + i] = from[i * HC_QUERIES + l];
    }
}

/* Adds keys [key, key + keys) of one head. `ahead` keys follow them. */
static void add_tile(const attention_job *job, const attention_rows *rows, int64_t key, int64_t keys, int64_t ahead,
                     float *tiles) {
    const hc_attention *given = job->given;
    const int64_t width = job->width, before = given->m - given->n; /* keys before the first query */
    const int64_t at_once = job->in_lanes ? HC_QUERIES : HC_KEYS;
    int32_t low[HC_KEYS] = {0}, high[HC_KEYS] = {0};
    hc_attend some = {.width = width, .q_ld = width, .ahead = ahead, .scale = given->scale, .cap = given->cap};
    some.k = tile_of(job, 0, rows->batch, rows->head, key, keys, ahead, tiles);
    some.v = tile_of(job, 1, rows->batch, rows->head, key, keys, ahead, tiles + HC_KEYS * job->tile_ld[0]);
    some.low = low;
    some.high = high;
    if (given->bias) {
        float *space = tiles + HC_KEYS * (job->tile_ld[0] + job->tile_ld[1]);
        extend(job, given->bias + rows->head * given->bias_step + key, keys, &some.k, space);
        extend(job, NULL, keys, &some.v, space + HC_KEYS * width);
        some.ahead = 0; /* the kernel cannot see the next tile */
    }
    if (given->halves) {
        some.k = joined(job, (const hc_attend_keys[]){some.k, some.v}, keys,
                        tiles + HC_KEYS * (job->tile_ld[0] + job->tile_ld[1]));
        some.v = some.k;
        some.ahead = 0;
    }
    if (is_decoded(job, 0) || is_decoded(job, 1))
        some.ahead = 0; /* tile_of has prefetched the next tile */
    for (int64_t start = 0; start < rows->rows; start += at_once) {
        some.rows = hc_min(at_once, rows->rows - start);
        for (int64_t r = 0; r < some.rows; r++) {
            const int64_t at = before + rows->first + (start + r) / job->group;
            const int64_t from = given->window > 0 ? at - given->window + 1 - key : 0;
            const int64_t to = given->causal ? at + 1 - key : keys;
            low[r] = (int32_t)hc_min(hc_max(from, 0), keys);
            high[r] = (int32_t)hc_min(hc_max(to, 0), keys);
        }
        for (int64_t r = some.rows; r < at_once; r++)
            low[r] = high[r] = 0;
        some.q = rows->q + start * width;
        some.largest = rows->largest + start;
        some.sum = rows->sum + start;
        some.answer = rows->answer + start * width;
        job->attend(&some);
        some.ahead = 0;
    }
}

static void attention_task(void *context, int64_t task, int thread) {
    const attention_job *job = context;
    const hc_attention *given = job->given;
    const int64_t block = task % job->blocks, part = task / job->blocks % job->parts;
    const int64_t first = block * job->positions, positions = hc_min(job->positions, given->n - first);
    const int64_t head = part * job->heads, n_heads = hc_min(job->heads, job->kv_heads - head);
    const int64_t each = job->rows * (2 * job->width + 2);
    float *memory = job->memory + thread * job->thread_floats, *tiles = memory + job->heads * each;
    attention_rows rows = {
        task / job->blocks / job->parts, head, first, positions * job->group, NULL, NULL, NULL, NULL};
    const int64_t before = given->m - given->n;
    const int64_t last = given->causal ? before + first + positions : given->m;
    int64_t begin = given->window > 0 ? hc_max(0, before + first - given->window + 1) : 0;
    begin -= begin % HC_KEYS;
    for (int64_t key = begin; key < last; key += HC_KEYS)
        for (int64_t h = 0; h < n_heads; h++) {
            rows.head = head + h;
            rows.q = memory + h * each;
            rows.answer = rows.q + job->rows * job->width;
            rows.largest = rows.answer + job->rows * job->width;
            rows.sum = rows.largest + job->rows;
            if (key == begin)
                begin_rows(job, &rows);
            add_tile(job, &rows, key, hc_min(HC_KEYS, last - key), hc_max(0, last - key - HC_KEYS), tiles);
            if (key + HC_KEYS >= last)
                end_rows(job, &rows);
        }
}

/* Number of rows from the first key to the last, over all tokens and heads; INT64_MAX if it is larger. */
static int64_t rows_of(const hc_attention *given, const hc_kept *kept) {
    const int64_t count[] = {given->batch, given->kv_heads, given->m};
    int64_t rows = 1;
    for (int i = 0; i < 3; i++) {
        int64_t part;
        if (kept->step[i] < 0 || !hc_mul_size(count[i] - 1, kept->step[i], &part) || part > INT64_MAX - rows)
            return INT64_MAX;
        rows += part;
    }
    return rows;
}

/* Whether no 8-bit code times one of these scales exceeds the largest float32. Decoding would saturate there. */
static bool are_small(const uint8_t *scales, int64_t n) {
    const uint32_t limit = hc_f32_bits(FLT_MAX / 128);
    uint32_t beyond = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, scales + 4 * i, sizeof bits);
        beyond |= limit - (bits & 0x7fffffff); /* bit 31 is set if |scale| exceeds the limit */
    }
    return beyond >> 31 == 0;
}

/* Whether the kernel can read these codes as they are stored, so that few rows of queries need no decoded tile. */
static bool reads_codes(const hc_attention *given, const hc_kept *kept, const hc_geometry *geometry) {
    if (!kept->packed)
        return false;
    const hc_stored_form form = hc_form_of(&kept->packed->format);
    return hc_form_is_bytes(&form) && hc_form_has_f32_scales(&form) && geometry->padded == geometry->columns &&
           (geometry->group % 16 == 0 || geometry->groups == 1) &&
           kept->packed->components.part[HC_SCALES].row_stride == 4 * geometry->groups &&
           are_small(hc_part(&kept->packed->components, HC_SCALES, 0), rows_of(given, kept) * geometry->groups);
}

static hc_status check_kept(const char *name, const hc_attention *given, const hc_kept *kept, int64_t width,
                            hc_geometry *geometry, hc_error *error) {
    if (!kept->packed)
        return HC_OK;
    const hc_status status = hc_check_packed(name, kept->packed, geometry, error);
    if (status != HC_OK)
        return status;
    if (geometry->columns != width || kept->packed->format.m > 0 || rows_of(given, kept) > geometry->rows ||
        kept->packed->n_axes != 1 || kept->packed->axes[0] != kept->packed->ndim - 1)
        return hc_fail(error, HC_VALUE, "attention: %s does not hold rows of %lld values for every head and token",
                       name, (long long)width);
    const hc_component *part = kept->packed->components.part;
    for (int i = 0; i < HC_N_COMPONENTS; i++) /* the rows of a tile are adjacent where they share a component */
        if (part[i].data && part[i].row_stride == 0 && kept->step[2] != 1 && given->m > 1)
            return hc_fail(error, HC_VALUE, "attention: rows of %s share a component, expected adjacent tokens", name);
    return HC_OK;
}

hc_status hc_attend_all(const hc_run *run, const hc_attention *given, hc_error *error) {
    if (given->batch <= 0 || given->heads <= 0 || given->n <= 0 || given->width <= 0)
        return HC_OK;
    const int64_t least = given->causal || given->window > 0 ? given->n : 1;
    if (given->m < least || given->kv_heads <= 0 || given->heads % given->kv_heads != 0)
        return hc_fail(error, HC_VALUE, "attention: %lld keys, expected %lld or more", (long long)given->m,
                       (long long)least);
    if (given->halves && given->bias)
        return hc_fail(error, HC_VALUE, "attention: halves of keys have a bias, expected none");
    attention_job job = {.run = run, .given = given, .transpose = HC_PICK(pack_x32, run)};
    job.half = given->halves ? hc_ceil_div(given->width, 2) : 0;
    const int64_t stored = given->halves ? job.half : given->width;
    hc_status status = check_kept("k", given, &given->k, stored, &job.geometry[0], error);
    if (status == HC_OK)
        status = check_kept("v", given, &given->v, stored, &job.geometry[1], error);
    if (status != HC_OK)
        return status;
    job.group = given->bias ? 1 : given->heads / given->kv_heads;
    job.kv_heads = given->heads / job.group;
    job.share = job.kv_heads / given->kv_heads;
    job.width = given->width + (given->bias ? 1 : 0);
    job.positions = hc_max(POSITIONS, MANY / job.group);
    if (given->batch * job.kv_heads * hc_ceil_div(given->n, job.positions) < TASKS * run->n_threads)
        job.positions = POSITIONS;
    job.blocks = hc_ceil_div(given->n, job.positions);
    job.rows = hc_min(job.positions, given->n) * job.group;
    job.tile_ld[0] = given->k.packed ? job.geometry[0].padded : 0;
    job.tile_ld[1] = given->v.packed ? job.geometry[1].padded : 0;
    const bool few = job.rows <= FEW;
    job.attend = few && !given->bias ? HC_PICK(attend_codes, run) : NULL;
    for (int side = 0; job.attend && !given->halves && side < 2; side++)
        job.reads_codes[side] = reads_codes(given, side ? &given->v : &given->k, &job.geometry[side]);
    if (job.rows > FEW_OF_BLOCK && !job.reads_codes[0] && !job.reads_codes[1]) {
        job.attend = HC_PICK(attend_block, run);
        job.in_lanes = job.attend != NULL;
        job.rows = job.in_lanes ? hc_round_up(job.rows, HC_QUERIES) : job.rows;
    }
    if (!job.attend)
        job.attend = HC_PICK(attend, run);
    job.heads = few ? hc_ceil_div(job.kv_heads, hc_min(run->n_threads, job.kv_heads)) : 1;
    job.parts = hc_ceil_div(job.kv_heads, job.heads);
    const int64_t tasks = given->batch * job.parts * job.blocks;
    const int n_threads = (int)hc_min(run->n_threads, tasks);
    job.thread_floats =
        hc_round_up(job.heads * job.rows * (2 * job.width + 2) +
                        HC_KEYS * (job.tile_ld[0] + job.tile_ld[1] + 2 * job.half + (given->bias ? 2 * job.width : 0)),
                    HC_SUMS);
    job.memory = hc_alloc_aligned(n_threads * job.thread_floats * (int64_t)sizeof(float));
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "attention: not enough memory");
    hc_parallel(n_threads, tasks, attention_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
