/* A format that a sentence defines, as data: an element, a scale, its rule and its sharing (formats/own/own.c has the arithmetic).
 *
 * Up to 8 bits an element is a table: the level of each code, and the bounds between levels. The rank of a value is the
 * number of bounds that are smaller. Elements of more bits are integers or floats by their fields.
 */
#ifndef HC_SENTENCE_H
#define HC_SENTENCE_H

#include <stdint.h>

enum { HC_OWN_LEVELS = 256, HC_OWN_MOST = 4096 /* records of a process */ };
typedef enum { OWN_ROW = 0, OWN_GROUP, OWN_TENSOR, OWN_BLOCK, OWN_UNSCALED, OWN_N_SHARINGS } hc_own_sharing;
typedef enum { OWN_F32 = 0, OWN_F16, OWN_BF16, OWN_E8M0, OWN_FLOAT, OWN_INTEGER, OWN_N_SCALES } hc_own_scale;
typedef enum { OWN_ONE_LEVEL = 0, OWN_SECOND_ROW, OWN_SECOND_TENSOR, OWN_N_SECONDS } hc_own_second;
typedef enum { OWN_ABSMAX = 0, OWN_ABSMEAN, OWN_FLOOR, OWN_CEIL, OWN_RCEIL, OWN_EVEN, OWN_N_RULES } hc_own_rule;

/* Small floats: of codes without their sign, the largest number, infinity and NaN; 0: there is none. */
typedef struct {
    int32_t bits, fraction_bits, bias;
    uint32_t largest, infinity, nan;
} hc_own_float;

/* All bytes are set, padding too: records are compared by their bytes. */
typedef struct {
    int32_t bits;            /* of a code, 1 to 16 */
    int32_t codes;           /* hc_code_kind of base/form.h: integers, floats, logs or a table */
    int32_t ranks;           /* levels that rounding gives; 0: no table */
    int32_t is_signed;       /* otherwise values below 0 become 0 */
    int32_t saturates;       /* what is beyond the largest number becomes it */
    int32_t nan, minus_zero; /* codes, or -1 */
    int32_t lowest, largest; /* integers that rounding gives */
    int32_t places;          /* bits of the fraction, of integers and floats; steps per octave, of logs */
    int32_t is_plain;        /* floats whose special codes are those of IEEE, or NaN alone as the last; of 6 and 8
                                bits with IEEE's bias, which kernels assume */
    int32_t whole;           /* levels times 2^whole are integers of 8 bits with a sign; -1: they are not */
    hc_own_float type;       /* of floats */

    int32_t scale, scale_bits; /* hc_own_scale; bits of OWN_FLOAT and OWN_INTEGER */
    int32_t sharing, block_rows;
    int32_t second, rule;
    int32_t even_places;     /* of OWN_EVEN: bits of the fraction that a maximum is rounded to */
    hc_own_float scale_type; /* of OWN_FLOAT, OWN_BF16 and OWN_F16 */
    double target;           /* the number of the element that a scale maps a limit to */
    double largest_scale;    /* of OWN_FLOAT */
    double least;            /* values below it are NaN */
    double most;             /* the largest magnitude of a level */

    double level[HC_OWN_LEVELS]; /* by code */
    double bound[HC_OWN_LEVELS]; /* ascending, then infinity */
    uint8_t ranked[HC_OWN_LEVELS];
} hc_sentence;

#endif
