/* Few rows of floats times many float32 rows that are contiguous along the columns. Each output is one chain, up to 64
 * chains at a time, directly from the rows. Memory: the few rows, if their columns are not contiguous, up to 16 MiB.
 */
#include "base/threads.h"
#include "ops/gemv/gemv.h"

enum { TASK_ROWS = 4 * HC_GEMV_DENSE_ROWS, LEAST_ROWS = HC_GEMV_DENSE_UNIT, SMALL = 2048 /* values, on the stack */ };
enum { FAR_BYTES = 1 << 20 }; /* of rows of all matrices that do not stay in L2 */

typedef struct {
    const hc_source *rows; /* the side with many rows */
    bool is_swapped;       /* the many rows are those of x */
    bool is_far;
    int64_t n_vectors, ldx;
    const float *x;
    hc_gemv_dense_fn *kernel;
    const hc_rows *out;
} hc_dense_job;

static void store(const hc_dense_job *job, int64_t vector, int64_t first, int64_t n, const float *sums) {
    char *to = job->is_swapped ? NULL : hc_row(job->out, vector) + first * job->out->column_stride;
    for (int64_t i = 0; i < n; i++) {
        if (job->is_swapped)
            to = hc_row(job->out, first + i) + vector * job->out->column_stride;
        *(float *)(void *)to = sums[i];
        to += job->out->column_stride;
    }
}

static void dense_rows(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_dense_job *job = context;
    const hc_source *w = job->rows;
    const int64_t end = hc_min((task + 1) * TASK_ROWS, w->rows);
    for (int64_t first = task * TASK_ROWS; first < end; first += HC_GEMV_DENSE_ROWS) {
        const int64_t n_rows = hc_min(HC_GEMV_DENSE_ROWS, end - first);
        const int read = (int)hc_round_up(n_rows, HC_GEMV_DENSE_UNIT);
        const float *rows[HC_GEMV_DENSE_ROWS];
        for (int64_t i = 0; i < read; i++) /* rows after the last repeat the last */
            rows[i] = (const float *)(const void *)(w->along + (first + hc_min(i, n_rows - 1)) * w->along_stride);
        for (int64_t v = 0; v < job->n_vectors;) {
            float sums[HC_GEMV_VECTORS * HC_GEMV_DENSE_ROWS];
            const int64_t left = job->n_vectors - v, n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
            job->kernel(w->columns, read, rows, job->is_far, (int)n, job->x + v * job->ldx, job->ldx, sums);
            for (int64_t j = 0; j < n; j++)
                store(job, v + j, first, n_rows, sums + j * HC_GEMV_DENSE_ROWS);
            v += n;
        }
    }
}

static bool lies_along(const hc_source *few) { return few->along && few->along_stride % (int64_t)sizeof(float) == 0; }

/* Fewer than 16 rows of `many` leave lanes empty, which takes less time than a transposition through memory. */
static bool is_few(const hc_source *few, const hc_source *many) {
    return many->along && few->rows <= (many->rows >= LEAST_ROWS ? HC_GEMV_MOST : HC_GEMV_VECTORS) &&
           (lies_along(few) || few->rows <= HC_GEMV_COPIED / few->columns);
}

void hc_copy_rows(const hc_run *run, const hc_source *source, float *to, int64_t ld) {
    enum { AT_ONCE = 16 };
    if (!source->side || ld > INT32_MAX) {
        source->floats(source, 0, source->rows, 0, source->columns, to, ld);
        return;
    }
    hc_pack_x32_fn *const pack = HC_PICK(pack_x32, run); /* columns are contiguous along the rows */
    for (int64_t k = 0; k < source->columns; k += AT_ONCE)
        pack(source->side + k * source->side_stride, source->side_stride, (int)hc_min(AT_ONCE, source->columns - k),
             source->rows, to + k, (int)ld, 0);
}

bool hc_is_few_dense(const hc_product *p) {
    return !p->x_packed && !p->w_packed && (is_few(p->x, p->w) || is_few(p->w, p->x));
}

hc_status hc_few_dense(const hc_product *p, hc_error *error) {
    const bool is_swapped = !is_few(p->x, p->w);
    const hc_source *few = is_swapped ? p->w : p->x, *many = is_swapped ? p->x : p->w;
    const hc_run run = hc_run_for(p);
    const bool is_along = lies_along(few);
    const double values = (double)many->rows * (double)many->columns * (double)hc_max(p->matrices, 1);
    const int64_t ldx = is_along ? few->along_stride / (int64_t)sizeof(float) : few->columns;
    _Alignas(HC_CACHE_LINE) float small[SMALL];
    const bool is_small = few->rows * few->columns <= SMALL;
    float *copy = is_along ? NULL : is_small ? small : hc_alloc_aligned(few->rows * ldx * (int64_t)sizeof *copy);
    if (!is_along && !copy)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)few->rows);
    if (copy)
        hc_copy_rows(&run, few, copy, ldx);
    hc_dense_job job = {.rows = many,
                        .is_swapped = is_swapped,
                        .is_far = values >= FAR_BYTES / (double)sizeof(float),
                        .n_vectors = few->rows,
                        .ldx = ldx,
                        .x = copy ? copy : (const float *)(const void *)few->along,
                        .kernel = HC_PICK(gemv_dense, &run),
                        .out = &p->out};
    hc_parallel(run.n_threads, hc_ceil_div(many->rows, TASK_ROWS), dense_rows, &job);
    if (copy != small)
        hc_free_aligned(copy);
    return HC_OK;
}
