/* From the axes of an array to rows and groups (base/packed.h). Geometries are made only here. */
#ifndef HC_LAYOUT_H
#define HC_LAYOUT_H

#include "base/packed.h"

/* `format` is legal, and each of its codes covers `unit` values (formats/format.h: unit). NULL and 1: values without a
 * format, in rows without groups or a pattern. `run_length` is that of whole rows. An error names what overflows. */
hc_status hc_geometry_init(const hc_format *format, int unit, int64_t rows, int64_t runs, int64_t run_length,
                           hc_geometry *geometry, hc_error *error);

/* The same for an array, whose axes are checked: distinct, in range, at least one. */
hc_status hc_geometry_of_axes(const hc_format *format, int unit, int ndim, const int64_t *shape, int n_axes,
                              const int *axes, hc_geometry *geometry, hc_error *error);

#endif
