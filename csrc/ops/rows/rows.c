/* Folded matmuls without panels: rows of x times rows of w, both contiguous along k (kernels/rows/rows.h, rows_s8).
 * int8 codes without groups are read as they are stored, and so are 4-bit codes that have a kernel (rows_s4). Other
 * weights are decoded to int8, a group of rows at a time, once for all rows of x. Integers of more than 8 bits become
 * signed limbs, each a separate row:
 *
 *   x = sum_d 256^d x_d, w = sum_e 256^e w_e, |limbs| <= 128      S = sum_d,e 256^(d + e) sum_k x_d[k] w_e[k]
 *
 * Threads share groups of weight rows, and blocks of x where groups are few. Chunks of k keep the rows of x in L1.
 *
 * Memory: X_BYTES for the current rows of x, HC_WORK_BYTES for weights and sums of all threads.
 */
#include "ops/product/measure.h"
#include "ops/product/pack.h"
#include "ops/rows/driver.h"
#include "ops/rows/limbs.h"
#include "ops/rows/stored.h"

#include <string.h>

enum {
    LONGEST = 65536, /* the kernel's budget */
    X_BYTES = 8 << 20,
    GROUP_BYTES = 128 << 10, /* decoded, or read repeatedly: from L2 */
    MOST_ROWS = 504,         /* of a group; a multiple of the rows that kernels process at once */
    LEAST_ROWS = 12,
    /* Bytes of x that stay in L1 next to the stream of weights. If several blocks of x are multiplied by weights from
     * L2, 16 KiB (of an L1 of 48 KiB) were faster than 24 and 32 (Zen 5, one thread, 4096 x 14336, 2026-11). With one
     * block, up to 32 KiB were faster (Zen 4, int8, 8 rows: 1024 x 4096 185 -> 170 us, 4096 x 4096 746 -> 668 us). If
     * weights come from memory, whole rows are read faster than pieces, except with 4, 5 and 7 rows of x. Zen 4, int8,
     * 4096 x 14336, ms:
     *
     *   rows of x           4     6     7     8
     *   whole rows        2.9   1.9   3.9   2.6
     *   pieces of 32 KiB  2.9   2.7   3.2   3.3
     *   pieces of 16 KiB  2.1   2.7   3.4   3.4 */
    CHUNK_BYTES = 16 << 10,
    ONE_BLOCK_BYTES = 32 << 10,
    WHOLE_BYTES = 128 << 10, /* in L2 */
    FAR_WHOLE_ROWS = 3,
    FAR_SHORT_ROWS = 5,
    FAR_BYTES = 8 << 20,     /* weights of at least this size are not in L2 */
    AHEAD_BYTES = 128 << 10, /* prefetched ahead, into L2 */
    /* the same for smaller weights, such as a layer of a language model; they may come from memory, too */
    NEAR_BYTES = 8 << 10,
    X_TASK_ROWS = 8,
};

/* Additional time for each piece after the first of rows that come from memory (Zen 4, 4096 x 4096 and 4096 x
 * 14336). */
#define PIECE_SHARE 0.1

typedef struct {
    const hc_product *product;
    const hc_source *x_source, *w_source;
    hc_rows_s8_fn *multiply;
    hc_dequantize_s32_fn *dequantize_s32;
    hc_dequantize_s64_fn *dequantize_s64;
    hc_combine_limbs_fn *join;
    hc_pack_x32_fn *transpose;
    hc_rows out;
    int x_limbs, w_limbs;
    bool is_small;       /* weights are small enough for the faster sums of the kernel */
    bool direct;         /* weights are read as they are stored */
    bool nibbles;        /* these are 4-bit codes */
    int words;           /* 32-bit words of 4-bit codes that share a scale; 0: one scale per row */
    bool is_far;         /* weights are read as they are stored from memory, once */
    int64_t n, k, bytes; /* bytes: of the codes of all weights */
    int64_t ld, chunk, n_chunks;
    int64_t ahead; /* rows that are prefetched, or 0 */
    hc_row_blocks blocks;
    int64_t ldc;                                                    /* leading dimension of sums */
    int64_t decoded_at, sums_at, values_at, dots_at, private_bytes; /* of one thread */
    uint8_t *memory, *private_memory;
    int8_t *x;       /* (x_planes, most, ld) */
    int32_t *x_sums; /* (n_chunks, x_limbs, most) */
    int32_t *starts; /* (rows, ld / 8): of one or two rows of x, with 4-bit weights with scales; otherwise NULL */
    float *x_scales;
} hc_rows_job;

/* `start` of a row of x for rows_s4. */
static void sum_words(const int8_t *x, int64_t words, int32_t *start) {
    for (int64_t i = 0; i < words; i++) {
        int32_t sum = 0;
        for (int64_t k = 0; k < 8; k++)
            sum += x[i * 8 + k];
        start[i] = -8 * sum;
    }
}

static void x_task(void *context, int64_t task, int thread) {
    const hc_rows_job *job = context;
    const hc_row_blocks *blocks = &job->blocks;
    const int64_t first = task * X_TASK_ROWS, rows = hc_min(X_TASK_ROWS, blocks->rows - first);
    const int64_t plane = blocks->most * job->ld;
    (void)thread;
    hc_rows_load(job->x_source, blocks->first_row + first, rows, job->ld, plane, job->x + first * job->ld,
                 job->x_scales + first);
    for (int d = 0; d < job->x_limbs; d++)
        for (int64_t i = first; i < first + rows; i++) {
            int8_t *row = job->x + d * plane + i * job->ld;
            memset(row + job->k, 0, (size_t)(job->ld - job->k));
            for (int64_t c = 0; c < job->n_chunks; c++)
                job->x_sums[(c * job->x_limbs + d) * blocks->most + i] =
                    hc_rows_sum(row + c * job->chunk, hc_min(job->chunk, job->k - c * job->chunk));
            if (job->starts)
                sum_words(row, job->ld / 8, job->starts + i * (job->ld / 8));
            if (job->nibbles)
                hc_order_nibbles(row, hc_round_up(job->k, HC_NIBBLES_STEP));
        }
}

/* Writes rows of `out` from values with the leading dimension ld. */
static void store(const hc_rows_job *job, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t ld,
                  const float *values) {
    const int64_t step = job->out.column_stride;
    const bool is_across = job->out.n_dims == 1 && job->out.stride[0] == sizeof(float) && step > 0 && step % 4 == 0;
    if (is_across && step / 4 <= INT32_MAX) {
        job->transpose(values, ld * 4, (int)rows, columns, hc_row(&job->out, row) + column * step, (int)(step / 4), 0);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        char *to = hc_row(&job->out, row + i) + column * step;
        for (int64_t j = 0; j < columns; j++, to += step)
            memcpy(to, values + i * ld + j, sizeof(float));
    }
}

/* Multiplies rows [x_first, x_first + n_x) of the current x by a group of weights. */
static void multiply_block(const hc_rows_job *job, hc_rows_s8_args *args, int64_t x_first, int64_t group_first,
                           const int8_t *w, int64_t w_plane, const float *w_scales, uint8_t *scratch) {
    const int64_t ldc = job->ldc, tile = args->n_x * ldc, n_w = args->n_w;
    int32_t *sums = (int32_t *)(void *)(scratch + job->sums_at);
    int shifts[HC_MAX_SIGNED_LIMBS * HC_MAX_SIGNED_LIMBS], pairs = 0;
    const int8_t *next = args->next;
    const uint8_t *scales = args->scales, *next_scales = args->next_scales;
    const int codes = job->nibbles ? 2 : 1; /* of a byte */
    args->ldc = ldc;
    for (int d = 0; d < job->x_limbs; d++)
        for (int e = 0; e < job->w_limbs; e++) {
            for (int64_t c = 0; c < job->n_chunks; c++) {
                const int64_t k = c * job->chunk;
                args->columns = hc_min(job->chunk, job->k - k);
                args->x = job->x + (d * job->blocks.most + x_first) * job->ld + k;
                args->x_sums = job->x_sums + (c * job->x_limbs + d) * job->blocks.most + x_first;
                args->w = w + e * w_plane + k / codes;
                args->scales = args->words && scales ? scales + k / (16 * args->words) : NULL;
                args->start = job->starts ? job->starts + x_first * (job->ld / 8) + k / 8 : NULL;
                args->next = next ? next + k / codes : NULL;
                args->next_scales = c == 0 ? next_scales : NULL;
                args->accumulate = c > 0;
                args->c = sums + pairs * tile;
                job->multiply(args);
            }
            shifts[pairs++] = 8 * (d + e);
        }
    args->next = next;
    args->scales = scales;
    args->next_scales = next_scales;
    const bool is_plain = job->out.n_dims <= 1 && job->out.column_stride == sizeof(float);
    const int64_t row = job->blocks.first_row + x_first;
    float *values = (float *)(void *)(scratch + job->values_at);
    int64_t ld = ldc;
    if (is_plain) {
        values = (float *)(void *)hc_row(&job->out, row) + group_first;
        ld = job->out.n_dims ? job->out.stride[0] / (int64_t)sizeof(float) : 0;
    }
    const float *x_scales = job->x_scales + x_first;
    if (pairs == 1) {
        job->dequantize_s32(args->n_x, n_w, sums, ldc, x_scales, w_scales, values, ld);
    } else {
        int64_t *dots = (int64_t *)(void *)(scratch + job->dots_at);
        memset(dots, 0, (size_t)tile * sizeof *dots);
        job->join(pairs, tile, sums, shifts, dots);
        job->dequantize_s64(args->n_x, n_w, dots, ldc, x_scales, w_scales, values, ld);
    }
    if (!is_plain)
        store(job, row, args->n_x, group_first, n_w, ld, values);
}

/* Some blocks of x times a group of weights. */
static void group_task(void *context, int64_t task, int thread) {
    const hc_rows_job *job = context;
    const hc_row_blocks *blocks = &job->blocks;
    const hc_row_task of = hc_row_task_of(blocks, task);
    const int64_t first = of.first;
    uint8_t *scratch = job->private_memory + thread * job->private_bytes;
    float *scales = (float *)(void *)scratch;
    hc_rows_s8_args args = {.n_w = hc_min(blocks->group_rows, job->n - first),
                            .ld_x = job->ld,
                            .ld_w = job->ld,
                            .is_small = job->is_small,
                            .words = job->words,
                            .ld_start = job->ld / 8};
    const int8_t *w = (const int8_t *)scratch + job->decoded_at, *next = NULL;
    const int64_t w_plane = blocks->group_rows * job->ld;
    if (job->direct) {
        hc_rows_stored(job->product, first, &args, scales);
        w = args.w;
        next = job->ahead ? w : NULL;
    } else {
        hc_rows_load(job->w_source, first, args.n_w, job->ld, w_plane, (int8_t *)scratch + job->decoded_at, scales);
    }
    for (int64_t block = of.from; block < of.to; block++) {
        const int64_t x_first = hc_row_first_unit(blocks, block), x_last = hc_row_first_unit(blocks, block + 1);
        args.n_x = (int)(x_last - x_first);
        args.part = (int)(block - of.from);
        args.parts = (int)(of.to - of.from);
        if (next) {
            args.next =
                (const int8_t *)((uintptr_t)next + (uintptr_t)(job->ahead * args.ld_w)); /* maybe after the end */
            if (args.scales)
                args.next_scales = (const uint8_t *)((uintptr_t)args.scales + (uintptr_t)(job->ahead * args.ld_scales));
        }
        multiply_block(job, &args, x_first, first, w, w_plane, scales, scratch);
    }
}

static bool are_small(const hc_source *w, const hc_run *run) {
    return w->form[HC_INT_FOLDED].max_abs <= HC_BEST(rows_s8, run)->small;
}

/* Number of chunks of a row, for `rows` rows of x at once. */
static int64_t chunks_of(bool is_far, bool is_one_block, bool nibbles, int64_t rows, int64_t k) {
    const int64_t bytes = k * rows;
    if (!is_one_block)
        return hc_ceil_div(bytes, CHUNK_BYTES);
    if (is_far && rows <= FAR_WHOLE_ROWS)
        return 1;
    if (nibbles || !is_far || bytes <= ONE_BLOCK_BYTES)
        return hc_ceil_div(bytes, ONE_BLOCK_BYTES);
    return hc_ceil_div(bytes, rows > FAR_SHORT_ROWS ? WHOLE_BYTES : CHUNK_BYTES);
}

static void plan(hc_rows_job *job, const hc_product *p) {
    const hc_run run = hc_run_for(p);
    const hc_source *x = p->x, *w = p->w;
    *job = (hc_rows_job){.product = p, .x_source = x, .w_source = w, .n = w->rows, .k = w->columns};
    job->nibbles = hc_rows_nibble_weights(p, &job->words);
    const hc_kernel *kernel = job->nibbles ? HC_BEST(rows_s4, &run) : HC_BEST(rows_s8, &run);
    job->multiply = job->nibbles ? kernel->fn.rows_s4 : kernel->fn.rows_s8;
    job->dequantize_s32 = HC_PICK(dequantize_s32, &run);
    job->dequantize_s64 = HC_PICK(dequantize_s64, &run);
    job->join = HC_PICK(combine_limbs, &run);
    job->transpose = HC_PICK(pack_x32, &run);
    job->out = hc_merged_rows(&p->out);
    job->is_small = are_small(w, &run);
    job->direct = job->nibbles || hc_rows_direct_weights(p);
    job->bytes = job->n * job->k / (job->nibbles ? 2 : 1);
    job->x_limbs = hc_signed_limbs(&x->form[HC_INT_FOLDED]);
    job->w_limbs = hc_signed_limbs(&w->form[HC_INT_FOLDED]);
    job->ld = hc_round_up(job->k, HC_NIBBLES_STEP) + HC_ROWS_STEP; /* rows of 4 KiB would share the cache sets of L1 */
    hc_row_blocks *at_hand = &job->blocks;
    at_hand->unit = 1;
    at_hand->portion = X_TASK_ROWS;
    at_hand->most_units = kernel->mr;
    at_hand->most = hc_min(x->rows, hc_max(X_BYTES / (hc_rows_planes(x) * job->ld), kernel->mr));
    const int64_t blocks = hc_ceil_div(at_hand->most, kernel->mr), at_once = hc_ceil_div(at_hand->most, blocks);
    job->is_far = job->direct && blocks == 1 && job->bytes >= FAR_BYTES;
    job->n_chunks = chunks_of(job->is_far, blocks == 1, job->nibbles, at_once, job->k);
    job->chunk = hc_round_up(hc_ceil_div(job->k, job->n_chunks), HC_NIBBLES_STEP);
    job->n_chunks = hc_ceil_div(job->k, job->chunk);
    const int64_t row_bytes = job->k * job->w_limbs;
    int64_t rows = job->direct && blocks == 1 ? MOST_ROWS : GROUP_BYTES / row_bytes;
    rows = hc_min(hc_min(rows, job->w_limbs * job->x_limbs > 1 ? MOST_ROWS / 4 : MOST_ROWS), job->n);
    at_hand->group_rows = hc_row_group(&run, job->n, rows, LEAST_ROWS);
    job->ldc = hc_round_up(at_hand->group_rows, 16);
    const int64_t pairs = job->x_limbs * job->w_limbs, tile = kernel->mr * job->ldc;
    job->sums_at = hc_round_up(at_hand->group_rows * (int64_t)sizeof(float), HC_CACHE_LINE);
    job->values_at = job->sums_at + pairs * tile * (int64_t)sizeof(int32_t);
    job->dots_at = job->values_at + tile * (int64_t)sizeof(float);
    job->decoded_at = job->dots_at + (pairs > 1 ? tile * (int64_t)sizeof(int64_t) : 0);
    const int64_t decoded = job->direct ? 0 : hc_rows_planes(w) * at_hand->group_rows * job->ld;
    job->private_bytes = hc_round_up(job->decoded_at + decoded, HC_CACHE_LINE);
    at_hand->n_threads = hc_row_threads(&run, job->private_bytes);
    if (job->is_far)
        job->ahead = AHEAD_BYTES / hc_min(job->chunk, job->k) + 1;
    else if (job->direct && blocks == 1)
        job->ahead = NEAR_BYTES / hc_max(job->k / (job->nibbles ? 2 : 1), 1) + 1;
    else if (job->direct && job->bytes >= FAR_BYTES)
        job->ahead = at_hand->group_rows;
}

static bool allocate(hc_rows_job *job) {
    const int64_t x_bytes = hc_rows_planes(job->x_source) * job->blocks.most * job->ld;
    const int64_t sums_at = x_bytes, lines = job->n_chunks * job->x_limbs * job->blocks.most;
    const int64_t starts_at = sums_at + lines * (int64_t)sizeof(int32_t);
    const bool starts = job->words && job->x_limbs == 1 && job->product->x->rows <= 2;
    const int64_t scales_at = starts_at + (starts ? job->blocks.most * job->ld / 2 : 0);
    const int64_t private_at = hc_round_up(scales_at + job->blocks.most * (int64_t)sizeof(float), HC_CACHE_LINE);
    job->memory = hc_alloc_aligned(private_at + job->blocks.n_threads * job->private_bytes);
    if (!job->memory)
        return false;
    job->x = (int8_t *)job->memory;
    job->x_sums = (int32_t *)(void *)(job->memory + sums_at);
    job->starts = starts ? (int32_t *)(void *)(job->memory + starts_at) : NULL;
    job->x_scales = (float *)(void *)(job->memory + scales_at);
    job->private_memory = job->memory + private_at;
    return true;
}

const char *hc_rows_folded_refuses(const hc_product *p) {
    return p->w->columns > LONGEST ? "rows of more than 65536 values" : NULL;
}

hc_work hc_rows_folded_work(const hc_product *p) {
    const double codes = (double)p->w->rows * (double)p->w->columns;
    const int x_limbs = hc_signed_limbs(&p->x->form[HC_INT_FOLDED]);
    const int pairs = x_limbs * hc_signed_limbs(&p->w->form[HC_INT_FOLDED]);
    int words = 0;
    const bool nibbles = hc_rows_nibble_weights(p, &words), direct = nibbles || hc_rows_direct_weights(p);
    hc_work work = direct ? (hc_work){.codes = codes} : hc_decoding(p);
    work.products = codes * (double)p->x->rows * pairs;
    if (direct && !nibbles && codes >= FAR_BYTES && p->x->rows <= HC_BEST(rows_s8, p->run)->mr && p->x->rows > 4)
        work.products *= 1 + PIECE_SHARE * (double)(chunks_of(true, true, false, p->x->rows, p->w->columns) - 1);
    work.wide = nibbles || are_small(p->w, p->run) ? 0 : work.products;
    work.groups = words ? codes / (8.0 * words) * (double)p->x->rows * pairs : 0;
    work.values = (double)p->x->rows * ((double)p->x->columns * x_limbs + 15 * (double)p->w->rows * pairs);
    return work;
}

hc_status hc_rows_folded_run(const hc_product *p, hc_error *error) {
    hc_rows_job job;
    plan(&job, p);
    if (!allocate(&job))
        return hc_fail(error, HC_MEMORY, "product: not enough memory for rows of %lld columns", (long long)job.k);
    hc_row_walk(&job.blocks, p, x_task, group_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
