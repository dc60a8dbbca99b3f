/* Definitions that the SIMD sets (avx2.h, avx512.h) and the loops over rows share: the kinds of codes, and the values
 * of codes. A unit is 16 values. Codes are bytes before packing and after unpacking.
 */
#ifndef HC_SIMD_CODES_H
#define HC_SIMD_CODES_H

#include "base/convert.h"
#include "formats/format.h"

#include <math.h>

enum { UNIT = 16 };

/* --- encoding --- */

/* Magnitudes that are compared: |x|, max(x, 0), max(-x, 0). */
enum { HC_ABSOLUTE, HC_POSITIVE, HC_NEGATIVE };

/* Integer codes that cannot leave their range; signed ones that can; unsigned ones; unsigned ones with a zero point.
 * Codes of 16 levels. Codes of small floats: of quotients (with a rounded reciprocal), or of values times a power of
 * two, HC_EXACT. */
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
    float near;        /* a quotient this far from its integer may be beyond the midpoint */
    int32_t low, high; /* range of codes */
    float limit;       /* of small floats: larger magnitudes are clamped to this */
    /* of levels: the midpoint of each interval (HC_LEVEL_STEPS), with its code in the low 4 bits */
    const float *levels;
    const double *midpoints; /* of levels: all HC_LEVELS - 1 */
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

/* A rounded reciprocal and a rounded product leave a quotient with at most this relative error. */
#define HC_QUOTIENT_ERROR 0x1p-22f

/* Levels of [-1, 1]. RNE(q * HC_LEVEL_STEPS), -15 to 15, modulo 32, is an interval with at most one midpoint. A
 * midpoint with a code in its low bits, and the quotient, have an error below HC_LEVEL_ERROR. */
enum { HC_LEVELS = 16 };
#define HC_LEVEL_STEPS 15.2f
#define HC_LEVEL_ERROR 0x1p-19f

/* --- decoding --- */

/* Row s: the values of the signed 4-bit codes times s. */
#define HC_TIMES(s)                                                                                                    \
    {0, s, 2 * s, 3 * s, 4 * s, 5 * s, 6 * s, 7 * s, -8 * s, -7 * s, -6 * s, -5 * s, -4 * s, -3 * s, -2 * s, -s}
static const _Alignas(64) int8_t hc_times4[16][16] = {
    HC_TIMES(0), HC_TIMES(1), HC_TIMES(2),  HC_TIMES(3),  HC_TIMES(4),  HC_TIMES(5),  HC_TIMES(6),  HC_TIMES(7),
    HC_TIMES(8), HC_TIMES(9), HC_TIMES(10), HC_TIMES(11), HC_TIMES(12), HC_TIMES(13), HC_TIMES(14), HC_TIMES(15)};

/* Of 16 codes in 2 x bits bytes: the byte offsets of the 32-bit words that contain 4 codes each. */
static inline void quad_bytes(int bits, uint8_t at[16]) {
    for (int i = 0; i < 16; i++)
        at[i] = (uint8_t)(i / 4 * bits / 2 + i % 4);
}

/* How codes of up to 8 bits become floats, each exactly: by a table, as integers, or as a float16 with the same bits
 * and another bias. Codes are bytes: unsigned for tables, otherwise sign-extended. */
typedef enum {
    HC_BY_TABLE16,  /* 16 entries */
    HC_BY_LEVELS16, /* 16 entries, no minus zero */
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
    int16_t mask;   /* removes copies of the sign from the exponent */
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
