/* How codes of up to 8 bits become floats, each exactly: by a table, as integers, or as a float16 with the same bits
 * and another bias (kernels/decode_elements.h). */
#ifndef HC_ELEMENTS_H
#define HC_ELEMENTS_H

#include "base/base.h"

/* Codes as bytes: unsigned for tables, else with their signs extended. */
typedef enum {
    HC_BY_TABLE16,  /* 16 entries */
    HC_BY_LEVELS16, /* the same, and values have no minus zero */
    HC_BY_LEVELS,   /* 256 entries, no minus zero */
    HC_BY_TABLE,
    HC_BY_INT8, /* code / 64 */
    HC_BY_E4M3,
    HC_BY_E5M2,
    HC_BY_E3M2,
    HC_BY_E2M3,
} hc_element_kind;

typedef struct {
    int shift;
    int16_t mask;   /* takes copies of the sign out of the exponent */
    int16_t beyond; /* larger magnitudes are NaN; 0: there are none */
    float factor;
} hc_half_form;

static inline bool is_by_16(hc_element_kind kind) { return kind == HC_BY_TABLE16 || kind == HC_BY_LEVELS16; }
static inline bool is_by_256(hc_element_kind kind) { return kind == HC_BY_TABLE || kind == HC_BY_LEVELS; }
static inline bool has_no_minus_zero(hc_element_kind kind) { return kind == HC_BY_LEVELS16 || kind == HC_BY_LEVELS; }

static inline hc_half_form half_form(hc_element_kind kind) {
    switch (kind) {
    case HC_BY_E4M3:
        return (hc_half_form){7, ~0x4000, 0x3f00, 0x1p8f};
    case HC_BY_E5M2:
        return (hc_half_form){8, ~0, 0x7c00, 1};
    case HC_BY_E3M2:
        return (hc_half_form){8, ~0x6000, 0, 0x1p12f};
    default:
        return (hc_half_form){7, ~0x7000, 0, 0x1p14f};
    }
}

#endif
