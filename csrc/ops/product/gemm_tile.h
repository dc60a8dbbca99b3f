/* One tile of a blocked matmul, mr rows by nr columns of `out`. gemm.c schedules tiles, gemm_tile.c computes them. */
#ifndef HC_GEMM_TILE_H
#define HC_GEMM_TILE_H

#include "ops/product/pack.h"
#include "ops/product/prepack.h"

typedef struct {
    hc_order kind;
    bool skips;            /* b is packed as the nonzeros of its pattern */
    bool split;            /* FOLDED: b is packed as codes and integer scales of groups */
    int64_t split_columns; /* whose sums then fit int32 */
    hc_rows out;
    int64_t m, n, k;
    /* GROUPED with several limbs or segments longer than a KC block, which gemm_s8_scaled does not support */
    bool exact_groups;
    bool waits_in_out;
    int64_t kc_limit, kc_count, max_steps, max_segments;
    const hc_kernel *kernel;
    const hc_kernel *few; /* for tiles with fewer rows, or NULL */
    hc_dequantize_s32_fn *dequantize_s32;
    hc_dequantize_s64_fn *dequantize_s64;
    hc_combine_limbs_fn *join;
    hc_scale_s64_fn *scale_s64;
    hc_panels a, b;
    hc_panels *shared, *streamed;  /* panels of one side each: a or b */
    const hc_prepacked *prepacked; /* panels of b that exist already, or NULL */
    hc_kc kc;
    int64_t shared_block, streamed_block, group; /* panels: packed at once, walked at once, per task */
    uint8_t *memory, *private_memory, *scratch;
    int64_t private_bytes, scratch_bytes; /* of one thread */
    int64_t *dots;                        /* integer sums of earlier KC blocks, tile by tile */
    float *partial;                       /* with exact_groups: values that wait for the next KC block */
    /* The current step: first rows and panels of either side, number of tasks. */
    int64_t shared_first, streamed_first, shared_panels, streamed_panels;
    int64_t parts, groups;
} hc_gemm_job;

/* Addresses and indices of one tile. */
typedef struct {
    const hc_panels *a, *b;
    int64_t a_panel, b_panel;
    int64_t row, column; /* in out */
    int64_t rows, columns;
    int64_t waiting; /* index of its first value in dots and partial */
    void *sums;      /* hc_tile_sums_bytes of this thread */
} hc_tile_at;

/* The kernel for tiles of `kernel` with few rows, or NULL. */
const hc_kernel *hc_few_rows_kernel(const hc_kernel *kernel, const hc_run *run);

int hc_most_few(const hc_kernel *few, hc_few_kind kind);

/* Memory for the sums of one tile, before they become floats. */
int64_t hc_tile_sums_bytes(const hc_gemm_job *product);

/* Multiplies the current KC block of one tile: into `out`, or into the sums that wait for the next KC block. */
void hc_multiply_tile(const hc_gemm_job *product, const hc_tile_at *at);

#endif
