/* Whether decoded tiles of weights with a pattern give the same bits as their nonzeros alone.
 *
 * Both are fmaf chains over ascending k from +0; decoded tiles add products with +0. Such a product is a zero if x is
 * finite, and adding it changes nothing unless the sum so far is -0. A sum becomes -0 only where a value other than 0
 * rounds to it; if all x and w are 0 or at least 2^ex and 2^ew, every exact sum is a multiple of 2^(ex + ew - 46), and
 * with ex + ew >= -103 none is too small for a float.
 */

#include "base/threads.h"
#include "ops/product/packed_rows.h"
#include "ops/product/product.h"
#include "ops/product/sparse.h"

#include <string.h>

enum { TASK_ROWS = 64, PIECE_ROWS = 16, PIECE_COLUMNS = 256 };
enum { LEAST_EXPONENTS = -103, NONE = 0x7fffffff };

typedef struct {
    const hc_source *source;
    bool kept; /* only the nonzeros of a pattern are read */
    int64_t columns;
    int32_t least[HC_MAX_THREADS],
        /* magnitudes as integers; `least` is that of the smallest value other than 0, less 1, or NONE */
        most[HC_MAX_THREADS];
} hc_range_job;

static void range_task(void *context, int64_t task, int thread) {
    hc_range_job *job = context;
    const int64_t end = hc_min((task + 1) * TASK_ROWS, job->source->rows);
    int32_t least = job->least[thread], most = job->most[thread];
    float piece[PIECE_ROWS * PIECE_COLUMNS];
    int32_t bits[PIECE_COLUMNS];
    for (int64_t row = task * TASK_ROWS; row < end; row += PIECE_ROWS)
        for (int64_t column = 0; column < job->columns; column += PIECE_COLUMNS) {
            const int64_t rows = hc_min(PIECE_ROWS, end - row);
            const int64_t columns = hc_min(PIECE_COLUMNS, job->columns - column);
            const char *from = (const char *)piece;
            int64_t step = PIECE_COLUMNS * sizeof *piece;
            if (!job->kept && job->source->along)
                from = job->source->along + row * job->source->along_stride + column * (int64_t)sizeof *piece,
                step = job->source->along_stride;
            else if (job->kept)
                hc_packed_floats(job->source, row, rows, column, columns, piece, PIECE_COLUMNS);
            else
                job->source->floats(job->source, row, rows, column, columns, piece, PIECE_COLUMNS);
            for (int64_t r = 0; r < rows; r++) {
                memcpy(bits, from + r * step, (size_t)columns * sizeof *bits);
                for (int64_t c = 0; c < columns; c++) { /* signed, because every instruction set has a signed minimum */
                    const int32_t magnitude = bits[c] & NONE, below = (magnitude - 1) & NONE;
                    most = magnitude > most ? magnitude : most;
                    least = below < least ? below : least;
                }
            }
        }
    job->least[thread] = least;
    job->most[thread] = most;
}

/* The exponent of the smallest value other than 0; false if a value is not finite. */
static bool range(const hc_run *run, const hc_source *source, bool kept, int *exponent) {
    const hc_packed_context *packed = source->context;
    hc_range_job job = {.source = source, .kept = kept, .columns = kept ? packed->geometry->columns : source->columns};
    for (int i = 0; i < HC_MAX_THREADS; i++)
        job.least[i] = NONE;
    hc_parallel(run->n_threads, hc_ceil_div(source->rows, TASK_ROWS), range_task, &job);
    int32_t least = NONE, most = 0;
    for (int i = 0; i < HC_MAX_THREADS; i++) {
        least = job.least[i] < least ? job.least[i] : least;
        most = job.most[i] > most ? job.most[i] : most;
    }
    const int field = least == NONE ? 254 : (least + 1) >> 23; /* none: all are 0 */
    *exponent = field > 0 ? field - 127 : -149;
    return most < 0x7f800000;
}

/* Runs may be so short that all their columns are kept, as the taps of depthwise filters: then no zero is added. */
static bool keeps_all(const hc_run *run, const hc_source *w) {
    enum { RUNS = 64 };
    const hc_packed_context *packed = w->context;
    const hc_geometry *g = packed->geometry;
    const int64_t m = packed->format->m, length = g->whole_length;
    if (length > packed->format->n)
        return false;
    uint64_t masks[RUNS * HC_MAX_M / 64];
    hc_sparse_masks line;
    hc_sparse_masks_init(&line, run, packed->format->n, packed->format->m);
    for (int64_t row = 0; row < w->rows; row++)
        for (int64_t first = 0; first < g->runs; first += RUNS) {
            const int64_t some = hc_min(RUNS, g->runs - first);
            hc_sparse_masks_of(&line, hc_part(packed->components, HC_METADATA, packed->first_row + row), g->columns,
                               first, some * m, masks);
            for (int64_t i = 0; i < some; i++)
                for (int64_t at = i * m; at < i * m + length; at++)
                    if ((masks[at / 64] >> at % 64 & 1) == 0)
                        return false;
        }
    return true;
}

const char *hc_zeros_differ(const hc_run *run, const hc_source *x, const hc_source *w) {
    int ex, ew;
    if (!w->sparse || keeps_all(run, w))
        return NULL;
    if (!range(run, x, false, &ex))
        return "x has a value that is not finite";
    if (!range(run, w, true, &ew))
        return "w has a value that is not finite";
    return ex + ew < LEAST_EXPONENTS ? "values so small that a zero might change its sign" : NULL;
}

const char *hc_gemm_chain_differs(const hc_product *p) { return hc_zeros_differ(p->run, p->x, p->w); }
