/* Activations times weights that keep n of every m. Panels of activations stay in L1 while all rows of a group of
 * weights walk over them, chunk by chunk. A nonzero is multiplied by the panel row that its position names. A panel is
 * `lanes` rows of x, padded columns of one KC block: panel[k * lanes + i]. One side is prepared once for all tasks:
 *
 *   w small, many rows of x   w is decoded first; a task packs a panel, which is multiplied by all groups of rows of w
 *   otherwise                 x is packed first; a task decodes a group of rows of w, which is multiplied by all panels
 *
 * k ascends in every chain, for all blocks and threads. Memory: HC_WORK_BYTES for each side, 208 KiB per thread.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/product/measure.h"
#include "ops/product/packed_rows.h"
#include "ops/product/product.h"
#include "ops/product/sparse.h"
#include "sparsity/nm.h"

#include <string.h>

enum {
    ROWS = 1024, /* of w in a group, at most */
    LEAST_ROWS = 16,
    FEW_ROWS = 192, /* the same if there are few panels */
    FEW_PANELS = 4,
    KC_ROWS = 96,              /* k is split into KC blocks before a group has fewer rows than this */
    KC_COLUMNS = 1 << 15,      /* positions in a KC block fit 16 bits */
    WHOLE_BYTES = 8,           /* this many chunks end with a byte of positions */
    CHUNK_FLOATS = 8192,       /* 32 KiB, L1 */
    DECODED_BYTES = 4 << 20,   /* of w decoded before */
    THREAD_BYTES = 2560 << 10, /* a share of L3 */
    FEW_BYTES = 448 << 10,     /* half an L2 of 1 MiB */
    PORTION_ROWS = 16,
    PORTION_COLUMNS = 256,
};

typedef struct {
    const hc_run *run;
    const hc_source *x, *w;
    const hc_packed_context *packed; /* of w */
    hc_rows out;                     /* rows of x, columns: rows of w */
    hc_gemm_nm_f32_fn *kernel;
    hc_pack_x32_fn *transpose;
    hc_indices_nm_fn *place;         /* or NULL */
    bool decoded;                    /* w is decoded first; otherwise x is packed first */
    int lanes, unit;                 /* of a panel; the last one may have fewer, a multiple of unit */
    int64_t group;                   /* rows of w that are decoded together */
    int64_t chunk_blocks, kc_blocks; /* blocks of m columns */
    int64_t blocks, run_blocks, run_padded;
    int64_t panel_floats; /* of one panel of a KC block */
    float *shared;        /* panels, or kept values */
    uint16_t *shared_at;  /* the panel rows by which kept values are multiplied */
    uint16_t *base;       /* panel row at which the block of a nonzero of the KC block begins */
    char *memory;
    int64_t thread_bytes;
    /* The current step. */
    int64_t first_block, end_block; /* of the KC block */
    int64_t first_panel, panels, parts;
} hc_sparse_product;

/* Memory of a thread. */
typedef struct {
    float *values, *panel; /* both are at the same address: a task uses only one of them */
    float *tile, *portion, *kept;
    uint16_t *at, *line; /* values and at: of all rows chunk by chunk; kept and line: of one row */
} hc_own;

static int lanes_of(const hc_sparse_product *p, int64_t panel) {
    return (int)hc_min(p->lanes, hc_round_up(p->x->rows - panel * p->lanes, p->unit));
}

static int64_t nonzeros_of_kc(const hc_sparse_product *p) { return p->kc_blocks * p->packed->format->n; }

static int64_t lay_out(const hc_sparse_product *p, char *memory, hc_own *own) {
    const int64_t kept = nonzeros_of_kc(p), portion = PORTION_ROWS * (PORTION_COLUMNS + 16) * 4;
    const int64_t at = p->decoded ? 0 : p->group * kept * 4;
    const int64_t tile = hc_round_up(p->decoded ? p->panel_floats * 4 : at + p->group * kept * 2, HC_CACHE_LINE);
    const int64_t line = tile + p->group * p->lanes * 4, one = line + hc_round_up(kept * 2, HC_CACHE_LINE);
    const int64_t end = one + hc_round_up(kept * 4, HC_CACHE_LINE);
    if (own)
        *own = (hc_own){.values = (float *)(void *)memory,
                        .panel = (float *)(void *)memory,
                        .tile = (float *)(void *)(memory + tile),
                        .portion = (float *)(void *)(memory + end),
                        .kept = (float *)(void *)(memory + one),
                        .at = (uint16_t *)(void *)(memory + at),
                        .line = (uint16_t *)(void *)(memory + line)};
    return end + portion;
}

/* Whole columns [column, column + columns) of up to 16 rows of x into lanes of a panel. */
static void pack_portions(const hc_sparse_product *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                          float *portion, float *panel, int lanes) {
    const int64_t ld = PORTION_COLUMNS + 16;
    if (p->x->along) {
        p->transpose(p->x->along + row * p->x->along_stride + column * 4, p->x->along_stride, (int)rows, columns, panel,
                     lanes, 0);
        return;
    }
    for (int64_t c = 0; c < columns; c += PORTION_COLUMNS) {
        const int64_t count = hc_min(PORTION_COLUMNS, columns - c);
        p->x->floats(p->x, row, rows, column + c, count, portion, ld);
        p->transpose(portion, ld * 4, (int)rows, count, panel + c * lanes, lanes, 0);
    }
}

static void pack_columns(const hc_sparse_product *p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         float *portion, float *panel, int lanes) {
    if (p->x->side) {
        for (int64_t c = 0; c < columns; c++)
            memcpy(panel + c * lanes, p->x->side + row * 4 + (column + c) * p->x->side_stride, (size_t)rows * 4);
        return;
    }
    for (int64_t r = 0; r < rows; r += PORTION_ROWS)
        pack_portions(p, row + r, hc_min(PORTION_ROWS, rows - r), column, columns, portion, panel + r, lanes);
}

/* A panel of the KC block. */
static void pack_panel(const hc_sparse_product *p, int64_t index, float *portion, float *panel) {
    const int64_t m = p->packed->format->m, length = p->packed->geometry->whole_length;
    const int64_t row = index * p->lanes, rows = hc_min(p->lanes, p->x->rows - row);
    const int lanes = lanes_of(p, index);
    if (rows < lanes || p->run_padded > length)
        memset(panel, 0, (size_t)p->panel_floats * sizeof *panel);
    for (int64_t block = p->first_block; block < p->end_block;) {
        const int64_t run = block / p->run_blocks, inside = block % p->run_blocks;
        const int64_t blocks = hc_min(p->run_blocks - inside, p->end_block - block);
        const int64_t columns = hc_min(length - inside * m, blocks * m);
        pack_columns(p, row, rows, run * length + inside * m, columns, portion,
                     panel + (block - p->first_block) * m * lanes, lanes);
        block += blocks;
    }
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    pack_panel(p, p->first_panel + task, own.portion, p->shared + task * p->panel_floats);
}

/* The panel rows of the first `count` nonzeros of the KC block in one row. */
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

/* Nonzeros of a group of rows and their panel rows: chunk by chunk, and row by row in a chunk. Nonzeros beyond the last
 * column become -0, which changes no sum. */
static void decode_group(const hc_sparse_product *p, int64_t row, int64_t rows, const hc_own *own, float *values,
                         uint16_t *at) {
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
            memcpy(values + to, own->kept + t, (size_t)count * sizeof *values);
            memcpy(at + to, own->line + t, (size_t)count * sizeof *at);
        }
    }
}

static void decode_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    const int64_t done = task * p->group, at = done * nonzeros_of_kc(p);
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    decode_group(p, done, hc_min(p->group, p->w->rows - done), &own, p->shared + at, p->shared_at + at);
}

/* Copies a tile (rows of w, lanes) from or to `out`, whose rows are those of x. */
static void move_tile(const hc_sparse_product *p, int64_t w_row, int64_t w_rows, int64_t x_row, int64_t x_rows,
                      float *tile, int lanes, bool to_out) {
    const hc_rows *out = &p->out;
    const bool one = out->n_dims <= 1 && (out->n_dims == 0 || out->stride[0] % 4 == 0) && out->column_stride % 4 == 0;
    const int64_t row_step = out->n_dims ? out->stride[0] : 0;
    if (one && out->column_stride == 4 && row_step / 4 <= INT32_MAX && row_step / 4 >= 0) {
        for (int64_t r = 0; to_out && r < w_rows; r += 16)
            p->transpose(tile + r * lanes, lanes * 4, (int)hc_min(16, w_rows - r), x_rows,
                         hc_row(out, x_row) + (w_row + r) * 4, (int)(row_step / 4), 0);
        for (int64_t r = 0; !to_out && r < x_rows; r += 16)
            p->transpose(hc_row(out, x_row + r) + w_row * 4, row_step, (int)hc_min(16, x_rows - r), w_rows, tile + r,
                         lanes, 0);
        return;
    }
    if (out->n_dims == 1 && row_step == 4) { /* rows of x are contiguous */
        for (int64_t j = 0; j < w_rows; j++) {
            char *values = hc_row(out, x_row) + (w_row + j) * out->column_stride, *own = (char *)(tile + j * lanes);
            memcpy(to_out ? values : own, to_out ? own : values, (size_t)x_rows * sizeof *tile);
        }
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

/* The address of a full tile in `out` if its lanes are contiguous there; `ld` is the distance of rows of w. */
static float *tile_in_out(const hc_sparse_product *p, int64_t w_row, int64_t x_row, int64_t x_rows, int64_t *ld) {
    const hc_rows *out = &p->out;
    if (out->n_dims != 1 || out->stride[0] != 4 || out->column_stride % 4 != 0 || x_rows % p->unit != 0)
        return NULL;
    *ld = out->column_stride / 4;
    return (float *)(void *)(hc_row(out, x_row) + w_row * out->column_stride);
}

/* Multiplies a group of rows of w by panel `index`; `after` is read next and prefetched. */
static void multiply_tile(const hc_sparse_product *p, int64_t row, int64_t rows, const float *values,
                          const uint16_t *at, int64_t index, const float *panel, const float *after, float *tile) {
    const int64_t n = p->packed->format->n, m = p->packed->format->m, blocks = p->end_block - p->first_block;
    const int64_t x_row = index * p->lanes, x_rows = hc_min(p->lanes, p->x->rows - x_row);
    const int lanes = lanes_of(p, index);
    const int64_t step = p->chunk_blocks * m * lanes;
    const bool goes_on = p->first_block > 0;
    int64_t ld = lanes;
    float *in_out = tile_in_out(p, row, x_row, x_rows, &ld);
    if (goes_on && !in_out)
        move_tile(p, row, rows, x_row, x_rows, tile, lanes, false);
    for (int64_t b = 0; b < blocks; b += p->chunk_blocks) {
        const int64_t count = hc_min(p->chunk_blocks, blocks - b) * n;
        const bool is_first = b == 0, is_last = b + p->chunk_blocks >= blocks;
        const float *from = is_first && !goes_on ? NULL : is_first && in_out ? in_out : tile;
        float *to = is_last && in_out ? in_out : tile;
        p->kernel(rows, count, values + b * n * rows, at + b * n * rows, panel, lanes, from,
                  from == in_out ? ld : lanes, to, to == in_out ? ld : lanes,
                  (const char *)(is_last ? after : panel + b * m * lanes + step), step * 4);
    }
    if (!in_out)
        move_tile(p, row, rows, x_row, x_rows, tile, lanes, true);
}

/* x is packed: multiplies a part of the panels by a group of w. */
static void group_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    const int64_t row = task / p->parts * p->group, rows = hc_min(p->group, p->w->rows - row), part = task % p->parts;
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    decode_group(p, row, rows, &own, own.values, own.at);
    for (int64_t i = p->panels * part / p->parts; i < p->panels * (part + 1) / p->parts; i++) {
        const float *panel = p->shared + i * p->panel_floats;
        multiply_tile(p, row, rows, own.values, own.at, p->first_panel + i, panel, panel + p->panel_floats, own.tile);
    }
}

/* w is decoded: multiplies all its groups by a panel. */
static void panel_task(void *context, int64_t task, int thread) {
    const hc_sparse_product *p = context;
    hc_own own;
    lay_out(p, p->memory + thread * p->thread_bytes, &own);
    pack_panel(p, task, own.portion, own.panel);
    for (int64_t row = 0; row < p->w->rows; row += p->group) {
        const int64_t at = row * nonzeros_of_kc(p);
        multiply_tile(p, row, hc_min(p->group, p->w->rows - row), p->shared + at, p->shared_at + at, task, own.panel,
                      own.panel, own.tile);
    }
}

/* Number of rows of w in a group: at most `most`, and groups are about equally long. */
static int64_t even(const hc_sparse_product *p, int64_t rows, int64_t most) {
    int64_t groups = hc_ceil_div(rows, most / 16 * 16);
    if (groups > p->run->n_threads)
        groups = hc_round_up(groups, p->run->n_threads);
    return hc_min(hc_round_up(hc_ceil_div(rows, groups), 16), most / 16 * 16);
}

/* Plan if w is small, and one KC block with all of k fits into the memory of a thread. */
static bool plan_decoded(hc_sparse_product *p, int64_t bytes) {
    const int64_t panel_bytes = p->blocks * p->packed->format->m * p->lanes * 4;
    p->group = hc_min(ROWS, (bytes - panel_bytes) / (p->lanes * 4));
    if (p->panels <= FEW_PANELS || p->panels < 2 * p->run->n_threads || p->group < KC_ROWS ||
        p->blocks > KC_COLUMNS / p->packed->format->m ||
        p->w->rows > DECODED_BYTES / 6 / (p->blocks * p->packed->format->n))
        return false;
    p->group = even(p, p->w->rows, p->group);
    p->kc_blocks = p->blocks;
    return true;
}

/* Chooses the rows of w in a group and the blocks of a KC block. If there are few panels, a group has so few rows that
 * the KC block can hold all of k: rows are then read once, from start to end. */
static void plan_packed(hc_sparse_product *p, int64_t bytes) {
    const int64_t m = p->packed->format->m, chunks = hc_ceil_div(p->blocks, p->chunk_blocks);
    const int64_t chunk_bytes = 6 * p->packed->format->n * p->chunk_blocks; /* a row's */
    if (p->panels <= FEW_PANELS)
        p->group = hc_min(hc_max(hc_min(bytes, FEW_BYTES) / (chunks * chunk_bytes), LEAST_ROWS), FEW_ROWS);
    else
        p->group = even(p, p->w->rows, hc_min(hc_max(bytes / (chunks * chunk_bytes + p->lanes * 4), KC_ROWS), ROWS));
    int64_t kc = hc_min(bytes / (p->group * chunk_bytes), KC_COLUMNS / m / p->chunk_blocks); /* in chunks */
    if (kc > WHOLE_BYTES)
        kc = kc / WHOLE_BYTES * WHOLE_BYTES;
    /* KC blocks of about equal length. */
    kc = hc_ceil_div(chunks, hc_ceil_div(chunks, hc_max(kc, 1)));
    if (kc > WHOLE_BYTES)
        kc = hc_round_up(kc, WHOLE_BYTES);
    p->kc_blocks = hc_min(kc * p->chunk_blocks, p->blocks);
}

static void plan(hc_sparse_product *p, const hc_kernel *line) {
    const int64_t length = p->packed->geometry->whole_length, m = p->packed->format->m;
    const int64_t bytes = hc_min(THREAD_BYTES, HC_WORK_BYTES / p->run->n_threads);
    p->unit = line->mr;
    p->lanes = (int)hc_min(hc_round_up(p->x->rows, p->unit), p->packed->format->n * 8 <= m ? line->kr : line->nr);
    p->panels = hc_ceil_div(p->x->rows, p->lanes);
    p->run_blocks = hc_ceil_div(length, m);
    p->run_padded = p->run_blocks * m;
    p->blocks = p->packed->geometry->runs * p->run_blocks;
    p->chunk_blocks = hc_max(CHUNK_FLOATS / p->lanes / m, 1);
    p->decoded = plan_decoded(p, bytes);
    if (!p->decoded)
        plan_packed(p, bytes);
    p->panel_floats = p->kc_blocks * m * p->lanes;
}

static void walk(hc_sparse_product *p, int64_t panels_at_once) {
    const int n_threads = p->run->n_threads;
    const int64_t panels = hc_ceil_div(p->x->rows, p->lanes), groups = hc_ceil_div(p->w->rows, p->group);
    for (p->first_panel = 0; p->first_panel < panels; p->first_panel += panels_at_once) {
        p->panels = hc_min(panels_at_once, panels - p->first_panel);
        for (p->first_block = 0; p->first_block < p->blocks; p->first_block = p->end_block) {
            p->end_block = hc_min(p->first_block + p->kc_blocks, p->blocks);
            hc_parallel(n_threads, p->panels, pack_task, p);
            /* Too few groups for all threads: several tasks share a group, and each of them decodes it. */
            p->parts = groups >= 2 * n_threads || n_threads == 1 ? 1 : hc_ceil_div(2 * n_threads, groups);
            p->parts = hc_min(p->parts, p->panels);
            hc_parallel(n_threads, groups * p->parts, group_task, p);
        }
    }
}

const char *hc_gemm_nm_chain_refuses(const hc_product *product) {
    return product->w->sparse ? NULL : product->x->sparse ? "the pattern is on the left" : "no side has a pattern";
}

hc_work hc_gemm_nm_chain_work(const hc_product *product) {
    const hc_packed_context *packed = product->w->sparse;
    const double x_rows = (double)hc_round_up(product->x->rows, 16);
    const double kept = (double)product->w->rows * (double)packed->geometry->columns;
    return (hc_work){.decoded = kept,
                     .unpacked = hc_unpacked(product) ? kept : 0,
                     .products = x_rows * kept,
                     .groups = x_rows * (double)product->w->rows *
                               (double)hc_ceil_div(product->w->columns, packed->format->m),
                     .values = hc_values_and_results(product, x_rows, 7)};
}

hc_status hc_gemm_nm_chain_run(const hc_product *product, hc_error *error) {
    const hc_source *x = product->x, *w = product->w;
    const hc_run fewer = hc_run_for(product), *run = &fewer;
    const hc_kernel *line = HC_BEST(gemm_nm_f32, run);
    hc_sparse_product p = {.run = run,
                           .x = x,
                           .w = w,
                           .packed = w->sparse,
                           .out = hc_merged_rows(&product->out),
                           .kernel = line->fn.gemm_nm_f32,
                           .transpose = HC_PICK(pack_x32, run)};
    p.place = HC_PICK(indices_nm, run);
    plan(&p, line);
    const int64_t panels = hc_ceil_div(x->rows, p.lanes);
    const int64_t at_once = hc_min(panels, hc_max(HC_WORK_BYTES / (p.panel_floats * 4), 1));
    const int64_t shared_at = p.decoded ? hc_round_up(w->rows * nonzeros_of_kc(&p) * 4, HC_CACHE_LINE) : 0;
    const int64_t shared_bytes = hc_round_up(
        p.decoded ? shared_at + w->rows * nonzeros_of_kc(&p) * 2 : at_once * p.panel_floats * 4, HC_CACHE_LINE);
    p.thread_bytes = hc_round_up(lay_out(&p, NULL, NULL), HC_CACHE_LINE);
    const int64_t base_bytes = hc_round_up(nonzeros_of_kc(&p) * (int64_t)sizeof *p.base, HC_CACHE_LINE);
    p.memory = hc_alloc_aligned(shared_bytes + base_bytes + p.thread_bytes * run->n_threads);
    if (!p.memory)
        return hc_fail(error, HC_MEMORY, "product: not enough memory for panels of %lld columns",
                       (long long)x->columns);
    p.shared = (float *)(void *)(p.memory + p.thread_bytes * run->n_threads);
    p.shared_at = (uint16_t *)(void *)((char *)p.shared + shared_at);
    p.base = (uint16_t *)(void *)((char *)p.shared + shared_bytes);
    for (int64_t block = 0, t = 0; block < p.kc_blocks; block++)
        for (int i = 0; i < p.packed->format->n; i++, t++)
            p.base[t] = (uint16_t)(block * p.packed->format->m);
    if (p.decoded) {
        p.end_block = p.blocks;
        hc_parallel(run->n_threads, hc_ceil_div(w->rows, p.group), decode_task, &p);
        hc_parallel(run->n_threads, panels, panel_task, &p);
    } else {
        walk(&p, at_once);
    }
    hc_free_aligned(p.memory);
    return HC_OK;
}
