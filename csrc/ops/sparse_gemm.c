/* Activations times weights that keep n of every m: panels of activations, k beside k, stay in the first cache while all
 * rows of a group of weights walk over them; a kept value meets the panel row that its position names.
 *
 *   shared    x in panels of `lanes` rows, padded columns of one slab: panel[k * lanes + i]
 *   a task    a group of rows of w: their kept values and panel rows of the slab, chunk by chunk, decoded once; then for each
 *             panel a tile (rows, lanes) goes through all chunks of the slab and into `out`, where it waits for the next
 *
 * k ascending in every chain, whatever blocks and threads are. Memory: SHARED_BYTES, PRIVATE_BYTES, 120 KiB a thread.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/sparse.h"
#include "sparsity/nm.h"

#include <string.h>

enum {
    ROWS = 192, /* of w in a group, at most */
    LEAST_ROWS = 16,
    FEW_PANELS = 2,
    SLAB_COLUMNS = 1 << 15, /* positions in a slab fit 16 bits */
    WHOLE_BYTES = 8,        /* so many chunks end with a byte of positions */
    CHUNK_FLOATS = 8192,    /* 24 KiB of a panel, of a first cache of 32 or more */
    SHARED_BYTES = 16 << 20,
    THREAD_BYTES = 448 << 10, /* half a second cache of 1 MiB */
    PRIVATE_BYTES = 16 << 20, /* of all threads */
    PORTION_ROWS = 16,
    PORTION_COLUMNS = 256,
};

typedef struct {
    const hc_run *run;
    const hc_source *x, *w;
    const hc_packed_context *packed; /* of w */
    hc_rows out;                     /* rows of x, columns: rows of w */
    hc_sparse_f32_fn *kernel;
    hc_pack_x32_fn *turn;
    hc_place_nm_fn *place; /* or NULL */
    int lanes;
    int64_t group;                     /* rows of w of a task */
    int64_t chunk_blocks, slab_blocks; /* blocks of m columns */
    int64_t blocks, run_blocks, run_padded;
    int64_t panel_floats; /* of one panel of a slab */
    float *shared;
    uint16_t *base; /* panel row where the block of a kept value of the slab begins */
    char *memory;
    int64_t thread_bytes;
    /* The step at hand. */
    int64_t first_block, end_block; /* of the slab */
    int64_t first_panel, panels, parts;
} hc_sparse_product;

/* Where a thread keeps what. */
typedef struct {
    float *values, *tile, *portion, *kept;
    uint16_t *at, *line; /* values and at: of all rows chunk by chunk; kept and line: of one row */
} hc_own;

static int64_t kept_of_slab(const hc_sparse_product *p) { return p->slab_blocks * p->packed->format->n; }

static int64_t lay_out(const hc_sparse_product *p, char *memory, hc_own *own) {
    const int64_t kept = kept_of_slab(p), portion = PORTION_ROWS * (PORTION_COLUMNS + 16) * 4;
    const int64_t at = p->group * kept * 4, tile = at + hc_round_up(p->group * kept * 2, HC_CACHE_LINE);
    const int64_t line = tile + p->group * p->lanes * 4, one = line + hc_round_up(kept * 2, HC_CACHE_LINE);
    const int64_t end = one + hc_round_up(kept * 4, HC_CACHE_LINE);
    if (own)
        *own = (hc_own){(float *)(void *)memory,           (float *)(void *)(memory + tile),
                        (float *)(void *)(memory + end),   (float *)(void *)(memory + one),
                        (uint16_t *)(void *)(memory + at), (uint16_t *)(void *)(memory + line)};
    return end + portion;
}

/* Whole columns [column, column + columns) of up to 16 rows of x into lanes of a panel. */
static void pack_portions(const hc_sparse_product *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          float *portion, float *panel) {
    const int64_t ld = PORTION_COLUMNS + 16;
    if (p->x->along) {
        p->turn(p->x->along + row * p->x->along_stride + column * 4, p->x->along_stride, (int)rows, columns, panel,
                p->lanes, 0);
        return;
    }
    for (int64_t c = 0; c < columns; c += PORTION_COLUMNS) {
        const int64_t count = hc_min(PORTION_COLUMNS, columns - c);
        p->x->floats(p->x, row, rows, column + c, count, portion, ld);
        p->turn(portion, ld * 4, (int)rows, count, panel + c * p->lanes, p->lanes, 0);
    }
}

static void pack_columns(const hc_sparse_product *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         float *portion, float *panel) {
    if (p->x->side) {
        for (int64_t c = 0; c < columns; c++)
            memcpy(panel + c * p->lanes, p->x->side + row * 4 + (column + c) * p->x->side_stride, (size_t)rows * 4);
        return;
    }
    for (int64_t r = 0; r < rows; r += PORTION_ROWS)
        pack_portions(p, row + r, hc_min(PORTION_ROWS, rows - r), column, columns, portion, panel + r);
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    const int64_t m = p->packed->format->m, length = p->packed->geometry->whole_length;
    const int64_t row = (p->first_panel + task) * p->lanes, rows = hc_min(p->lanes, p->x->rows - row);
    float *panel = p->shared + task * p->panel_floats;
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    if (rows < p->lanes || p->run_padded > length)
        memset(panel, 0, (size_t)p->panel_floats * sizeof *panel);
    for (int64_t block = p->first_block; block < p->end_block;) {
        const int64_t run = block / p->run_blocks, inside = block % p->run_blocks;
        const int64_t blocks = hc_min(p->run_blocks - inside, p->end_block - block);
        const int64_t columns = hc_min(length - inside * m, blocks * m);
        pack_columns(p, row, rows, run * length + inside * m, columns, own.portion,
                     panel + (block - p->first_block) * m * p->lanes);
        block += blocks;
    }
}

/* The panel rows of the first `count` kept values of the slab in one row. */
static void place(const hc_sparse_product *p, int64_t row, int64_t count, uint16_t *line) {
    const int m = p->packed->format->m, bits = hc_position_bits(m);
    const uint8_t *metadata = hc_part(p->packed->components, HC_METADATA, p->packed->first_row + row);
    const int64_t first = p->first_block * p->packed->format->n, kept = p->packed->geometry->columns;
    int64_t t = 0;
    if (p->place && first * bits % 8 == 0) {
        const int64_t skip = first * bits / 8;
        t = p->place(m, metadata + skip, hc_ceil_div(kept * bits, 8) - skip, p->base, count, line);
    }
    uint8_t position[256];
    for (int64_t some; t < count; t += some) {
        some = hc_min((int64_t)sizeof position, count - t);
        hc_nm_positions(metadata, kept, m, first + t, some, position);
        for (int64_t i = 0; i < some; i++)
            line[t + i] = (uint16_t)(p->base[t + i] + position[i]);
    }
}

/* Kept values of a group of rows and the panel rows that they meet: chunk after chunk, in a chunk row after row. What
 * stands for no column becomes -0, which changes no sum. */
static void decode_group(const hc_sparse_product *p, int64_t row, int64_t rows, const hc_own *own) {
    const int64_t n = p->packed->format->n, m = p->packed->format->m, length = p->packed->geometry->whole_length;
    const int64_t kept = (p->end_block - p->first_block) * n, chunk_kept = p->chunk_blocks * n;
    const int64_t first_end = hc_round_up(p->first_block + 1, p->run_blocks) - 1; /* the last block of a run */
    for (int64_t r = 0; r < rows; r++) {
        place(p, row + r, kept, own->line);
        hc_packed_floats(p->w, row + r, 1, p->first_block * n, kept, own->kept, kept);
        for (int64_t end = first_end; p->run_padded > length && end < p->end_block; end += p->run_blocks)
            for (int64_t t = (end - p->first_block) * n, i = 0; i < n; i++, t++)
                if (own->line[t] - p->base[t] >= m - (p->run_padded - length))
                    own->kept[t] = -0.0f;
        for (int64_t t = 0; t < kept; t += chunk_kept) {
            const int64_t count = hc_min(chunk_kept, kept - t), to = t * rows + r * count;
            memcpy(own->values + to, own->kept + t, (size_t)count * sizeof *own->values);
            memcpy(own->at + to, own->line + t, (size_t)count * sizeof *own->at);
        }
    }
}

/* A tile (rows of w, lanes) from or to `out`, whose rows are those of x. */
static void move_tile(const hc_sparse_product *p, int64_t w_row, int64_t w_rows, int64_t x_row, int64_t x_rows,
                      float *tile, bool to_out) {
    const hc_rows *out = &p->out;
    const bool one = out->n_dims <= 1 && (out->n_dims == 0 || out->stride[0] % 4 == 0) && out->column_stride % 4 == 0;
    const int64_t row_step = out->n_dims ? out->stride[0] : 0, lanes = p->lanes;
    if (one && out->column_stride == 4 && row_step / 4 <= INT32_MAX && row_step / 4 >= 0) {
        for (int64_t r = 0; to_out && r < w_rows; r += 16)
            p->turn(tile + r * lanes, lanes * 4, (int)hc_min(16, w_rows - r), x_rows,
                    hc_row(out, x_row) + (w_row + r) * 4, (int)(row_step / 4), 0);
        for (int64_t r = 0; !to_out && r < x_rows; r += 16)
            p->turn(hc_row(out, x_row + r) + w_row * 4, row_step, (int)hc_min(16, x_rows - r), w_rows, tile + r,
                    (int)lanes, 0);
        return;
    }
    for (int64_t i = 0; i < x_rows; i++) {
        char *row = hc_row(out, x_row + i) + w_row * out->column_stride;
        for (int64_t j = 0; j < w_rows; j++) {
            char *value = row + j * out->column_stride;
            float *own = tile + j * lanes + i;
            memcpy(to_out ? value : (char *)own, to_out ? (char *)own : value, sizeof *own);
        }
    }
}

/* Where a full tile of `out` lies itself: rows of w apart, lanes beside each other. */
static float *tile_in_out(const hc_sparse_product *p, int64_t w_row, int64_t x_row, int64_t x_rows, int64_t *ld) {
    const hc_rows *out = &p->out;
    if (out->n_dims != 1 || out->stride[0] != 4 || out->column_stride % 4 != 0 || x_rows != p->lanes)
        return NULL;
    *ld = out->column_stride / 4;
    return (float *)(void *)(hc_row(out, x_row) + w_row * out->column_stride);
}

static void multiply_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    const int64_t row = task / p->parts * p->group, rows = hc_min(p->group, p->w->rows - row), part = task % p->parts;
    const int64_t n = p->packed->format->n, m = p->packed->format->m, blocks = p->end_block - p->first_block;
    const bool goes_on = p->first_block > 0;
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    decode_group(p, row, rows, &own);
    for (int64_t i = p->panels * part / p->parts; i < p->panels * (part + 1) / p->parts; i++) {
        const int64_t x_row = (p->first_panel + i) * p->lanes, x_rows = hc_min(p->lanes, p->x->rows - x_row);
        int64_t ld = p->lanes;
        float *in_out = tile_in_out(p, row, x_row, x_rows, &ld);
        if (goes_on && !in_out)
            move_tile(p, row, rows, x_row, x_rows, own.tile, false);
        for (int64_t b = 0; b < blocks; b += p->chunk_blocks) {
            const int64_t count = hc_min(p->chunk_blocks, blocks - b) * n;
            const bool is_first = b == 0, is_last = b + p->chunk_blocks >= blocks;
            const float *from = is_first && !goes_on ? NULL : is_first && in_out ? in_out : own.tile;
            float *to = is_last && in_out ? in_out : own.tile;
            const float *panel = p->shared + i * p->panel_floats;
            const int64_t step = p->chunk_blocks * m * p->lanes;
            p->kernel(rows, count, own.values + b * n * rows, own.at + b * n * rows, panel, p->lanes, from,
                      from == in_out ? ld : p->lanes, to, to == in_out ? ld : p->lanes,
                      (const char *)(panel + b * m * p->lanes + step), step * 4);
        }
        if (!in_out)
            move_tile(p, row, rows, x_row, x_rows, own.tile, true);
    }
}

/* Panels as wide as they need to be, all alike. Where there are few of them, a group is so many rows that the slab can be
 * the whole of k: rows are then read once, from end to end. */
static void plan(hc_sparse_product *p, const hc_kernel *line) {
    const hc_format *format = p->packed->format;
    const int64_t length = p->packed->geometry->whole_length, n = format->n, m = format->m;
    p->panels = hc_ceil_div(p->x->rows, line->nr);
    p->lanes = (int)hc_round_up(hc_ceil_div(p->x->rows, p->panels), line->nr / 8);
    p->run_blocks = hc_ceil_div(length, m);
    p->run_padded = p->run_blocks * m;
    p->blocks = p->packed->geometry->runs * p->run_blocks;
    p->chunk_blocks = hc_max(CHUNK_FLOATS / p->lanes / m, 1);
    const int64_t bytes = hc_min(THREAD_BYTES, PRIVATE_BYTES / p->run->n_threads);
    const int64_t chunks = hc_ceil_div(p->blocks, p->chunk_blocks), chunk_bytes = 6 * n * p->chunk_blocks; /* a row's */
    /* Rows that keep little are short: more of them for a panel that comes to the first cache. */
    p->group = n * 8 <= m && p->run->n_threads <= 64 ? 2 * ROWS : ROWS;
    p->group = hc_min(hc_max(bytes / ((p->panels <= FEW_PANELS ? chunks : 1) * chunk_bytes), LEAST_ROWS), p->group);
    int64_t slab = hc_min(bytes / (p->group * chunk_bytes), SLAB_COLUMNS / m / p->chunk_blocks); /* in chunks */
    if (slab > WHOLE_BYTES)
        slab = slab / WHOLE_BYTES * WHOLE_BYTES;
    /* Slabs as even as can be. */
    slab = hc_ceil_div(chunks, hc_ceil_div(chunks, hc_max(slab, 1)));
    if (slab > WHOLE_BYTES)
        slab = hc_round_up(slab, WHOLE_BYTES);
    p->slab_blocks = hc_min(slab * p->chunk_blocks, p->blocks);
    p->panel_floats = p->slab_blocks * m * p->lanes;
}

static void walk(hc_sparse_product *p, int64_t panels_at_once) {
    const int n_threads = p->run->n_threads;
    const int64_t panels = hc_ceil_div(p->x->rows, p->lanes), groups = hc_ceil_div(p->w->rows, p->group);
    for (p->first_panel = 0; p->first_panel < panels; p->first_panel += panels_at_once) {
        p->panels = hc_min(panels_at_once, panels - p->first_panel);
        for (p->first_block = 0; p->first_block < p->blocks; p->first_block = p->end_block) {
            p->end_block = hc_min(p->first_block + p->slab_blocks, p->blocks);
            hc_parallel(n_threads, p->panels, pack_task, p);
            /* Too few groups for all threads: several tasks share one, each decodes it. */
            p->parts = groups >= 2 * n_threads || n_threads == 1 ? 1 : hc_ceil_div(2 * n_threads, groups);
            p->parts = hc_min(p->parts, p->panels);
            hc_parallel(n_threads, groups * p->parts, multiply_task, p);
        }
    }
}

hc_status hc_sparse_gemm(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out,
                         hc_error *error) {
    HC_ASSUME(x->columns == w->columns && x->columns > 0 && x->rows > 0 && w->rows > 0);
    const hc_kernel *line = hc_kernel_pick("sparse_f32", run->isa, NULL);
    hc_sparse_product p = {.run = run,
                           .x = x,
                           .w = w,
                           .packed = w->sparse,
                           .out = *out,
                           .kernel = (hc_sparse_f32_fn *)line->fn,
                           .turn = (hc_pack_x32_fn *)hc_kernel_pick("pack_x32", run->isa, NULL)->fn};
    const hc_kernel *place_line = hc_kernel_pick("place_nm", run->isa, NULL);
    p.place = place_line ? (hc_place_nm_fn *)place_line->fn : NULL;
    plan(&p, line);
    const int64_t panels = hc_ceil_div(x->rows, p.lanes);
    const int64_t at_once = hc_min(panels, hc_max(SHARED_BYTES / (p.panel_floats * 4), 1));
    p.thread_bytes = hc_round_up(lay_out(&p, NULL, NULL), HC_CACHE_LINE);
    const int64_t shared_bytes = hc_round_up(at_once * p.panel_floats * 4, HC_CACHE_LINE);
    const int64_t base_bytes = hc_round_up(kept_of_slab(&p) * (int64_t)sizeof *p.base, HC_CACHE_LINE);
    p.memory = hc_alloc_aligned(shared_bytes + base_bytes + p.thread_bytes * run->n_threads);
    if (!p.memory)
        return hc_fail(error, HC_MEMORY, "product: no memory for panels of %lld columns", (long long)x->columns);
    p.shared = (float *)(void *)(p.memory + p.thread_bytes * run->n_threads);
    p.base = (uint16_t *)(void *)((char *)p.shared + shared_bytes);
    for (int64_t block = 0, t = 0; block < p.slab_blocks; block++)
        for (int i = 0; i < p.packed->format->n; i++, t++)
            p.base[t] = (uint16_t)(block * p.packed->format->m);
    walk(&p, at_once);
    hc_free_aligned(p.memory);
    return HC_OK;
}
