/* A format as data: the kind of its codes, of its scales and of the second level. Code i of a row is in bits i * bits
 * .. (little end first), groups without a gap; zero points and integer scales likewise.
 *
 *   value = s * c            c: value of a code, by its kind
 *   s = scale * coarse       1 if there is neither
 */
#ifndef HC_FORM_H
#define HC_FORM_H

#include "base/packed.h"

typedef enum {
    HC_CODES_UNSTATED = 0,
    HC_CODES_INTEGER, /* c = (code - zero point) / 2^fraction_bits */
    HC_CODES_FLOAT,   /* c = the float of a sign, an exponent and a fraction */
    HC_CODES_TABLE,   /* c = an entry of a table that all arrays share */
    HC_CODES_LOG,     /* c = +-2^(-e / steps), or 0 */
    HC_CODES_LEARNED, /* c = an entry of HC_CODEBOOK */
    HC_N_CODE_KINDS
} hc_code_kind;
typedef enum {
    HC_SCALE_NONE = 0,
    HC_SCALE_F32,
    HC_SCALE_F16,
    HC_SCALE_INTEGER, /* 1 to 2^scale_bits - 1, or 0 */
    HC_SCALE_E8M0,    /* 2^(byte - 127) */
    HC_SCALE_E4M3,
    HC_SCALE_DOUBLE, /* mean + float32 * integer, one float32 for 256 integers, over all rows; see row_scales */
    HC_SCALE_OWN,    /* see row_scales; scale_bits: width of the integers that the scale multiplies, or 0 */
    HC_N_SCALE_KINDS
} hc_scale_kind;
typedef enum {
    HC_SECOND_NONE = 0,
    HC_SECOND_ROW,   /* HC_COARSE, one float32, multiplies the row's folded sum */
    HC_SECOND_SCALE, /* HC_COARSE multiplies each scale: s = float32(scale * coarse) */
    HC_N_SECOND_KINDS
} hc_second_kind;
/* A float32 for each group of a row. */
typedef void hc_row_floats_fn(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              int64_t row, float *out);
/* The value c of a code. */
typedef double hc_level_fn(const hc_format *format, uint32_t code);
/* Fields that do not apply are 0. */
typedef struct {
    int bits; /* 1 to 32 */
    hc_code_kind codes;

    /* HC_CODES_INTEGER */
    bool is_signed;       /* two's complement; otherwise unsigned */
    bool has_zero_points; /* one per group, `bits` wide */
    bool has_minima;      /* value = s * c + minimum of the group, in matmuls with few rows or integers */
    bool is_nearest;      /* the scale of a row is s = float32(absmax / largest code), codes are clip(RNE(x / s)) */
    int fraction_bits;
    int32_t lowest, largest; /* range of the codes that encoding produces */

    /* HC_CODES_FLOAT */
    int precision,
        smallest;      /* bits of the significand, including the leading 1; exponent of the smallest normal float */
    float maximum;     /* the largest finite float */
    int lift;          /* codes of fewer than 8 bits, shifted up by `lift`, are floats of 8 bits */
    int exponent_bits; /* width of the exponent, for floats of 6 and 8 bits */
    int special_bits;  /* an 8-bit float with all of these bits set is infinity if its fraction is 0, otherwise NaN */
    int e2_bits; /* fraction bits of a float with two exponent bits, which hc_e2_integer converts to an integer; or 0 */

    /* HC_CODES_FLOAT, HC_CODES_TABLE, HC_CODES_LOG */
    hc_level_fn *level; /* value of a code, for codes of up to 8 bits */
    float table[16];    /* value of each code, for codes of 4 bits */
    int steps;          /* HC_CODES_LOG: steps per octave */

    /* HC_CODES_LEARNED */
    int code_values; /* consecutive values that one code covers */

    hc_scale_kind scale;
    int scale_bits; /* width of the integers of HC_SCALE_INTEGER and HC_SCALE_OWN */
    hc_row_floats_fn *row_scales;
    hc_second_kind second;
    bool is_shared; /* the whole array has one coarse scale, or one codebook */
} hc_stored_form;

/* True if codes are integers without a table. Bytes are integers of one limb, so none is -128. */
static inline bool hc_form_is_integers(const hc_stored_form *form) {
    return form->codes == HC_CODES_INTEGER && !form->has_zero_points && !form->has_minima && form->fraction_bits == 0;
}
static inline bool hc_form_is_bytes(const hc_stored_form *form) {
    return hc_form_is_integers(form) && form->is_signed && form->bits == 8 && form->lowest >= -127;
}
static inline bool hc_form_is_nibbles(const hc_stored_form *form) {
    return hc_form_is_integers(form) && form->is_signed && form->bits == 4;
}
/* Whether there is one float32 scale and no second level. */
static inline bool hc_form_has_f32_scales(const hc_stored_form *form) {
    return form->scale == HC_SCALE_F32 && form->second == HC_SECOND_NONE;
}
/* Whether there are 4-bit integer scales with a float32 second level. */
static inline bool hc_form_has_nibble_scales(const hc_stored_form *form) {
    return form->scale == HC_SCALE_INTEGER && form->scale_bits == 4 && form->second == HC_SECOND_ROW;
}
static inline bool hc_form_has_row_scales(const hc_stored_form *form) {
    return form->scale == HC_SCALE_DOUBLE || form->scale == HC_SCALE_OWN;
}
/* Whether 4-bit codes are indices into a table: form->table, or the codebook. */
static inline bool hc_form_has_table(const hc_stored_form *form) {
    return form->bits == 4 &&
           (form->codes == HC_CODES_FLOAT || form->codes == HC_CODES_TABLE || form->codes == HC_CODES_LOG);
}
static inline bool hc_form_has_codebook(const hc_stored_form *form) { return form->codes == HC_CODES_LEARNED; }
/* Whether the paths of few vectors can read rows as they are stored. */
static inline bool hc_form_is_read(const hc_stored_form *form) {
    const bool has_floats = form->codes == HC_CODES_FLOAT && (hc_form_has_table(form) || form->exponent_bits);
    return (form->codes == HC_CODES_INTEGER && form->bits <= 8) || has_floats || hc_form_has_table(form) ||
           (hc_form_has_codebook(form) && form->bits == 4 && form->code_values == 1);
}
/* Whether codes are unchanged float32 values. */
static inline bool hc_form_is_plain(const hc_stored_form *form) {
    return form->codes == HC_CODES_FLOAT && form->bits == 32 && form->scale == HC_SCALE_NONE &&
           form->second == HC_SECOND_NONE;
}
/* Whether values do not depend on their row: no row or group has a scale or a codebook. */
static inline bool hc_form_fits_any_axis(const hc_stored_form *form) {
    return form->codes != HC_CODES_UNSTATED && form->scale == HC_SCALE_NONE &&
           (form->second == HC_SECOND_NONE || form->is_shared) &&
           (!hc_form_has_codebook(form) || (form->is_shared && form->code_values == 1));
}

#endif
