/* An array in blocks of rows, as formats take them: each task loads one block (gathered where memory does not lie
 * as wanted, with its clipping thresholds), and works on it alone.
 *
 * Memory: nothing for contiguous float32 or float64 rows; else one block a thread, at most 16 MiB or one row. Of a pattern
 * a block is what is kept, always gathered, with its positions and a tile of x.
 * Percentile and OCTAV take 8 bytes a value of one group and 4 bytes a group of a block on top. Codebooks of rows take
 * what learning one row does (learn.h) for each thread.
 */
#ifndef HC_BLOCKS_H
#define HC_BLOCKS_H

#include "ops/codec/encoding.h"
#include "ops/codec/rows.h"

#include <stdatomic.h>

typedef struct {
    const hc_encoder *encoder;
    hc_row_view view;
    uint32_t isa;
    int64_t first_row, rows; /* of the view */
    int64_t block_rows, n_blocks, ld;
    int n_threads;
    bool direct;
    char *memory;
    int64_t thread_bytes, metadata_at, prune_at, scratch_at, thresholds_at, learn_at, extra_at;
    atomic_bool illegal;
} hc_blocks;

/* extra_row_bytes: what the tasks want on top, bytes a row of a block, at hc_blocks_extra. */
hc_status hc_blocks_init(hc_blocks *blocks, const hc_encoder *encoder, const hc_run *run, int64_t first_row,
                         int64_t rows, int64_t extra_row_bytes, hc_error *error);
static inline void *hc_blocks_extra(const hc_blocks *blocks, int thread) {
    return hc_offset(blocks->memory, thread * blocks->thread_bytes + blocks->extra_at);
}
/* Block `block` as thread `thread` sees it; x->first_row counts from the first row of all blocks. false, and noted
 * in `illegal`, where thresholds met an illegal value. */
bool hc_blocks_load(hc_blocks *blocks, int64_t block, int thread, hc_float_rows *x, const float **thresholds);
/* The positions of what is kept of loaded rows, to the same rows of `out`; nothing where the format keeps all. */
void hc_blocks_metadata(const hc_blocks *blocks, int thread, const hc_float_rows *x, const hc_components *out);
/* Frees; where a task noted an illegal value, the error that names the first one of the whole array. */
hc_status hc_blocks_finish(hc_blocks *blocks, hc_error *error);

#endif
