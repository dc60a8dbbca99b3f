/* Rows of a view of which n of every m values are kept (sparsity/nm.h), in tiles, so that the values of a tile stay in
 * L2. Nonzeros are chosen by float32 scores. Nonzeros of a float64 view are float64 until a format rounds them.
 */
#ifndef HC_PRUNE_H
#define HC_PRUNE_H

#include "kernels/kernel.h"
#include "ops/codec/rows.h"

enum { HC_CHOOSE_LINES = 4 };

typedef struct {
    uint32_t isa;
    int n, m;
    hc_geometry geometry; /* whole columns, padded in blocks of m */
    hc_row_view x, scores;
    bool has_scores;
    int64_t kept_run, padded_run;             /* nonzeros of a run, and their distance to those of the next run */
    int64_t row_bytes;                        /* of metadata */
    hc_choose_nm_fn *choose[HC_CHOOSE_LINES]; /* best first, NULL after the last */
    int64_t tile_rows, tile_columns;
    int64_t scratch_bytes; /* of one thread */
} hc_pruner;

/* Whole rows as blocks of m, and the bytes of a row's metadata; false if sizes overflow. */
bool hc_prune_geometry(int n, int m, hc_geometry *geometry, int64_t *row_bytes);
/* `geometry` is that of x, without a format or with a format of this pattern; the caller has checked all arguments.
 * scores: of x's shape, or NULL for |x|. padded_run is kept_run, unless the caller changes it. */
void hc_pruner_init(hc_pruner *pruner, const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m,
                    const hc_geometry *geometry, int n_axes, const int *axes);

/* Target of the nonzeros of row `first_row` and the rows after it. dtype: HC_F32, where float64 saturates, or HC_F64
 * for a float64 view. */
typedef struct {
    int64_t first_row;
    hc_dtype dtype;
    char *values;
    int64_t ld; /* elements */
    uint8_t *metadata;
    int64_t metadata_ld;
} hc_kept_rows;

/* Up to tile_rows rows and tile_columns columns, with contiguous runs for every padded_run; `column` is a multiple of
 * tile_columns. false, without a result, if a score is NaN. */
bool hc_prune_tile(const hc_pruner *pruner, int64_t row, int64_t rows, int64_t column, void *scratch,
                   const hc_kept_rows *out);
/* All columns of out->first_row and the rows after it, with zeros between kept_run and padded_run. */
bool hc_prune_rows(const hc_pruner *pruner, int64_t rows, void *scratch, const hc_kept_rows *out);

#endif
