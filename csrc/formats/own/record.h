/* Records of formats that sentences define (base/sentence.h), and the code of a value. A record is kept for the whole process, once, and a
 * format names it by its number, option[0].
 */
#ifndef HC_OWN_RECORD_H
#define HC_OWN_RECORD_H

#include "base/sentence.h"
#include "formats/format.h"
#include "formats/minifloat.h"

/* The number of a record, the same for the same bytes; HC_MEMORY if the process has HC_OWN_MOST others. */
hc_status hc_sentence_define(const hc_sentence *own, int32_t *number, hc_error *error);
const hc_sentence *hc_sentence_find(int32_t number); /* NULL: there is none */

static inline bool own_has_groups(const hc_sentence *own) {
    return own->sharing == OWN_GROUP || own->sharing == OWN_BLOCK;
}
static inline bool own_is_absmean(const hc_sentence *own) { return own->rule == OWN_ABSMEAN; }

/* Without a sign a type is the one with a bit more, whose sign is 0. */
static inline hc_float_type own_type(const hc_own_float *own) {
    return (hc_float_type){own->bits, own->fraction_bits, own->bias, 0, own->largest, own->infinity, own->nan};
}
static inline uint32_t own_encode_float(const hc_own_float *own, double value, bool saturate) {
    const hc_float_type type = own_type(own);
    return hc_float_encode(&type, value, saturate);
}
static inline float own_decode_float(const hc_own_float *own, uint32_t code) {
    const hc_float_type type = own_type(own);
    return hc_float_decode(&type, code);
}

/* The rank of a value; NaN has rank 0. */
static inline uint32_t own_rank(const hc_sentence *own, double value) {
    uint32_t found = 0;
    for (uint32_t half = own->bits > 4 ? HC_OWN_LEVELS / 2 : 8; half > 0; half /= 2)
        found += half & -(uint32_t)(value > own->bound[found + half - 1]);
    return found;
}

/* The code of a quotient. */
static inline uint32_t own_encode_element(const hc_sentence *own, double value) {
    if (own->ranks) {
        const uint32_t code = own->ranked[own_rank(own, value)];
        if (own->minus_zero >= 0 && value == 0 && signbit(value))
            return (uint32_t)own->minus_zero;
        if (own->nan < 0 || !(isnan(value) || value < own->least))
            return code;
        return (uint32_t)own->nan | (own->minus_zero >= 0 && signbit(value) ? (uint32_t)own->minus_zero : 0);
    }
    if (!own->is_signed && value < 0)
        value = 0;
    if (own->codes == HC_CODES_INTEGER)
        return (uint32_t)hc_clipped(ldexp(value, own->places), own->lowest, own->largest);
    return own_encode_float(&own->type, value, own->saturates != 0);
}

/* The number of a code. */
static inline double own_level(const hc_sentence *own, uint32_t code) {
    if (own->ranks)
        return own->level[code];
    if (own->codes == HC_CODES_INTEGER)
        return ldexp(own->is_signed ? hc_sign_extend(code, own->bits) : (int32_t)code, -own->places);
    return (double)own_decode_float(&own->type, code);
}

#endif
