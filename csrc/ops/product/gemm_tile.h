/* One tile of a blocked product, mr rows by nr columns of `out`: what gemm.c schedules and gemm_tile.c multiplies. */
#ifndef HC_GEMM_TILE_H
#define HC_GEMM_TILE_H

#include "ops/product/pack.h"
#include "ops/product/prepack.h"

typedef struct {
    hc_order kind;
    bool skips; /* b is packed as what its pattern keeps */
    bool split; /* FOLDED: b is packed as codes and integer scales of groups */
    hc_rows out;
    int64_t m, n, k;
    bool exact_groups; /* GROUPED beyond what gemm_s8_scaled does: several limbs, or segments longer than a KC block */
    bool waits_in_out;
    int64_t kc_limit, kc_count, max_steps, max_segments;
    const hc_kernel *kernel;
    hc_dequantize_s32_fn *dequantize_s32;
    hc_dequantize_s64_fn *dequantize_s64;
    hc_combine_limbs_fn *join;
    hc_scale_s64_fn *scale_s64;
    hc_panels a, b;
    hc_panels *shared, *streamed;  /* one is a, the other b */
    const hc_prepacked *prepacked; /* panels of b that exist already, or NULL */
    hc_kc kc;
    int64_t shared_block, streamed_block, group; /* panels: packed at once, walked at once, of one task */
    uint8_t *memory, *private_memory, *scratch;
    int64_t private_bytes, scratch_bytes; /* of one thread */
    int64_t *dots;                        /* integer sums that wait for the next KC block, tile by tile */
    float *partial;                       /* with exact_groups: values that wait */
    /* The step at hand: first rows and panels of either side, tasks. */
    int64_t shared_first, streamed_first, shared_panels, streamed_panels;
    int64_t parts, groups;
} hc_gemm_job;

/* What lies where of one tile. */
typedef struct {
    const hc_panels *a, *b;
    int64_t a_panel, b_panel;
    int64_t row, column; /* in out */
    int64_t rows, columns;
    int64_t waiting; /* index of its first value in dots and partial */
    void *sums;      /* hc_tile_sums_bytes of this thread */
} hc_tile_at;

/* Memory for the sums of one tile, before they become floats. */
int64_t hc_tile_sums_bytes(const hc_gemm_job *product);

/* The KC block at hand of one tile: into `out`, or into the sums that wait for the next KC block. */
void hc_multiply_tile(const hc_gemm_job *product, const hc_tile_at *at);

#endif
