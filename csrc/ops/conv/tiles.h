/* Convolution by transforms of tiles, for Winograd's algorithms and the Fourier transform. Pixels of a tile and taps of
 * a filter become `places` values per channel. Their products are summed over the channels and transformed back to
 * outputs. Each sum is one fmaf chain, by the kernel of `direct` with one tap. For integers, read from codes, it is a
 * sum modulo 2^32 of pairs of int16. Memory is counted in units of 4 bytes: a float, two int16 or a sum.
 *
 * A task transforms some groups of mr tiles and then multiplies them by one panel of transformed filters at a time. If
 * all transformed tiles fit into `all_tiles_bytes`, or into MOST_KEPT and the size of the filters, a task is a panel
 * instead, which is transformed and multiplied by all tiles before it leaves the cache. Memory: `filter_bytes` of
 * transformed filters (at least one panel), shared, or one panel per thread and those tiles. A thread has TILE_BYTES or
 * FAR_TILE_BYTES of transformed tiles (at least mr tiles), their sums, the outputs of a tile, a panel of filters while
 * they are packed, the memory of a transform, and its part of a band (pixels.h). Nothing grows with the batch.
 */
#ifndef HC_TILES_H
#define HC_TILES_H

#include "ops/conv/filters.h"
#include "ops/conv/prepacked.h"
#include "ops/conv/quantized/codes.h"

enum { HC_TILE_MAX_NR = 64 };

/* A tile of the band: its image in the band, first row and column of its answers. */
typedef struct {
    int64_t image, p, q;
} hc_tile_place;

/* Addresses of the outputs of a tile: each output has several contiguous filters, from `filter` on; steps in floats.
 * `image`: of the band. */
typedef struct {
    float *to;
    int64_t image, filter;
    int64_t row_step, pixel_step;
    int64_t rows, columns;
} hc_tile_answers;

typedef struct hc_tiles hc_tiles;

/* Transforms a tile; `work`: work_floats of the thread's own memory. */
typedef struct {
    int rows, columns;     /* of answers */
    int height, width;     /* of the tile */
    int64_t places;        /* products that a tile becomes */
    int64_t units;         /* of a position of a tile, and of a filter there; 0: one float per channel */
    hc_codes *codes;       /* tiles are read from these codes as integers, or NULL: from pixels */
    int64_t packing_bytes; /* of integers: scratch of a panel */
    int64_t panel_gap;     /* units between positions in a panel */
    int64_t work_floats;   /* of one transform */
    int64_t filter_bytes, all_tiles_bytes;
    /* groups of tiles that are multiplied at a position before the next position: as many as fit, at least one */
    int64_t sum_bytes;
    int m, r;   /* Winograd's */
    int phases; /* of its images, 1 or 4; 0: any other layout */
    void (*input)(const hc_tiles *tiles, const hc_tile_place *at, float *to, int64_t step, float *work);
    void (*panel)(const hc_tiles *tiles, int64_t panel, float *to, int64_t step, void *scratch, float *work);
    void (*output)(const hc_tiles *tiles, const float *sums, int64_t step, int64_t columns, const float *bias,
                   const hc_tile_answers *answers, float *work);
} hc_tiling;

struct hc_tiles {
    const hc_convolution *conv;
    hc_tiling tiling;
    const hc_kernel *kernel;
    hc_filter_panels filters;
    hc_pixels pixels;
    const hc_pixels *band;    /* pixels or codes: determines the outputs */
    hc_pixels all;            /* all outputs as one band, which has no pixels */
    int64_t n_bands, at_hand; /* at_hand: a band, or -1 */
    int64_t kept_tiles;       /* of the bands before this one */
    int64_t down, across;     /* tiles of the current band, of one image */
    int64_t group;            /* of channels */
    int64_t groups;           /* of mr tiles, of a task */
    int64_t together;         /* of those, at one place */
    int64_t tile_ld;          /* floats from position to position of a tile */
    hc_filter_form form;
    bool packed;    /* all panels were packed before */
    bool by_panels; /* a task is a panel; each thread has memory for one, and all tiles are kept */
    int64_t tile_floats, task_floats, panel_step, panel_floats;
    int64_t panels_at_once, first_panel, n_panels;
    float *memory, *panels, *kept, *private_memory; /* kept: the tiles of each task, if by_panels */
    int64_t kept_at, shared_floats, private_floats;
    int64_t own_at, tiles_at, sums_at; /* offsets in private memory, after the memory of a transform */
    int64_t bytes;                     /* of all memory */
};

void hc_tiles_init(hc_tiles *tiles, const hc_convolution *conv, const hc_tiling *tiling);
hc_status hc_tiles_run(hc_tiles *tiles, hc_error *error);
/* Transforms all panels of all groups. */
hc_status hc_tiles_prepack(hc_tiles *tiles, hc_prepacked_filters *to, hc_error *error);

#endif
