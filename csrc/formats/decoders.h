/* The decoders of a family: loops over the rows, groups and codes of a tile, which a family's file includes once. */
#include "formats/minifloat.h"

/* Before that, the file defines
 *
 *   HC_DECODED           its name
 *   HC_DECODED_BITS      bits of a code, if all its formats have the same
 *   HC_DECODED_GROUPS    whether a format has groups, if some have one scale per row
 *   hc_loaded            the parameters of a group: `scale`, its float32 scale, and others, such as a zero point
 *   load_group           loads them
 *   number_of            the number of a code, which the scale multiplies
 *   value_of, exact_of   the value of a code as float32 and as float64
 *
 * and for values that are integers times scales HC_DECODED_INTEGERS, with
 *
 *   integer_of           the integer of a code
 *
 * and for a second level of scales HC_DECODED_SECOND, with
 *
 *   second_of            the scale of a row or the array, which multiplies those of groups; 1 without one
 *   whole_scale_of       the product of both scales of a group
 */

#ifndef HC_DECODED_BITS
#define HC_DECODED_BITS format->bits
#endif
#ifndef HC_DECODED_GROUPS
#define HC_DECODED_GROUPS true
#define HC_DECODED_ROWS false /* formats with one scale per row */
#endif
#ifndef HC_DECODED_ROWS
#define HC_DECODED_ROWS true
#endif
#ifdef HC_DECODED_SECOND
#define HC_DECODED_SPLITS true /* into integers of the first level and scales of the second */
#else
#define HC_DECODED_SPLITS false
#endif
#ifdef __CUDACC__ /* less code */
#define HC_FIRST_CODE(codes, row) const uint8_t *codes = row
#define HC_NEXT_CODE(codes) hc_read_bits(codes, tile->first_column + j, HC_DECODED_BITS)
#else
#define HC_FIRST_CODE(codes, row) hc_bit_reader codes = hc_bits_from(row, tile->first_column, HC_DECODED_BITS)
#define HC_NEXT_CODE(codes) hc_next_bits(&codes, HC_DECODED_BITS)
#endif
#define HC_DECODER_(family, what) family##_##what
#define HC_DECODER(family, what) HC_DECODER_(family, what)

static int64_t HC_DECODER(HC_DECODED, decode)(const hc_format *format, const hc_geometry *geometry,
                                              const hc_components *components, const hc_tile *tile, float *values,
                                              int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        hc_bit_reader codes = hc_bits_from(hc_part(components, HC_CODES, row), tile->first_column, HC_DECODED_BITS);
        HC_FOR_GROUPS(tile, geometry) {
            const hc_loaded of = load_group(format, geometry, components, row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = value_of(format, &of, hc_next_bits(&codes, HC_DECODED_BITS));
        }
    }
    return HC_DONE;
}

static int64_t HC_DECODER(HC_DECODED, decode_f64)(const hc_format *format, const hc_geometry *geometry,
                                                  const hc_components *components, const hc_tile *tile, double *values,
                                                  int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        HC_FIRST_CODE(codes, hc_part(components, HC_CODES, row));
        HC_FOR_GROUPS(tile, geometry) {
            const hc_loaded of = load_group(format, geometry, components, row, group);
            HC_SHORT_LOOP
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = exact_of(format, &of, HC_NEXT_CODE(codes));
        }
    }
    return HC_DONE;
}

#ifndef HC_DECODED_SECOND
static float second_of(const hc_format *format, const hc_components *components, int64_t row) {
    return (void)format, (void)components, (void)row, 1.0f;
}
#endif

/* The scales of all groups of a row. */
static inline void HC_DECODER(HC_DECODED, row_scales)(const hc_format *format, const hc_geometry *geometry,
                                                      const hc_components *components, int64_t row, float *scales) {
    for (int64_t group = 0; group < geometry->groups; group++)
        scales[group] = load_group(format, geometry, components, row, group).scale;
}

/* The scale that all codes of a row share: the second level, or the one scale of a row without groups. */
static float row_scale_of(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                          int64_t row) {
    return HC_DECODED_GROUPS ? second_of(format, components, row)
                             : load_group(format, geometry, components, row, 0).scale;
}

static int64_t HC_DECODER(HC_DECODED, decode_codes)(const hc_format *format, const hc_geometry *geometry,
                                                    const hc_components *components, const hc_tile *tile,
                                                    const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        float *scales = HC_DECODED_GROUPS ? out->scales + i * out->scales_ld : NULL;
        out->row_scale[i] = row_scale_of(format, geometry, components, row);
        HC_FOR_GROUPS(tile, geometry) {
            const hc_loaded of = load_group(format, geometry, components, row, group);
            if (scales)
                *scales++ = of.scale;
            for (int64_t j = c; j < last; j++)
                out->codes[i * out->codes_ld + j] =
                    number_of(format, &of, hc_read_bits(codes, tile->first_column + j, HC_DECODED_BITS));
        }
    }
    return HC_DONE;
}

#ifdef HC_DECODED_INTEGERS
#ifndef HC_DECODED_SECOND
static float whole_scale_of(const hc_format *format, const hc_loaded *of) { return (void)format, of->scale; }
#endif

static int64_t HC_DECODER(HC_DECODED, decode_int)(const hc_format *format, const hc_geometry *geometry,
                                                  const hc_components *components, const hc_tile *tile,
                                                  hc_int_mode mode, const hc_int_tile *out) {
    hc_int_form form = {0};
    HC_DECODER(HC_DECODED, int_form)(format, mode, &form);
    const double unit = hc_f64_from_bits((uint64_t)(1023 - form.fraction_bits) << 52); /* 2^-fraction_bits */
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        hc_bit_reader codes = hc_bits_from(hc_part(components, HC_CODES, row), tile->first_column, HC_DECODED_BITS);
        float *scales = mode == HC_INT_FOLDED ? NULL : out->group_scale + i * out->groups_ld;
        if ((HC_DECODED_ROWS || HC_DECODED_SPLITS) && mode != HC_INT_GROUPED)
            out->row_scale[i] = (float)((double)row_scale_of(format, geometry, components, row) * unit);
        HC_FOR_GROUPS(tile, geometry) {
            const hc_loaded of = load_group(format, geometry, components, row, group);
            if (HC_DECODED_SPLITS && mode == HC_INT_SPLIT)
                *scales++ = of.scale;
            else if (scales)
                *scales++ = (float)((double)whole_scale_of(format, &of) * unit);
            for (int64_t j = c; j < last; j++)
                hc_store_limbs(out, form.n_limbs, i * out->ld + j,
                               integer_of(format, &of, hc_next_bits(&codes, HC_DECODED_BITS), mode));
        }
    }
    return HC_DONE;
}
#endif
