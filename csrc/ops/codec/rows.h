/* Rows of a view, as formats see them: any axes, strides and float type in, contiguous padded rows out, and back.
 *
 * Row r is one index of the axes that are not reduced, in C order. Its padded columns are runs one after the other;
 * run u starts at column u * padded_run and holds run_length values and then padding, the value +0.
 */
#ifndef HC_ROWS_H
#define HC_ROWS_H

#include "base/row_view.h"
#include "hc.h"

/* The view's shape and axes have been checked. */
void hc_rows_init(hc_row_view *view, const hc_view *array, const hc_geometry *geometry, int n_axes, const int *axes);

/* True where rows lie in memory just as formats want them (float32 or float64, no padding, aligned); fills
 * `direct` but for the number of rows. */
bool hc_rows_direct(const hc_row_view *view, int64_t first_row, hc_float_rows *direct);

/* float64 for float64, float32 for the others, which it holds exactly. */
static inline hc_dtype hc_rows_dtype(const hc_row_view *view) { return view->dtype == HC_F64 ? HC_F64 : HC_F32; }
static inline int64_t hc_rows_size(const hc_row_view *view) { return view->dtype == HC_F64 ? 8 : 4; } /* bytes */

/* True where neighbouring rows are nearer in memory than neighbouring columns: blocks of rows are then best. */
bool hc_rows_across(const hc_row_view *view);

/* Padded columns [first_column, first_column + columns) of rows into `values` of hc_rows_dtype. */
void hc_rows_gather(const hc_row_view *view, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                    void *values, int64_t ld);

/* The way back, into a float32 or float64 view; paddings are dropped. `values` has the view's dtype. */
void hc_rows_scatter(const hc_row_view *view, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                     const void *values, int64_t ld);

#endif
