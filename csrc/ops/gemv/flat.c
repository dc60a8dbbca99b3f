/* Dense float32 with few or some rows of x, which stay as they lie. So does w if neighbouring outputs are contiguous and x
 * is one block of rows; otherwise parts of w are copied or transposed into memory that stays in L2. Each output is one
 * chain.
 *
 * Memory: for each thread the sums of its task and a part of w; x if its columns are not contiguous.
 */
#include "base/threads.h"
#include "ops/gemv/gemv.h"

#include <string.h>

enum {
    MOST_ROWS = 80,   /* of x, if there are more outputs than FEW_OUTPUTS, whose rows are written in pieces, */
    FEW_OUTPUTS = 64, /* or w is not small */
    TASK_ROWS = 512,  /* of x */
    BLOCK_ROWS = 64,  /* of x in one call of the kernel, */
    SUMS = 4096,      /* and its sums: half of an L1 of 32 KiB */
    PART = 1 << 14,   /* values of w that are copied at a time: 64 KiB */
    PACK_ROWS = 16,   /* of one call of pack_x32 */
    SMALL = 1 << 16,  /* values of x that are worth a copy, and of w that stay in L2 */
    LEAST_COLUMNS = 64,
    FEW = 2048, /* values that need no allocation */
    WHOLE = 32, /* outputs that no kernel splits */
    WAYS = 8,
    SETS = 1024, /* more than WAYS rows of x that are a multiple of SETS bytes apart are copied */
};

typedef struct {
    const hc_product *p;
    const hc_rows *out;
    hc_gemm_flat_fn *kernel;
    hc_pack_x32_fn *pack;
    int64_t m, n, k;
    const float *x;
    int64_t ldx;
    int64_t rows, row_tasks, columns; /* of a task */
    int64_t chunk;                    /* columns of x in one call */
    float *memory;                    /* of each thread: sums, then the part of w */
    int64_t sums, part;
} hc_flat_job;

/* Rows that share the sets of a cache are copied, and so are those whose columns are not contiguous. */
static bool is_copied(const hc_source *x) {
    const bool shares_sets = x->rows > WAYS && x->along_stride != 0 && x->along_stride % SETS == 0;
    return !x->along || x->along_stride % (int64_t)sizeof(float) != 0 || shares_sets;
}

static int64_t copied_ld(int64_t columns) { return hc_round_up(columns, PACK_ROWS) + PACK_ROWS; }

bool hc_is_flat(const hc_product *p) {
    const hc_source *x = p->x, *w = p->w;
    if (p->x_packed || p->w_packed)
        return false;
    if (!w->along && !(w->side && w->side_stride % (int64_t)sizeof(float) == 0))
        return false;
    if (x->rows > MOST_ROWS && w->rows > hc_min(FEW_OUTPUTS, SMALL / w->columns))
        return false;
    return !is_copied(x) || x->rows <= (x->along ? HC_GEMV_COPIED / copied_ld(x->columns) : SMALL / x->columns);
}

/* Fetches `columns` floats of each row, which are used later. */
static void prefetch_rows(const char *from, int64_t stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c += HC_CACHE_LINE / (int64_t)sizeof(float))
            __builtin_prefetch(from + i * stride + c * (int64_t)sizeof(float), 0, 2);
}

/* Columns [first, first + k) of n rows of w from `column` on, neighbouring rows side by side, and the distance of the
 * columns. `part` has room for them. */
static const float *part_of(const hc_flat_job *job, int64_t column, int64_t n, int64_t first, int64_t k, float *part,
                            int64_t *ld) {
    const hc_source *w = job->p->w;
    const int64_t size = sizeof(float);
    const bool has_next = first + 2 * k <= job->k;
    if (w->side && !job->part) {
        *ld = w->side_stride / size;
        return (const float *)(const void *)w->side + first * *ld + column;
    }
    *ld = hc_round_up(n, PACK_ROWS);
    for (int64_t i = 0; w->side && i < k; i++) {
        const char *from = w->side + (first + i) * w->side_stride + column * size;
        if (has_next)
            prefetch_rows(from + k * w->side_stride, 0, 1, n);
        memcpy(part + i * *ld, from, (size_t)(n * size));
    }
    for (int64_t i = 0; !w->side && i < n; i += PACK_ROWS) {
        const char *from = w->along + (column + i) * w->along_stride + first * size;
        const int64_t rows = hc_min(PACK_ROWS, n - i);
        if (has_next)
            prefetch_rows(from + k * size, w->along_stride, rows, k);
        job->pack(from, w->along_stride, (int)rows, k, part + i, (int)*ld, 0);
    }
    return part;
}

static void write_sums(const hc_flat_job *job, const float *sums, int64_t ld, int64_t row, int64_t m, int64_t column,
                       int64_t n) {
    const int64_t step = job->out->column_stride;
    for (int64_t i = 0; i < m; i++, sums += ld) {
        char *to = hc_row(job->out, row + i) + column * step;
        if (step == sizeof(float))
            memcpy(to, sums, (size_t)n * sizeof *sums);
        else
            for (int64_t j = 0; j < n; j++)
                *(float *)(void *)(to + j * step) = sums[j];
    }
}

/* Fetches the block of x after the one of rows [i, ..) and columns [first, first + k): 64 rows at a time are more streams
 * than a processor prefetches. */
static void prefetch_next(const hc_flat_job *job, int64_t row, int64_t m, int64_t i, int64_t first, int64_t k) {
    const bool is_last = i + BLOCK_ROWS >= m;
    const int64_t next = is_last ? 0 : i + BLOCK_ROWS, column = is_last ? first + k : first;
    const float *from = job->x + (row + next) * job->ldx + column;
    prefetch_rows((const char *)from, job->ldx * (int64_t)sizeof(float), hc_min(BLOCK_ROWS, m - next),
                  hc_min(job->chunk, job->k - column));
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_flat_job *job = context;
    float *sums = job->memory + thread * (job->sums + job->part), *part = sums + job->sums;
    const int64_t column = task / job->row_tasks * job->columns, n = hc_min(job->columns, job->n - column);
    const int64_t row = task % job->row_tasks * job->rows, m = hc_min(job->rows, job->m - row);
    const int64_t ld = hc_round_up(n, PACK_ROWS);
    for (int64_t first = 0; first < job->k; first += job->chunk) {
        const int64_t k = hc_min(job->chunk, job->k - first);
        int64_t ldw;
        const float *w = part_of(job, column, n, first, k, part, &ldw);
        for (int64_t i = 0; i < m; i += BLOCK_ROWS) {
            if (column == 0) /* later columns find x in a cache */
                prefetch_next(job, row, m, i, first, k);
            job->kernel(k, n, w, ldw, hc_min(BLOCK_ROWS, m - i), job->x + (row + i) * job->ldx + first, job->ldx,
                        sums + i * ld, ld, first > 0);
        }
    }
    write_sums(job, sums, ld, row, m, column, n);
}

hc_status hc_flat(const hc_product *p, hc_error *error) {
    const hc_source *x = p->x, *w = p->w;
    const hc_run run = hc_run_for(p);
    hc_rows out;
    if (p->out.n_dims > 1)
        out = hc_merged_rows(&p->out);
    hc_flat_job job = {.p = p,
                       .out = p->out.n_dims > 1 ? &out : &p->out,
                       .kernel = HC_PICK(gemm_flat, &run),
                       .pack = HC_PICK(pack_x32, &run),
                       .m = x->rows,
                       .n = w->rows,
                       .k = x->columns};
    job.row_tasks = hc_ceil_div(job.m, TASK_ROWS);
    job.rows = hc_round_up(hc_ceil_div(job.m, job.row_tasks), job.row_tasks > 1 ? BLOCK_ROWS : 1);
    job.row_tasks = hc_ceil_div(job.m, job.rows);
    job.columns = w->side ? hc_max(SUMS / job.rows / WHOLE * WHOLE, LEAST_COLUMNS) : LEAST_COLUMNS;
    const int64_t shared = hc_round_up(hc_ceil_div(job.n, 4 * run.n_threads), WHOLE);
    if (run.n_threads > 1)
        job.columns = hc_min(job.columns, hc_max(shared, LEAST_COLUMNS));
    job.columns = hc_min(job.columns, hc_round_up(job.n, PACK_ROWS));
    const bool as_it_lies = w->side && job.rows <= BLOCK_ROWS;
    job.chunk = as_it_lies && job.n > LEAST_COLUMNS ? job.k : hc_min(PART / LEAST_COLUMNS, job.k);
    job.sums = job.rows * job.columns;
    job.part = as_it_lies ? 0 : job.chunk * job.columns;

    const bool copies = is_copied(x);
    const int64_t ldx = copied_ld(job.k), x_values = copies ? job.m * ldx : 0;
    const int64_t values = x_values + run.n_threads * (job.sums + job.part);
    _Alignas(HC_CACHE_LINE) float few[FEW];
    float *memory = values <= FEW ? few : hc_alloc_aligned(values * (int64_t)sizeof *memory);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for sums of %d threads", run.n_threads);
    job.memory = memory + x_values;
    job.x = copies ? memory : (const float *)(const void *)x->along;
    job.ldx = copies ? ldx : x->along_stride / (int64_t)sizeof(float);
    if (copies)
        hc_copy_rows(&run, x, memory, ldx);
    hc_parallel(run.n_threads, job.row_tasks * hc_ceil_div(job.n, job.columns), multiply_task, &job);
    if (memory != few)
        hc_free_aligned(memory);
    return HC_OK;
}
