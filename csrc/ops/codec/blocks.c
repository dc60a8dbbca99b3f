/* Blocks of rows for tasks, and the search for the first invalid value if a task met one. */
#include "ops/codec/blocks.h"

#include "base/convert.h"
#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/codec/clip.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block stays in L2. Below SMALL values, waking threads costs more than the work. */
enum { BLOCK_VALUES = 1 << 15, SMALL = 1 << 13, MAX_BLOCK_BYTES = 16 << 20 };

hc_status hc_blocks_init(hc_blocks *blocks, const hc_encoder *encoder, const hc_run *run, int64_t first_row,
                         int64_t rows, int64_t extra_row_bytes, hc_error *error) {
    const hc_geometry *g = &encoder->geometry;
    *blocks = (hc_blocks){.encoder = encoder, .isa = run->isa, .first_row = first_row, .rows = rows};
    atomic_init(&blocks->illegal, false);
    const bool prunes = encoder->format.m > 0;
    hc_float_rows direct;
    if (prunes)
        blocks->view = encoder->pruner.x;
    else
        hc_rows_init(&blocks->view, encoder->x, g, encoder->n_axes, encoder->axes);
    blocks->direct = !prunes && hc_rows_direct(&blocks->view, 0, &direct);
    const int64_t columns = rows ? hc_max(g->padded, 1) : 1, size = hc_rows_size(&blocks->view);
    blocks->n_threads = columns * rows < SMALL ? 1 : run->n_threads;
    blocks->ld = hc_rows_ld(columns);
    int64_t block = hc_min(BLOCK_VALUES / columns, hc_ceil_div(rows, 4 * (int64_t)blocks->n_threads));
    if (hc_rows_across(&blocks->view)) /* whole cache lines of neighbouring rows */
        block = hc_min(hc_round_up(hc_max(block, 1), 64), MAX_BLOCK_BYTES / size / blocks->ld);
    blocks->block_rows = hc_min(hc_max(block, 1), hc_max(rows, 1));
    blocks->n_blocks = hc_max(hc_ceil_div(rows, blocks->block_rows), 1);
    blocks->n_threads = (int)hc_min(blocks->n_threads, blocks->n_blocks);
    int64_t bytes = blocks->direct ? 0 : blocks->block_rows * blocks->ld * size;
    blocks->metadata_at = hc_round_up(bytes, HC_CACHE_LINE);
    bytes = blocks->metadata_at + (prunes ? blocks->block_rows * encoder->pruner.row_bytes : 0);
    blocks->prune_at = hc_round_up(bytes, HC_CACHE_LINE);
    bytes = blocks->prune_at + (prunes ? encoder->pruner.scratch_bytes : 0);
    blocks->scratch_at = hc_round_up(bytes, HC_CACHE_LINE);
    const bool sorts = encoder->clip.kind != HC_CLIP_ABSMAX && rows;
    const int64_t scratch = hc_round_up(hc_max(g->group, HC_OCTAV_SCRATCH) * 8, HC_CACHE_LINE);
    blocks->thresholds_at = blocks->scratch_at + (sorts ? scratch : 0);
    bytes = blocks->thresholds_at + (sorts ? blocks->block_rows * g->groups * 4 : 0);
    blocks->learn_at = hc_round_up(bytes, HC_CACHE_LINE);
    blocks->extra_at = blocks->learn_at + encoder->learn_row_bytes;
    blocks->thread_bytes = hc_round_up(blocks->extra_at + blocks->block_rows * extra_row_bytes, HC_CACHE_LINE);
    if (blocks->thread_bytes == 0)
        return HC_OK;
    blocks->memory = hc_alloc_aligned(blocks->thread_bytes * blocks->n_threads);
    if (!blocks->memory)
        return hc_fail(error, HC_MEMORY, "%s: not enough memory for a block of %lld x %lld values", encoder->name,
                       (long long)blocks->block_rows, (long long)columns);
    return HC_OK;
}

/* The nonzeros of a block's rows; false if a value is NaN. */
static bool load_kept(const hc_blocks *blocks, char *memory, int64_t row, int64_t rows) {
    const hc_pruner *pruner = &blocks->encoder->pruner;
    const hc_kept_rows kept = {.first_row = row,
                               .dtype = hc_rows_dtype(&blocks->view),
                               .values = memory,
                               .ld = blocks->ld,
                               .metadata = (uint8_t *)memory + blocks->metadata_at,
                               .metadata_ld = pruner->row_bytes};
    return hc_prune_rows(pruner, rows, memory + blocks->prune_at, &kept);
}

void hc_blocks_metadata(const hc_blocks *blocks, int thread, const hc_float_rows *x, const hc_components *out) {
    if (blocks->encoder->format.m == 0)
        return;
    const int64_t bytes = blocks->encoder->pruner.row_bytes;
    const char *metadata = blocks->memory + thread * blocks->thread_bytes + blocks->metadata_at;
    for (int64_t i = 0; i < x->rows && bytes > 0; i++)
        memcpy(hc_part(out, HC_METADATA, x->first_row + i), metadata + i * bytes, (size_t)bytes);
}

bool hc_blocks_load(hc_blocks *blocks, int64_t block, int thread, hc_float_rows *x, const float **thresholds) {
    const hc_encoder *encoder = blocks->encoder;
    char *memory = hc_offset(blocks->memory, thread * blocks->thread_bytes);
    const int64_t first = block * blocks->block_rows, row = blocks->first_row + first;
    *x = (hc_float_rows){.data = memory,
                         .dtype = hc_rows_dtype(&blocks->view),
                         .row_stride = blocks->ld,
                         .first_row = first,
                         .rows = hc_min(blocks->block_rows, blocks->rows - first)};
    *thresholds = NULL;
    if (encoder->format.m > 0) {
        if (!load_kept(blocks, memory, row, x->rows)) {
            atomic_store(&blocks->illegal, true);
            return false;
        }
    } else if (blocks->direct) {
        hc_rows_direct(&blocks->view, row, x);
    } else {
        hc_rows_gather(&blocks->view, blocks->isa, row, x->rows, 0, encoder->geometry.padded, memory, blocks->ld);
    }
    if (encoder->clip.kind == HC_CLIP_ABSMAX)
        return true;
    float *found = (float *)(memory + blocks->thresholds_at);
    *thresholds = found;
    if (hc_clip_is_whole(&encoder->format)) {
        for (int64_t i = 0; i < x->rows * encoder->geometry.groups; i++)
            found[i] = encoder->threshold;
        return true;
    }
    if (hc_clip_thresholds(&encoder->clip, &encoder->format, &encoder->geometry, blocks->isa, x,
                           (double *)(memory + blocks->scratch_at), found) == HC_DONE)
        return true;
    atomic_store(&blocks->illegal, true);
    return false;
}

/* Searches the caller's array in C order: first for NaN and infinity, then for values that are too large. */
static hc_status first_illegal(const hc_encoder *encoder, hc_error *error) {
    const hc_view *x = encoder->x;
    double beyond = 0;
    int64_t beyond_index[HC_MAX_DIMS] = {0}, index[HC_MAX_DIMS] = {0};
    const char *data = x->data;
    do {
        const double value = hc_load_float(data, x->dtype);
        bool legal = encoder->ops->legal ? encoder->ops->legal(&encoder->format, value)
                                         : fabs((double)(float)value) <= (double)FLT_MAX;
        legal = legal && !(encoder->format.m > 0 && isnan(value)); /* NaN cannot be ranked among magnitudes */
        if (!legal && !isfinite(value))
            return hc_refuse_value(error, encoder->argument, x->ndim, index, value, "");
        if (!legal && beyond == 0) {
            beyond = value;
            memcpy(beyond_index, index, sizeof index);
        }
    } while (hc_view_next(x, index, &data));
    if (beyond == 0)
        return hc_fail(error, HC_VALUE, "%s: %s changed while it was read", encoder->name, encoder->argument);
    return hc_refuse_value(error, encoder->argument, x->ndim, beyond_index, beyond, "beyond float32's largest");
}

hc_status hc_blocks_finish(hc_blocks *blocks, hc_error *error) {
    hc_free_aligned(blocks->memory);
    return atomic_load(&blocks->illegal) ? first_illegal(blocks->encoder, error) : HC_OK;
}
