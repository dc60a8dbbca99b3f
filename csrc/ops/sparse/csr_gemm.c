/* Many vectors times compressed sparse rows. Panels of several rows of x stay in L2 while the rows of w walk over them.
 *
 *   a task    one panel of `lanes` rows of x, a KC block of its columns, and a part of the rows of w: ROWS rows at a time
 *             keep their sums in a tile (ROWS, lanes), which goes through the chunks of the KC block and then to `out`
 *
 * Stored values and columns are read in place. For each chunk only the first and last stored value of each row are
 * searched. The columns of a row ascend in every chain, for all chunks and threads. Memory: a KC block and a tile per
 * thread.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/sparse/csr.h"

#include <string.h>

enum {
    ROWS = 128,
    CHUNK_BYTES = 512 << 10, /* half an L2 of 1 MiB; Zen 4, 2026-11: 128 and 256 KiB are up to a half slower */
    KC_BYTES = 8 << 20,
    ALL_BYTES = 48 << 20, /* KC blocks of all threads */
    PORTION_ROWS = 16,
    PORTION_COLUMNS = 256,
};

typedef struct {
    const hc_source *x;
    const hc_csr *w;
    hc_rows out;
    hc_csr_spmm_fn *kernel;
    hc_pack_x32_fn *transpose;
    int lanes;
    int64_t chunk, kc;  /* columns */
    int64_t parts;      /* of the rows of w */
    int64_t first, end; /* of the current KC block */
    char *memory;
    int64_t thread_bytes;
} hc_csr_product;

typedef struct {
    float *panel, *tile, *portion;
    int64_t begin[ROWS], end[ROWS];
} hc_csr_own;

static int64_t lay_out(const hc_csr_product *p, char *memory, hc_csr_own *own) {
    const int64_t tile = hc_round_up(p->kc * p->lanes * 4, HC_CACHE_LINE), portion = tile + ROWS * p->lanes * 4;
    if (own) {
        own->panel = (float *)(void *)memory;
        own->tile = (float *)(void *)(memory + tile);
        own->portion = (float *)(void *)(memory + portion);
    }
    return hc_round_up(portion + PORTION_ROWS * (PORTION_COLUMNS + 16) * 4, HC_CACHE_LINE);
}

static void pack(const hc_csr_product *p, int64_t row, int64_t rows, const hc_csr_own *own) {
    const int64_t ld = PORTION_COLUMNS + 16, columns = p->end - p->first;
    if (rows < p->lanes)
        memset(own->panel, 0, (size_t)(columns * p->lanes) * sizeof *own->panel);
    for (int64_t c = 0; p->x->side && c < columns; c++)
        memcpy(own->panel + c * p->lanes, p->x->side + row * 4 + (p->first + c) * p->x->side_stride, (size_t)rows * 4);
    for (int64_t r = 0; !p->x->side && r < rows; r += PORTION_ROWS)
        for (int64_t c = 0; c < columns; c += PORTION_COLUMNS) {
            const int64_t n = hc_min(PORTION_ROWS, rows - r), count = hc_min(PORTION_COLUMNS, columns - c);
            p->x->floats(p->x, row + r, n, p->first + c, count, own->portion, ld);
            p->transpose(own->portion, ld * 4, (int)n, count, own->panel + c * p->lanes + r, p->lanes, 0);
        }
}

/* Copies a tile (rows of w, lanes) from or to `out`, whose rows are those of x. */
static void move_tile(const hc_csr_product *p, int64_t w_row, int64_t w_rows, int64_t x_row, int64_t x_rows,
                      float *tile, bool to_out) {
    const hc_rows *out = &p->out;
    const int64_t step = out->n_dims ? out->stride[0] : 0, lanes = p->lanes;
    if (to_out && out->n_dims <= 1 && out->column_stride == 4 && step >= 0 && step % 4 == 0 && step / 4 <= INT32_MAX) {
        for (int64_t r = 0; r < w_rows; r += 16)
            p->transpose(tile + r * lanes, lanes * 4, (int)hc_min(16, w_rows - r), x_rows,
                         hc_row(out, x_row) + (w_row + r) * 4, (int)(step / 4), 0);
        return;
    }
    if (out->n_dims == 1 && step == 4) { /* rows of x are contiguous */
        for (int64_t j = 0; j < w_rows; j++) {
            char *values = hc_row(out, x_row) + (w_row + j) * out->column_stride, *own = (char *)(tile + j * lanes);
            memcpy(to_out ? values : own, to_out ? own : values, (size_t)x_rows * sizeof *tile);
        }
        return;
    }
    for (int64_t i = 0; i < x_rows; i++) {
        char *row = hc_row(out, x_row + i) + w_row * out->column_stride;
        for (int64_t j = 0; j < w_rows; j++) {
            char *value = row + j * out->column_stride, *own = (char *)(tile + j * lanes + i);
            memcpy(to_out ? value : own, to_out ? own : value, sizeof *tile);
        }
    }
}

/* The first stored value of [begin, end) whose column is at least `column`. */
static int64_t stored_at(const hc_csr *w, int64_t begin, int64_t end, int64_t column) {
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (w->indices[middle] < column)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Number of rows of w before part `part`. Parts are balanced by rows and stored values. */
static int64_t part_begin(const hc_csr_product *p, int64_t part) {
    const double wanted = (double)(p->w->stored + p->w->rows) * (double)part / (double)p->parts;
    int64_t low = 0, high = p->w->rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((double)(p->w->starts[middle] + middle) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return part == p->parts ? p->w->rows : low;
}

static void task(void *context, int64_t number, int thread) {
    const hc_csr_product *p = context;
    const hc_csr *w = p->w;
    const int64_t x_row = number / p->parts * p->lanes, x_rows = hc_min(p->lanes, p->x->rows - x_row);
    const int64_t part = number % p->parts, last = part_begin(p, part + 1);
    hc_csr_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    pack(p, x_row, x_rows, &own);
    for (int64_t row = part_begin(p, part), rows; row < last; row += rows) {
        rows = hc_min(ROWS, last - row);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t begin = w->starts[row + i], end = w->starts[row + i + 1];
            own.end[i] = p->first == 0 ? begin : stored_at(w, begin, end, p->first);
        }
        if (p->first > 0)
            move_tile(p, row, rows, x_row, x_rows, own.tile, false);
        for (int64_t c = p->first; c < p->end; c += p->chunk) {
            const int64_t chunk_end = hc_min(c + p->chunk, p->end);
            for (int64_t i = 0; i < rows; i++) {
                const int64_t end = w->starts[row + i + 1];
                own.begin[i] = own.end[i];
                own.end[i] = chunk_end == w->columns ? end : stored_at(w, own.begin[i], end, chunk_end);
            }
            p->kernel(rows, own.begin, own.end, w->values, w->indices, p->first, own.panel, p->lanes, c > 0, own.tile);
        }
        if (p->first == p->end) /* no columns at all */
            memset(own.tile, 0, (size_t)(rows * p->lanes) * sizeof *own.tile);
        move_tile(p, row, rows, x_row, x_rows, own.tile, true);
    }
}

hc_status hc_csr_gemm(const hc_run *run, const hc_source *x, const hc_csr *w, const hc_rows *out, hc_error *error) {
    HC_ASSUME(x->columns == w->columns && x->rows > 0 && w->rows > 0);
    const hc_kernel *line = HC_BEST(csr_spmm, run);
    hc_csr_product p = {.x = x,
                        .w = w,
                        .out = *out,
                        .kernel = line->fn.csr_spmm,
                        .transpose = HC_PICK(pack_x32, run),
                        .lanes = line->nr};
    while (p.lanes > line->nr / 4 && p.lanes / 2 >= x->rows)
        p.lanes /= 2;
    const int64_t panels = hc_ceil_div(x->rows, p.lanes);
    int n_threads = (int)hc_min(run->n_threads, HC_MAX_THREADS);
    p.parts = n_threads == 1 || panels >= 4 * n_threads ? 1 : hc_min(hc_ceil_div(4 * n_threads, panels), w->rows);
    n_threads = (int)hc_min(n_threads, panels * p.parts);
    const int64_t kc_bytes = hc_min(KC_BYTES, ALL_BYTES / n_threads), chunk_bytes = hc_min(CHUNK_BYTES, kc_bytes);
    p.chunk = chunk_bytes / 4 / p.lanes;
    p.kc = hc_min(kc_bytes / chunk_bytes * p.chunk, x->columns);
    p.thread_bytes = lay_out(&p, NULL, NULL);
    p.memory = hc_alloc_aligned(p.thread_bytes * n_threads);
    if (!p.memory)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for panels of %lld columns", (long long)x->columns);
    do {
        p.end = hc_min(p.first + p.kc, x->columns);
        hc_parallel(n_threads, panels * p.parts, task, &p);
        p.first = p.end;
    } while (p.first < x->columns);
    hc_free_aligned(p.memory);
    return HC_OK;
}
