/* Decoding: calls the SIMD sets of the format in order until one does not decline. */
#include "ops/codec/decode.h"

/* The call of a kernel for each row is then a small part of its time. */
enum { MAX_JOINED = 64 };

bool hc_rows_join(const hc_format *format, const hc_geometry *geometry, const hc_components *components, int64_t rows,
                  int64_t ld, hc_geometry *joined) {
    const int64_t columns = geometry->padded, bits = columns * format->bits;
    if (rows < 2 || columns > MAX_JOINED || ld != columns || bits % 8 != 0 || format->m > 0 ||
        components->part[HC_CODES].row_stride != bits / 8)
        return false;
    const hc_stored_form form = hc_form_of(format);
    if (!hc_form_fits_any_axis(&form) || hc_form_has_codebook(&form))
        return false;
    const int64_t n = rows * columns;
    *joined = (hc_geometry){1, 1, n, n, 1, 1, n, n, n, n};
    return true;
}

/* The tile of whole rows as one row. */
static bool join(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                 const hc_tile *tile, int64_t ld, hc_geometry *joined, hc_components *from, hc_tile *whole) {
    if (tile->columns != geometry->padded || !hc_rows_join(format, geometry, components, tile->rows, ld, joined))
        return false;
    *from = *components;
    from->part[HC_CODES].data = hc_part(components, HC_CODES, tile->first_row);
    *whole = (hc_tile){.rows = 1, .columns = joined->padded};
    return true;
}

void hc_decode_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    if (tile->rows == 0 || tile->columns == 0) /* pointers may be NULL then */
        return;
    hc_geometry joined;
    hc_components from;
    hc_tile whole;
    if (join(format, geometry, components, tile, ld, &joined, &from, &whole))
        geometry = &joined, components = &from, tile = &whole;
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->values &&
            (*set)->values(format, geometry, components, tile, values, ld) == HC_DONE)
            return;
    hc_format_find(format->family)->decode(format, geometry, components, tile, values, ld);
}

void hc_decode_f64_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, double *values, int64_t ld) {
    if (tile->rows == 0 || tile->columns == 0)
        return;
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->doubles &&
            (*set)->doubles(format, geometry, components, tile, values, ld) == HC_DONE)
            return;
    hc_format_find(format->family)->decode_f64(format, geometry, components, tile, values, ld);
}

void hc_decode_int_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, hc_int_mode mode,
                        const hc_int_tile *out) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->integers &&
            (*set)->integers(format, geometry, components, tile, mode, out) == HC_DONE)
            return;
    hc_format_find(format->family)->decode_int(format, geometry, components, tile, mode, out);
}

void hc_decode_codes_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                          const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->codes &&
            (*set)->codes(format, geometry, components, tile, out) == HC_DONE)
            return;
    hc_format_find(format->family)->decode_codes(format, geometry, components, tile, out);
}

hc_int_form hc_integers_of(const hc_format *format, hc_int_mode mode) {
    const hc_format_ops *ops = hc_format_find(format->family);
    hc_int_form form = {0};
    if (ops->decode_int)
        ops->int_form(format, mode, &form);
    return form;
}

hc_row_floats_fn *hc_row_scales_fn(const hc_run *run, const hc_format *format, const hc_stored_form *form) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->scales)
            return (*set)->scales;
    return form->row_scales;
}

hc_row_floats_fn *hc_minima_fn(const hc_run *run, const hc_format *format) {
    for (hc_simd_sets set = hc_format_simd_sets(format->family); *set; set++)
        if (hc_simd_runs(*set, run->isa) && (*set)->minima)
            return (*set)->minima;
    return hc_format_find(format->family)->minima;
}
