/* x @ w.T for a w of compressed sparse rows: checks, one vector, and the call of csr_gemm.c. */
#include "ops/sparse/csr.h"

#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/product/operand.h"
#include "sparsity/csr.h"

#include <math.h>
#include <string.h>

enum { VECTOR_ROWS = 64 };

static hc_status check_starts(const hc_csr *csr, hc_error *error) {
    if (csr->rows < 0 || csr->columns < 0 || csr->rows > INT32_MAX || csr->columns > INT32_MAX)
        return hc_fail(error, HC_VALUE, "a sparse matrix has shape (%lld, %lld), expected at most 2^31 - 1 each",
                       (long long)csr->rows, (long long)csr->columns);
    const int64_t where = hc_csr_look_starts(csr);
    if (where >= 0)
        return hc_fail(error, HC_VALUE, "indptr[%lld] of a sparse matrix is %lld, expected 0 to %lld without a fall",
                       (long long)where, (long long)csr->starts[where], (long long)csr->stored);
    return HC_OK;
}

static hc_status check_indices(const hc_csr *csr, bool *ascending, hc_error *error) {
    const hc_csr_indices found = hc_csr_look(csr, 0, csr->rows);
    *ascending = found.ascending;
    for (int64_t t = 0; !found.inside && t < csr->stored; t++)
        if (csr->indices[t] < 0 || csr->indices[t] >= csr->columns)
            return hc_fail(error, HC_VALUE, "indices[%lld] of a sparse matrix is %d, expected 0 to %lld", (long long)t,
                           (int)csr->indices[t], (long long)csr->columns - 1);
    return HC_OK;
}

/* Copies of the starts and the indices of a matrix. Another thread may change the caller's arrays between the checks
 * and their use, which then would leave the bounds. A changed value is only a wrong value. */
typedef struct {
    hc_csr csr;
    void *memory;
} hc_own_csr;

/* `with_indices`: copies and checks the indices, too. The copy is valid if the status is HC_OK; always freed by
 * hc_free_aligned(own->memory). */
static hc_status own_csr(const hc_csr *csr, bool with_indices, hc_own_csr *own, bool *ascending, hc_error *error) {
    *own = (hc_own_csr){.csr = *csr};
    const int64_t starts = (csr->rows + 1) * (int64_t)sizeof *csr->starts;
    const int64_t indices = with_indices ? csr->stored * (int64_t)sizeof *csr->indices : 0;
    own->memory = hc_alloc_aligned(starts + indices);
    if (!own->memory)
        return hc_fail(error, HC_MEMORY, "not enough memory for the indices of %lld stored values",
                       (long long)csr->stored);
    own->csr.starts = memcpy(own->memory, csr->starts, (size_t)starts);
    const hc_status status = check_starts(&own->csr, error);
    if (status != HC_OK || !with_indices)
        return status;
    own->csr.indices = memcpy((char *)own->memory + starts, csr->indices, (size_t)indices);
    return check_indices(&own->csr, ascending, error);
}

hc_status hc_csr_transpose(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values, hc_error *error) {
    bool ascending;
    hc_own_csr own;
    const hc_status status = own_csr(csr, true, &own, &ascending, error);
    if (status == HC_OK)
        hc_csr_turn(&own.csr, starts, indices, values);
    hc_free_aligned(own.memory);
    return status;
}

typedef struct {
    const hc_csr *w; /* starts are a copy; indices are the caller's */
    const hc_rows *out;
    hc_csr_spmv_fn *kernel;
    hc_csr_copy_fn *copy;
    float *x;
    int32_t *indices; /* copies of those of a task, `most` per thread, which stay in the cache */
    int64_t most;
    bool *legal; /* of each task */
} hc_csr_spmv_job;

static void vector_task(void *context, int64_t task, int thread) {
    const hc_csr_spmv_job *job = context;
    const int64_t first = task * VECTOR_ROWS, rows = hc_min(VECTOR_ROWS, job->w->rows - first);
    const int64_t begin = job->w->starts[first], stored = job->w->starts[first + rows] - begin;
    int64_t starts[VECTOR_ROWS + 1];
    for (int64_t i = 0; i <= rows; i++)
        starts[i] = job->w->starts[first + i] - begin;
    int32_t *indices = job->indices + thread * job->most;
    bool inside;
    int64_t falls = job->copy(stored, job->w->indices + begin, job->w->columns, indices, &inside);
    for (int64_t i = 1; i < rows; i++) { /* between rows; the last of several empty ones is used */
        const int64_t t = starts[i], is_between = (t > 0) & (t < starts[i + 1]), at = is_between ? t : 1;
        falls -= is_between & (indices[at] < indices[at - 1]);
    }
    job->legal[task] = inside && falls == 0;
    if (!job->legal[task])
        return;
    float sums[VECTOR_ROWS];
    job->kernel(rows, starts, job->w->values + begin, indices, job->x, sums);
    char *out = hc_row(job->out, 0) + first * job->out->column_stride;
    for (int64_t i = 0; i < rows; i++, out += job->out->column_stride) {
        /* one NaN for all, since processors produce different NaNs */
        const float sum = sums[i] == sums[i] ? sums[i] : NAN;
        memcpy(out, &sum, sizeof sum);
    }
}

/* An index was invalid or descending in the copy of a task. */
static hc_status refused_indices(const hc_csr *w, bool *ascending, hc_error *error) {
    hc_own_csr own;
    hc_status status = own_csr(w, true, &own, ascending, error);
    hc_free_aligned(own.memory);
    if (status == HC_OK && *ascending)
        status = hc_fail(error, HC_VALUE, "the indices of a sparse matrix changed while they were read");
    return status;
}

static hc_status one_vector(const hc_run *run, const hc_source *x, const hc_csr *w, const hc_rows *out, bool *ascending,
                            hc_error *error) {
    const int64_t n_tasks = hc_ceil_div(w->rows, VECTOR_ROWS);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    hc_csr_spmv_job job = {.w = w, .out = out, .copy = HC_PICK(csr_copy, run)};
    job.kernel = run->one_order ? HC_PICK(csr_chain, run) : HC_PICK(csr_spmv, run);
    for (int64_t row = 0; row < w->rows; row += VECTOR_ROWS)
        job.most = hc_max(job.most, w->starts[hc_min(row + VECTOR_ROWS, w->rows)] - w->starts[row]);
    job.most = hc_round_up(job.most + 2, HC_CACHE_LINE / (int64_t)sizeof *job.indices);
    job.x = hc_alloc_aligned(x->columns * 4);
    job.indices = hc_alloc_aligned(n_threads * job.most * (int64_t)sizeof *job.indices);
    job.legal = hc_alloc_aligned(n_tasks * (int64_t)sizeof *job.legal);
    hc_status status = HC_OK;
    if (!job.x || !job.indices || !job.legal) {
        status =
            hc_fail(error, HC_MEMORY, "matmul: not enough memory for a vector of %lld values", (long long)x->columns);
    } else {
        x->floats(x, 0, 1, 0, x->columns, job.x, x->columns);
        hc_parallel(n_threads, n_tasks, vector_task, &job);
        if (memchr(job.legal, 0, (size_t)n_tasks))
            status = refused_indices(w, ascending, error);
    }
    hc_free_aligned(job.legal);
    hc_free_aligned(job.indices);
    hc_free_aligned(job.x);
    return status;
}

static hc_rows rows_of(const hc_view *view) {
    hc_rows rows = {.data = view->data, .rows = 1, .column_stride = view->strides[view->ndim - 1]};
    for (int i = 0; i < view->ndim - 1; i++) {
        rows.shape[rows.n_dims] = view->shape[i];
        rows.stride[rows.n_dims++] = view->strides[i];
        rows.rows *= view->shape[i];
    }
    return rows;
}

static hc_status check_shapes(int64_t x_rows, int64_t x_columns, const hc_csr *w, const hc_view *out, hc_error *error) {
    if (out->ndim < 1 || out->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "matmul: expected a float32 out of one dimension or more");
    const hc_rows rows = rows_of(out);
    if (x_columns != w->columns || rows.rows != x_rows || out->shape[out->ndim - 1] != w->rows)
        return hc_fail(error, HC_VALUE, "matmul: x is (%lld, %lld), w (%lld, %lld), out (%lld, %lld)",
                       (long long)x_rows, (long long)x_columns, (long long)w->rows, (long long)w->columns,
                       (long long)rows.rows, (long long)out->shape[out->ndim - 1]);
    return hc_check_host("matmul: out", out->device, error);
}

hc_status hc_csr_matmul(const hc_run *run, const hc_operand *x, const hc_csr *w, const hc_view *out, bool *ascending,
                        hc_error *error) {
    hc_source source;
    hc_dense_context dense;
    hc_geometry geometry;
    hc_packed_context packed;
    hc_status status;
    if (x->dense) {
        status = hc_check_view("matmul: x", x->dense, error);
        if (status != HC_OK || x->dense->ndim < 1)
            return status != HC_OK ? status : hc_fail(error, HC_VALUE, "matmul: x has no dimensions");
        const int last = x->dense->ndim - 1;
        dense = (hc_dense_context){.rows = rows_of(x->dense),
                                   .dtype = x->dense->dtype,
                                   .n_column_dims = 1,
                                   .column_shape = {x->dense->shape[last]},
                                   .column_stride = {x->dense->strides[last]}};
        hc_dense_source(&source, &dense);
    } else {
        status = hc_check_packed("matmul: x", x->packed, &geometry, error);
        if (status != HC_OK)
            return status;
        packed = (hc_packed_context){
            .run = run, .format = &x->packed->format, .geometry = &geometry, .components = &x->packed->components};
        hc_packed_source(&source, &packed, geometry.rows);
    }
    status = check_shapes(source.rows, source.columns, w, out, error);
    *ascending = true;
    if (status != HC_OK)
        return status;
    const hc_rows rows = rows_of(out);
    const bool is_one = source.rows == 1 && w->rows > 0; /* an order of its own, unless there is one order */
    hc_own_csr own;
    status = own_csr(w, !is_one, &own, ascending, error);
    if (status == HC_OK && is_one)
        status = one_vector(run, &source, &own.csr, &rows, ascending, error);
    else if (status == HC_OK && *ascending && source.rows > 0 && w->rows > 0)
        status = hc_csr_gemm(run, &source, &own.csr, &rows, error);
    hc_free_aligned(own.memory);
    return status;
}
