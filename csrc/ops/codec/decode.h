/* Tiles of packed rows, by the best SIMD set of their format that the run allows, otherwise by the format's
 * definition. */
#ifndef HC_DECODE_H
#define HC_DECODE_H

#include "formats/format.h"
#include "hc.h"

/* Tiles as in base/packed.h. */
void hc_decode_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld);
void hc_decode_f64_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, double *values, int64_t ld);
void hc_decode_int_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out);
void hc_decode_codes_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                          const hc_components *components, const hc_tile *tile, const hc_code_tile *out);

/* Short rows without scales whose values (ld elements apart) and codes both follow each other without a gap are one row,
 * whose geometry is `joined`. False: they are not. */
bool hc_rows_join(const hc_format *format, const hc_geometry *geometry, const hc_components *components, int64_t rows,
                  int64_t ld, hc_geometry *joined);

/* Integers of this mode; all fields are 0 if the format has none. */
hc_int_form hc_integers_of(const hc_format *format, hc_int_mode mode);

/* The best function for the scales of a row of a format whose form has row_scales, and for its minima. */
hc_row_floats_fn *hc_row_scales_fn(const hc_run *run, const hc_format *format, const hc_stored_form *form);
hc_row_floats_fn *hc_minima_fn(const hc_run *run, const hc_format *format);

#endif
