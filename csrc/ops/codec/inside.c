/* One bit per value that is in the format's range, and gradients that pass only there. */
#include "ops/codec/inside.h"

#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/codec/rows.h"

#include "base/convert.h"
#include "base/threads.h"
#include "formats/bits.h"

#include <string.h>

enum { BLOCK_VALUES = 1 << 15 };

static int64_t bytes_of(const hc_geometry *geometry) { return hc_ceil_div(geometry->padded, 8); }

hc_status hc_inside_bytes(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                          int64_t *rows, int64_t *bytes, hc_error *error) {
    hc_geometry geometry;
    const hc_status status = hc_format_geometry(format, ndim, shape, n_axes, axes, &geometry, error);
    if (status == HC_OK) {
        *rows = geometry.rows;
        *bytes = bytes_of(&geometry);
    }
    return status;
}

/* Factors of one group: 1 in range; beyond it the bound divided by the value, rounded to float32 once. The bits of the
 * group begin at `first`. x and factors have their own strides, in values and in bytes. */
static void note_group(hc_note_factors_fn *note, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                       double low, double high, const uint8_t *bits, char *factors, int64_t stride) {
    const bool adjacent = stride == sizeof(float) && (uintptr_t)factors % sizeof(float) == 0;
    if (adjacent && x->dtype == HC_F32 && (double)(float)low == low && (double)(float)high == high) {
        /* the float64 quotient of two float32, rounded to float32, equals their float32 quotient */
        const float *values = (const float *)x->data + i * x->row_stride + first;
        note(n, values, (float)low, (float)high, (float *)(void *)factors);
        return;
    }
    for (int64_t c = 0; c < n; c++)
        hc_store_f32(factors + c * stride, 1);
    const int64_t last = first + n;
    for (int64_t c = first, end; c < last; c = end) {
        end = hc_min((c / 8 + 1) * 8, last);
        uint32_t beyond = ~(uint32_t)bits[c / 8] & (0xffu >> (8 - end + c)) << (c & 7);
        for (; beyond; beyond &= beyond - 1) {
            const int64_t at = c / 8 * 8 + __builtin_ctz(beyond);
            const double value = hc_row_value(x, i, at);
            hc_store_f32(factors + (at - first) * stride, (float)((value < 0 ? low : high) / value));
        }
    }
}

static void note_factors(hc_note_factors_fn *note, const hc_row_view *factors, const hc_inside *inside,
                         const hc_geometry *g, const hc_float_rows *x, int64_t i, const float *thresholds,
                         const uint8_t *bits) {
    const int64_t run = g->padded / g->runs, joined = factors->padded_run;
    for (int64_t place = 0, n; place < g->padded; place += n) {
        const int64_t skip = place % run, group = place / g->group;
        n = hc_min(g->group - place % g->group, hc_min(run - skip, joined - place % joined));
        const int64_t values = hc_min(n, g->run_length - skip); /* the others pad the run */
        const double t = thresholds ? (double)thresholds[group] : 1;
        if (values > 0)
            note_group(note, x, i, place, values, (double)inside->low * t, (double)inside->high * t, bits,
                       factors->data + hc_rows_offset(factors, x->first_row + i, place), factors->column_stride);
    }
}

void hc_inside_rows(const hc_inside *inside, const hc_encoder *encoder, const hc_run *run, const hc_float_rows *x,
                    const float *thresholds) {
    const hc_geometry *g = &encoder->geometry;
    const int64_t bytes = bytes_of(g), size = hc_dtype_size(x->dtype);
    hc_mark_inside_fn *mark = HC_PICK(mark_inside, run);
    hc_row_view factors;
    if (inside->factor)
        hc_rows_init(&factors, inside->factor, g, encoder->n_axes, encoder->axes);
    for (int64_t i = 0; i < x->rows; i++) {
        const float *t = thresholds ? thresholds + i * g->groups : NULL;
        uint8_t *bits = inside->bits + (x->first_row + i) * bytes;
        mark(g->padded, (const char *)x->data + i * x->row_stride * size, x->dtype == HC_F64, g->group, t, inside->low,
             inside->high, bits);
        if (inside->factor)
            note_factors(HC_PICK(note_factors, run), &factors, inside, g, x, i, t, bits);
    }
}

typedef struct {
    const hc_run *run;
    const uint8_t *bits;
    hc_geometry geometry;
    hc_row_view g, out;
    int64_t block_rows, ld;
    bool direct;
    float *memory; /* a block per thread, if rows are not contiguous */
} hc_keep_job;

static void keep_task(void *context, int64_t task, int thread) {
    const hc_keep_job *job = context;
    const int64_t first = task * job->block_rows, rows = hc_min(job->block_rows, job->geometry.rows - first);
    const int64_t columns = job->geometry.padded, bytes = bytes_of(&job->geometry);
    hc_keep_marked_fn *keep = HC_PICK(keep_marked, job->run);
    float *own = job->memory + (job->memory ? thread * job->block_rows * job->ld : 0);
    hc_float_rows from = {.data = own, .row_stride = job->ld}, to = from;
    if (job->direct) {
        hc_rows_direct(&job->g, first, &from);
        hc_rows_direct(&job->out, first, &to);
    } else {
        hc_rows_gather(&job->g, job->run->isa, first, rows, 0, columns, own, job->ld);
    }
    for (int64_t i = 0; i < rows; i++)
        keep(columns, (const float *)from.data + i * from.row_stride, job->bits + (first + i) * bytes,
             (float *)to.data + i * to.row_stride);
    if (!job->direct)
        hc_rows_scatter(&job->out, job->run->isa, first, rows, 0, columns, own, job->ld);
}

hc_status hc_keep_inside(const hc_run *run, const hc_view *g, const hc_format *format, int n_axes, const int *axes,
                         const uint8_t *bits, const hc_view *out, hc_error *error) {
    hc_keep_job job = {.run = run, .bits = bits};
    hc_status status = hc_format_geometry(format, g->ndim, g->shape, n_axes, axes, &job.geometry, error);
    if (status == HC_OK)
        status = hc_check_host("keep_inside: g", g->device, error);
    if (status == HC_OK)
        status = hc_check_host("keep_inside: out", out->device, error);
    if (status != HC_OK)
        return status;
    if (g->dtype != HC_F32 || out->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "keep_inside: expected float32");
    if (g->ndim != out->ndim || memcmp(g->shape, out->shape, (size_t)g->ndim * sizeof *g->shape) != 0)
        return hc_fail(error, HC_VALUE, "keep_inside: shapes differ");
    const int64_t padded = job.geometry.padded;
    if (job.geometry.rows == 0 || padded == 0)
        return HC_OK;
    hc_rows_init(&job.g, g, &job.geometry, n_axes, axes);
    hc_rows_init(&job.out, out, &job.geometry, n_axes, axes);
    hc_float_rows rows;
    job.direct = hc_rows_direct(&job.g, 0, &rows) && hc_rows_direct(&job.out, 0, &rows);
    job.ld = hc_round_up(padded, 16) + 16;
    job.block_rows = hc_max(1, hc_min(BLOCK_VALUES / padded, job.geometry.rows));
    const int64_t n_blocks = hc_ceil_div(job.geometry.rows, job.block_rows);
    const int n_threads = (int)hc_min(run->n_threads, n_blocks);
    if (!job.direct) {
        const int64_t bytes = job.block_rows * job.ld * (int64_t)sizeof(float) * n_threads;
        if (!(job.memory = hc_alloc_aligned(bytes)))
            return hc_fail(error, HC_MEMORY, "back: not enough memory for %lld bytes", (long long)bytes);
    }
    hc_parallel(n_threads, n_blocks, keep_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
