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

hc_status hc_csr_transpose(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values, hc_error *error) {
    bool ascending;
    hc_status status = check_starts(csr, error);
    if (status == HC_OK)
        status = check_indices(csr, &ascending, error);
    if (status == HC_OK)
        hc_csr_turn(csr, starts, indices, values);
    return status;
}

typedef struct {
    const hc_csr *w;
    const hc_rows *out;
    hc_csr_spmv_fn *kernel;
    float *x;
    bool *legal; /* of each task */
} hc_csr_spmv_job;

static void vector_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_csr_spmv_job *job = context;
    const int64_t first = task * VECTOR_ROWS, rows = hc_min(VECTOR_ROWS, job->w->rows - first);
    const hc_csr_indices found = hc_csr_look(job->w, first, rows); /* here, so that memory is read once */
    job->legal[task] = found.inside && found.ascending;
    if (!job->legal[task])
        return;
    float sums[VECTOR_ROWS];
    job->kernel(rows, job->w->starts + first, job->w->values, job->w->indices, job->x, sums);
    char *out = hc_row(job->out, 0) + first * job->out->column_stride;
    for (int64_t i = 0; i < rows; i++, out += job->out->column_stride) {
        /* one NaN for all, since processors produce different NaNs */
        const float sum = sums[i] == sums[i] ? sums[i] : NAN;
        memcpy(out, &sum, sizeof sum);
    }
}

static hc_status one_vector(const hc_run *run, const hc_source *x, const hc_csr *w, const hc_rows *out, bool *ascending,
                            hc_error *error) {
    const int64_t n_tasks = hc_ceil_div(w->rows, VECTOR_ROWS);
    hc_csr_spmv_job job = {.w = w,
                           .out = out,
                           .kernel = HC_PICK(csr_spmv, run),
                           .x = hc_alloc_aligned(x->columns * 4),
                           .legal = hc_alloc_aligned(n_tasks * (int64_t)sizeof *job.legal)};
    hc_status status = HC_OK;
    if (!job.x || !job.legal) {
        status =
            hc_fail(error, HC_MEMORY, "matmul: not enough memory for a vector of %lld values", (long long)x->columns);
    } else {
        x->floats(x, 0, 1, 0, x->columns, job.x, x->columns);
        hc_parallel(run->n_threads, n_tasks, vector_task, &job);
        if (memchr(job.legal, 0, (size_t)n_tasks))
            status = check_indices(w, ascending, error);
    }
    hc_free_aligned(job.legal);
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
    if (status == HC_OK)
        status = check_starts(w, error);
    *ascending = true;
    const hc_rows rows = rows_of(out);
    if (status == HC_OK && source.rows == 1 && w->rows > 0 && !run->one_order) /* an order of its own */
        return one_vector(run, &source, w, &rows, ascending, error);
    if (status == HC_OK)
        status = check_indices(w, ascending, error);
    if (status != HC_OK || !*ascending || source.rows == 0 || w->rows == 0)
        return status;
    return hc_csr_gemm(run, &source, w, &rows, error);
}
