/* What the encoding lines of every ISA agree on (kernels/encode_rows.h). */
#ifndef HC_ENCODE_H
#define HC_ENCODE_H

#include "base/convert.h"
#include "base/packed.h"

#include <math.h>

/* Which magnitudes: |x|, max(x, 0), max(-x, 0). */
enum { HC_ABSOLUTE, HC_POSITIVE, HC_NEGATIVE };

/* Integer codes that cannot leave their range; signed ones that can; unsigned ones; unsigned ones with a zero point.
 * Codes of small floats: of quotients (the reciprocal is rounded), or of values times a power of two, HC_EXACT.
 * Codes of NF4's levels. */
typedef enum {
    HC_CODES_PLAIN,
    HC_CODES_SIGNED,
    HC_CODES_UNSIGNED,
    HC_CODES_SHIFTED,
    HC_CODES_LEVELS,
    HC_CODES_E4M3,
    HC_CODES_E5M2,
    HC_CODES_E3M2,
    HC_CODES_E2M3,
    HC_CODES_E2M1,
    HC_EXACT = 16,
} hc_code_mode;

typedef struct {
    float near;          /* a quotient this far from its integer may lie beyond the midpoint */
    int32_t low, high;   /* of codes */
    float limit;         /* of small floats: larger magnitudes are taken as this */
    const float *levels; /* of levels: the midpoints by HC_LEVEL_STEPS, their codes in the low 4 bits */
} hc_code_range;

static inline bool is_small_float(hc_code_mode mode) { return mode >= HC_CODES_E4M3; }
static inline bool is_exact(hc_code_mode mode) { return mode >= HC_EXACT; }

/* A small float: the exponent field (of float32) of its smallest normal number, and its bits. */
typedef struct {
    int least, fraction_bits, bits;
} hc_small_float;

static inline hc_small_float small_float(hc_code_mode mode) {
    switch ((int)mode & (HC_EXACT - 1)) {
    case HC_CODES_E4M3:
        return (hc_small_float){121, 3, 8};
    case HC_CODES_E5M2:
        return (hc_small_float){113, 2, 8};
    case HC_CODES_E3M2:
        return (hc_small_float){125, 2, 6};
    case HC_CODES_E2M3:
        return (hc_small_float){127, 3, 6};
    default:
        return (hc_small_float){127, 1, 4};
    }
}

/* A reciprocal and a product, each rounded, leave a quotient within this part of itself. */
#define HC_QUOTIENT_ERROR 0x1p-22f

/* Levels of [-1, 1]: RNE(q * HC_LEVEL_STEPS), -15 to 15, modulo 32, is an interval with one midpoint at most. A
 * midpoint
 * that carries a code in its low bits, and the quotient, are off by less than HC_LEVEL_ERROR. */
#define HC_LEVEL_STEPS 15.2f
#define HC_LEVEL_ERROR 0x1p-19f

#endif
