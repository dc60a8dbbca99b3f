/* An array in blocks of rows, as formats expect them. Each task loads one block with its clipping thresholds and works
 * on it alone. The block is gathered if its rows are not contiguous.
 *
 * Memory: nothing for contiguous float32 or float64 rows; otherwise one block per thread, at most 16 MiB or one row.
 * With a pattern a block contains the nonzeros, always gathered, with their positions and a tile of x. Percentile and
 * OCTAV need another 8 bytes per value of one group and 4 bytes per group of a block. Codebooks of rows need the memory
 * to learn one row (learn.h) per thread.
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

/* extra_row_bytes: further bytes per row of a block that the tasks need, at hc_blocks_extra. */
hc_status hc_blocks_init(hc_blocks *blocks, const hc_encoder *encoder, const hc_run *run, int64_t first_row,
                         int64_t rows, int64_t extra_row_bytes, hc_error *error);
static inline void *hc_blocks_extra(const hc_blocks *blocks, int thread) {
    return hc_offset(blocks->memory, thread * blocks->thread_bytes + blocks->extra_at);
}
/* Loads block `block` for thread `thread`. x->first_row counts from the first row of all blocks. Returns false, and
 * sets `illegal`, if the thresholds met an invalid value. */
bool hc_blocks_load(hc_blocks *blocks, int64_t block, int thread, hc_float_rows *x, const float **thresholds);
/* Writes the positions of the nonzeros of loaded rows to the same rows of `out`; does nothing without a pattern. */
void hc_blocks_metadata(const hc_blocks *blocks, int thread, const hc_float_rows *x, const hc_components *out);
/* Frees the memory. If a task noted an invalid value, returns the error that names the first one of the whole array. */
hc_status hc_blocks_finish(hc_blocks *blocks, hc_error *error);

#endif
