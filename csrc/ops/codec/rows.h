/* Rows of a view in the layout of formats: from any axes, strides and float type to contiguous padded rows, and back.
 *
 * Row r is one index of the axes that are not reduced, in C order. Its padded columns are runs one after the other;
 * run u starts at column u * padded_run and holds run_length values and then padding, the value +0.
 */
#ifndef HC_ROWS_H
#define HC_ROWS_H

#include "base/row_view.h"
#include "hc.h"

/* The caller has checked the view's shape and axes. */
void hc_rows_init(hc_row_view *view, const hc_view *array, const hc_geometry *geometry, int n_axes, const int *axes);

/* Whether rows in memory already have the layout of formats (float32 or float64, no padding, aligned). Then fills
 * `direct`, except for the number of rows. */
bool hc_rows_direct(const hc_row_view *view, int64_t first_row, hc_float_rows *direct);

/* float64 for float64, float32 for all other types, whose values it holds exactly. */
static inline hc_dtype hc_rows_dtype(const hc_row_view *view) { return view->dtype == HC_F64 ? HC_F64 : HC_F32; }
static inline int64_t hc_rows_size(const hc_row_view *view) { return view->dtype == HC_F64 ? 8 : 4; } /* bytes */

/* Whether neighbouring rows are nearer in memory than neighbouring columns. Blocks of rows are then fastest. */
bool hc_rows_across(const hc_row_view *view);

/* A distance of gathered rows in elements. Long ones are not a power of two apart, with which they would share cache
 * sets; short ones have no gap, so that rows may be joined. */
static inline int64_t hc_rows_ld(int64_t columns) { return columns > 64 ? hc_round_up(columns, 16) + 16 : columns; }

/* Padded columns [first_column, first_column + columns) of rows into `values` of hc_rows_dtype. */
void hc_rows_gather(const hc_row_view *view, uint32_t isa, int64_t first_row, int64_t rows, int64_t first_column,
                    int64_t columns, void *values, int64_t ld);

/* The reverse, into a float32 or float64 view. Padding is dropped. `values` has the view's dtype. */
void hc_rows_scatter(const hc_row_view *view, uint32_t isa, int64_t first_row, int64_t rows, int64_t first_column,
                     int64_t columns, const void *values, int64_t ld);

/* Adjacent values of float16 or bfloat16 as float32. */
void hc_widen_run(const uint16_t *from, hc_dtype dtype, int64_t n, float *to);

#endif
