/* Rows of a view of which n of every m values stay (sparsity/nm.h), in tiles, so that what is read of the view stays in
 * L2. Which stay is decided by float32; kept values of float64 are float64 until a format rounds them.
 */
#ifndef HC_PRUNE_H
#define HC_PRUNE_H

#include "kernels/kernel.h"
#include "ops/codec/rows.h"

enum { HC_CHOOSE_LINES = 4 };

typedef struct {
    int n, m;
    hc_geometry geometry; /* whole columns, padded in blocks of m */
    hc_row_view x, scores;
    bool has_scores;
    int64_t kept_run, padded_run;             /* kept values of a run, and where those of the next run begin */
    int64_t row_bytes;                        /* of metadata */
    hc_choose_nm_fn *choose[HC_CHOOSE_LINES]; /* best first, NULL behind the last */
    int64_t tile_rows, tile_columns;
    int64_t scratch_bytes; /* of one thread */
} hc_pruner;

/* Whole rows as blocks of m, and the bytes of a row's metadata; false where sizes overflow. */
bool hc_prune_geometry(int n, int m, hc_geometry *geometry, int64_t *row_bytes);
/* `geometry` is that of x, without a format or with one of this pattern; all is checked. scores: of x's shape, or NULL for |x|. padded_run is kept_run,
 * unless the caller changes it. */
void hc_pruner_init(hc_pruner *pruner, const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m,
                    const hc_geometry *geometry, int n_axes, const int *axes);

/* Where what is kept of row `first_row` and those behind it goes. dtype: HC_F32, where float64 saturates, or HC_F64 of a
 * view of float64. */
typedef struct {
    int64_t first_row;
    hc_dtype dtype;
    char *values;
    int64_t ld; /* elements */
    uint8_t *metadata;
    int64_t metadata_ld;
} hc_kept_rows;

/* Up to tile_rows rows and tile_columns columns, runs side by side whatever padded_run is; `column` is a multiple of
 * tile_columns. false, and no answer, where a score is NaN. */
bool hc_prune_tile(const hc_pruner *pruner, int64_t row, int64_t rows, int64_t column, void *scratch,
                   const hc_kept_rows *out);
/* All columns of out->first_row and the rows behind it, with zeros between kept_run and padded_run. */
bool hc_prune_rows(const hc_pruner *pruner, int64_t rows, void *scratch, const hc_kept_rows *out);

#endif
