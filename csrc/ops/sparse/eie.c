/* EIE's storage: checks, and its elements distributed to threads. */
#include "sparsity/eie.h"
#include "hc.h"

#include "base/convert.h"
#include "base/threads.h"
#include "formats/codebook/kmeans.h"
#include "kernels/kernel.h"
#include "ops/product/operand.h"
#include "ops/sparse/csr.h"

#include <math.h>
#include <string.h>

static int64_t base_of(const hc_eie *eie, int64_t element) {
    int64_t base = 0;
    for (int64_t p = 0; p < element; p++)
        base += hc_eie_pointers(eie, p)[eie->columns];
    return base;
}

hc_status hc_eie_codebook(int64_t n, float *values, float codebook[HC_EIE_CODES], hc_error *error) {
    memset(codebook, 0, HC_EIE_CODES * sizeof *codebook);
    if (n == 0)
        return HC_OK;
    void *scratch = hc_alloc_aligned(hc_kmeans_bytes(n, HC_EIE_CODES - 1, false));
    if (!scratch)
        return hc_fail(error, HC_MEMORY, "encode_eie: not enough memory to learn a codebook of %lld values",
                       (long long)n);
    hc_kmeans(values, NULL, n, HC_EIE_CODES - 1, hc_fill_layer, scratch, codebook + 1);
    hc_free_aligned(scratch);
    return HC_OK;
}

/* Encoding. */
typedef struct {
    const float *w;
    hc_eie eie;
    uint32_t *pointers;
    uint8_t *entries, *fits;
} hc_encode_job;

static void count_task(void *context, int64_t element, int thread) {
    (void)thread;
    const hc_encode_job *job = context;
    const hc_eie *eie = &job->eie;
    job->fits[element] = hc_eie_count(job->w, eie->rows, eie->columns, eie->elements, element,
                                      job->pointers + element * (eie->columns + 1));
}

/* Some elements may have no rows: the number of elements of a machine is fixed. */
static int64_t most_elements(int64_t rows) { return hc_max(rows, 4096); }

hc_status hc_eie_count_entries(const hc_run *run, const float *w, int64_t rows, int64_t columns, int64_t elements,
                               uint32_t *pointers, int64_t *n_entries, hc_error *error) {
    if (elements < 1 || elements > most_elements(rows))
        return hc_fail(error, HC_VALUE, "encode_eie: elements is %lld, expected 1 to %lld", (long long)elements,
                       (long long)most_elements(rows));
    hc_encode_job job = {.w = w,
                         .eie = {.rows = rows, .columns = columns, .elements = elements, .pointers = pointers},
                         .pointers = pointers,
                         .fits = hc_alloc_aligned(elements)};
    if (!job.fits)
        return hc_fail(error, HC_MEMORY, "encode_eie: not enough memory for %lld elements", (long long)elements);
    hc_parallel(run->n_threads, elements, count_task, &job);
    const bool fits = memchr(job.fits, 0, (size_t)elements) == NULL;
    hc_free_aligned(job.fits);
    if (!fits)
        return hc_fail(error, HC_VALUE, "encode_eie: an element has more than 2^32 - 1 entries; pass more elements");
    *n_entries = base_of(&job.eie, elements);
    return HC_OK;
}

static void fill_task(void *context, int64_t element, int thread) {
    (void)thread;
    const hc_encode_job *job = context;
    const hc_eie *eie = &job->eie;
    hc_eie_fill(job->w, eie->rows, eie->columns, eie->elements, element, eie->codebook, hc_eie_pointers(eie, element),
                job->entries + base_of(eie, element));
}

hc_status hc_eie_encode(const hc_run *run, const float *w, const hc_eie *eie, uint8_t *entries, hc_error *error) {
    for (int c = 1; c < HC_EIE_CODES - 1; c++)
        if (!(eie->codebook[c] <= eie->codebook[c + 1]))
            return hc_fail(error, HC_VALUE, "encode_eie: codebook[%d] is above codebook[%d], expected [1:] to ascend",
                           c, c + 1);
    if (!hc_eie_pointers_fit(eie))
        return hc_fail(error, HC_VALUE, "encode_eie: the pointers do not fit the entries");
    hc_encode_job job = {.w = w, .eie = *eie, .entries = entries};
    hc_parallel(run->n_threads, eie->elements, fill_task, &job);
    return HC_OK;
}

hc_status hc_eie_check(const hc_eie *eie, hc_error *error) {
    if (eie->elements < 1 || eie->elements > most_elements(eie->rows))
        return hc_fail(error, HC_VALUE, "EIEArray: %lld elements for %lld rows, expected 1 to %lld",
                       (long long)eie->elements, (long long)eie->rows, (long long)most_elements(eie->rows));
    if (eie->rows > INT32_MAX || eie->columns > INT32_MAX)
        return hc_fail(error, HC_VALUE, "EIEArray: the shape is (%lld, %lld), expected at most 2^31 - 1 each",
                       (long long)eie->rows, (long long)eie->columns);
    for (int c = 0; c < HC_EIE_CODES; c++)
        if (eie->codebook[c] - eie->codebook[c] != 0 || (c == 0 && eie->codebook[0] != 0))
            return hc_fail(error, HC_VALUE, "EIEArray: codebook[%d] is %g, expected %s", c, (double)eie->codebook[c],
                           c ? "a finite number" : "0");
    int64_t column;
    const int64_t element = hc_eie_look(eie, &column);
    if (element >= 0)
        return hc_fail(error, HC_VALUE,
                       "EIEArray: element %lld, column %lld: pointers that do not fit the entries, or more rows than "
                       "the element has",
                       (long long)element, (long long)column);
    return HC_OK;
}

/* Decoding to an array and to compressed rows. */
typedef struct {
    const hc_eie *eie;
    float *dense; /* (rows, columns), zeros */
    int64_t *at;  /* (rows): index of the next value of a row */
    int32_t *indices;
    float *values;
} hc_decode_job;

static void take_dense(void *context, int64_t row, int64_t column, float value) {
    const hc_decode_job *job = context;
    job->dense[row * job->eie->columns + column] = value;
}

static void take_count(void *context, int64_t row, int64_t column, float value) {
    (void)column, (void)value;
    ((const hc_decode_job *)context)->at[row]++;
}

static void take_stored(void *context, int64_t row, int64_t column, float value) {
    const hc_decode_job *job = context;
    const int64_t t = job->at[row]++;
    job->indices[t] = (int32_t)column;
    job->values[t] = value;
}

static inline __attribute__((always_inline)) void walk(hc_decode_job *job, int64_t element, hc_eie_take *take) {
    hc_eie_walk_element(job->eie, element, job->eie->entries + base_of(job->eie, element), take, job);
}
static void dense_task(void *context, int64_t element, int thread) {
    (void)thread;
    walk(context, element, take_dense);
}
static void rows_task(void *context, int64_t element, int thread) {
    (void)thread;
    walk(context, element, take_count);
}
static void stored_task(void *context, int64_t element, int thread) {
    (void)thread;
    walk(context, element, take_stored);
}

void hc_eie_decode(const hc_run *run, const hc_eie *eie, float *dense) {
    hc_decode_job job = {.eie = eie, .dense = dense};
    memset(dense, 0, (size_t)(eie->rows * eie->columns) * sizeof *dense);
    hc_parallel(run->n_threads, eie->elements, dense_task, &job);
}

void hc_eie_rows_begin(const hc_run *run, const hc_eie *eie, int64_t *starts) {
    hc_decode_job job = {.eie = eie, .at = starts + 1};
    memset(starts, 0, (size_t)(eie->rows + 1) * sizeof *starts);
    hc_parallel(run->n_threads, eie->elements, rows_task, &job);
    for (int64_t i = 0; i < eie->rows; i++)
        starts[i + 1] += starts[i];
}

void hc_eie_expand(const hc_run *run, const hc_eie *eie, int64_t *starts, int32_t *indices, float *values) {
    /* The walk moves starts[i] to the start of row i + 1. Afterwards all of them are moved back. */
    hc_decode_job job = {.eie = eie, .at = starts, .indices = indices, .values = values};
    hc_parallel(run->n_threads, eie->elements, stored_task, &job);
    memmove(starts + 1, starts, (size_t)eie->rows * sizeof *starts);
    starts[0] = 0;
}

/* The matmul. */
enum { VECTORS = 8 /* that an element multiplies together */, CHAINS = 64 /* rows of a task */ };

typedef struct {
    const hc_eie *eie;
    int lanes;    /* 1, or VECTORS */
    int64_t used; /* of the lanes */
    int64_t n;    /* columns whose activations are not all 0: columns, and values (n, lanes) */
    int32_t *columns;
    float *values;
    float *out, *sums; /* (used, rows); each thread's own, (own_rows, lanes) */
    int64_t own_rows;
    hc_eie_columns_fn *kernel;
} hc_multiply_job;

static void multiply_task(void *context, int64_t element, int thread) {
    const hc_multiply_job *job = context;
    const hc_eie *eie = job->eie;
    const int64_t rows = hc_eie_rows(eie->rows, eie->elements, element), base = base_of(eie, element);
    float *sums = job->sums + thread * job->own_rows * job->lanes;
    memset(sums, 0, (size_t)(rows * job->lanes) * sizeof *sums);
    const uint32_t *pointers = hc_eie_pointers(eie, element);
    if (pointers[eie->columns])
        job->kernel(job->n, job->columns, job->values, job->lanes, pointers, eie->entries + base, eie->n_entries - base,
                    eie->codebook, sums);
    for (int64_t v = 0; v < job->used; v++)
        for (int64_t i = 0; i < rows; i++)
            job->out[v * eie->rows + element + i * eie->elements] = sums[i * job->lanes + v];
}

/* Packs the columns of x (used, columns) with an activation that is not 0. */
static void pack_activations(hc_multiply_job *job, const float *x) {
    const int64_t columns = job->eie->columns;
    job->n = 0;
    for (int64_t j = 0; j < columns; j++) {
        float *values = job->values + job->n * job->lanes;
        bool is_used = false;
        for (int64_t v = 0; v < job->lanes; v++) {
            values[v] = v < job->used ? x[v * columns + j] : 0;
            is_used |= values[v] != 0;
        }
        job->columns[job->n] = (int32_t)j;
        job->n += is_used;
    }
}

hc_status hc_eie_multiply(const hc_run *run, const hc_eie *eie, int64_t vectors, const float *x, float *out,
                          hc_error *error) {
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), eie->elements);
    hc_multiply_job job = {.eie = eie,
                           .lanes = vectors > 1 ? VECTORS : 1,
                           .own_rows = hc_round_up(hc_eie_rows(eie->rows, eie->elements, 0), 16),
                           .kernel = HC_PICK(eie_columns, run)};
    const int64_t n_sums = job.own_rows * n_threads * job.lanes, n_values = (eie->columns + 1) * job.lanes;
    job.sums = hc_alloc_aligned((n_sums + n_values + eie->columns + 1) * (int64_t)sizeof *job.sums);
    if (!job.sums)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for sums of %lld rows", (long long)eie->rows);
    job.values = job.sums + n_sums;
    job.columns = (int32_t *)(void *)(job.values + n_values);
    for (int64_t first = 0; first < vectors; first += job.lanes) {
        job.used = hc_min(job.lanes, vectors - first);
        job.out = out + first * eie->rows;
        pack_activations(&job, x + first * eie->columns);
        hc_parallel(n_threads, eie->elements, multiply_task, &job);
    }
    hc_free_aligned(job.sums);
    return HC_OK;
}

/* The least magnitude that is not 0; infinity if there is none. */
static float least_of(int64_t n, const float *values) {
    uint32_t least = 0x7f800000 - 1; /* bits of a magnitude less 1, so that 0 is above all */
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (hc_f32_bits(values[i]) & 0x7fffffff) - 1;
        least = bits < least ? bits : least;
    }
    return hc_f32_from_bits(least + 1);
}

typedef struct {
    const hc_csr *rows;
    const float *x;
    float *out;
    hc_csr_chain_fn *kernel;
} hc_chains_job;

static void chains_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_chains_job *job = context;
    const hc_csr *w = job->rows;
    const int64_t first = task * CHAINS, rows = hc_min(CHAINS, w->rows - first);
    job->kernel(rows, w->starts + first, w->values, w->indices, job->x, job->out + first);
    for (int64_t i = first; i < first + rows; i++) /* one NaN for all, since processors produce different NaNs */
        job->out[i] = job->out[i] == job->out[i] ? job->out[i] : NAN;
}

hc_status hc_eie_multiply_rows(const hc_run *run, const hc_eie *eie, const hc_csr *rows, int64_t vectors,
                               const float *x, float *out, hc_error *error) {
    /* No sum becomes -0 if no product is as small as this: fmaf rounds a multiple of 2^-149. Products with an x of 0 and
     * padding then change nothing. */
    static const double LEAST = 0x1p-70;
    const double product = (double)least_of(HC_EIE_CODES, eie->codebook) * (double)least_of(vectors * eie->columns, x);
    if (product < LEAST || eie->rows == 0 || vectors == 0)
        return hc_eie_multiply(run, eie, vectors, x, out, error);
    if (vectors == 1) {
        hc_chains_job job = {rows, x, out, HC_PICK(csr_chain, run)};
        hc_parallel(run->n_threads, hc_ceil_div(rows->rows, CHAINS), chains_task, &job);
        return HC_OK;
    }
    const int64_t size = sizeof(float);
    const hc_dense_context context = {.rows = {.data = (void *)(uintptr_t)x,
                                               .n_dims = 1,
                                               .shape = {vectors},
                                               .stride = {eie->columns * size},
                                               .rows = vectors},
                                      .dtype = HC_F32,
                                      .n_column_dims = 1,
                                      .column_shape = {eie->columns},
                                      .column_stride = {size}};
    const hc_rows found = {.data = (char *)out,
                           .n_dims = 1,
                           .shape = {vectors},
                           .stride = {eie->rows * size},
                           .rows = vectors,
                           .column_stride = size};
    hc_source source;
    hc_dense_source(&source, &context);
    return hc_csr_gemm(run, &source, rows, &found, error);
}

hc_status hc_eie_load(const hc_eie *eie, const float *x, int64_t depth, int64_t *busy, hc_eie_cycles *found,
                      hc_error *error) {
    if (depth < 1)
        return hc_fail(error, HC_VALUE, "load_balance: depth is %lld, expected 1 or more", (long long)depth);
    depth = hc_min(depth, hc_max(eie->columns, 1)); /* more activations there are none */
    int64_t *scratch = hc_alloc_aligned((eie->elements + depth) * (int64_t)sizeof *scratch);
    if (!scratch)
        return hc_fail(error, HC_MEMORY, "load_balance: not enough memory for %lld elements", (long long)eie->elements);
    hc_eie_run(eie, x, depth, busy, scratch, scratch + eie->elements, found);
    hc_free_aligned(scratch);
    return HC_OK;
}
