/* Functions that the scalar formats share: rows of bit-packed codes, and the arithmetic of values.
 *
 * Code i of a row occupies bits i*b to i*b+b-1, bit 0 = lowest of byte 0; a row starts on a byte and its last
 * byte is filled with zero bits.
 */
#ifndef HC_BITS_H
#define HC_BITS_H

#include "base/convert.h"
#include "base/packed.h"

#include <float.h>
#include <math.h>

/* Stands before a loop of few iterations. Without it nvcc unrolls the loop many times. */
#ifdef __CUDACC__
#define HC_SHORT_LOOP _Pragma("unroll 1")
#else
#define HC_SHORT_LOOP
#endif

/* Kernels of a device encode a group faster, with the same codes, or are not sure of them (cuda/formats/quick.h). */
#define HC_QUICK(call, done, unsure)
#define HC_EXACT_LOOP HC_SHORT_LOOP /* before a loop that then encodes few values */

/* Quotient of indices of a row. A division of 64 bits is a call on a CUDA device, around which registers are spilled; rows
 * have fewer than 2^32 values there. */
#ifdef __CUDACC__
#define HC_ROW_QUOTIENT(a, b) ((int64_t)((uint32_t)(a) / (uint32_t)(b)))
#else
#define HC_ROW_QUOTIENT(a, b) ((a) / (b))
#endif

/* Eight values take `bits` bytes. values * bits may overflow: rows of an array without rows have up to 2^60 values. */
static inline int64_t hc_row_bytes(int64_t values, int bits) {
    return values / 8 * bits + hc_ceil_div(values % 8 * bits, 8);
}

/* 32 bits of a row of codes. A CUDA kernel has rows of its own, which begin on words and end with whole words. */
static inline void hc_store_word(uint8_t *to, uint32_t word) {
#ifdef __CUDACC__
    *(uint32_t *)to = word;
#else
    memcpy(to, &word, sizeof word);
#endif
}

/* Appends codes in ascending order. */
typedef struct {
    uint8_t *next;
    uint64_t pending;
    int n_pending;
} hc_bit_writer;

static inline void hc_write_bits(hc_bit_writer *writer, uint32_t code, int bits) {
    writer->pending |= (uint64_t)(code & UINT32_MAX >> (32 - bits)) << writer->n_pending;
    writer->n_pending += bits;
    if (writer->n_pending >= 32) {
        hc_store_word(writer->next, (uint32_t)writer->pending);
        writer->next += 4;
        writer->pending >>= 32;
        writer->n_pending -= 32;
    }
}

static inline void hc_flush_bits(hc_bit_writer *writer) {
    HC_SHORT_LOOP
    for (; writer->n_pending > 0; writer->n_pending -= 8, writer->pending >>= 8)
        *writer->next++ = (uint8_t)writer->pending;
    writer->n_pending = 0;
}

/* Reads codes in ascending order; only bytes of codes, except in a CUDA kernel. bits <= 32. */
typedef struct {
    const uint8_t *next;
    uint64_t pending;
    int n_pending;
} hc_bit_reader;

static inline uint32_t hc_next_bits(hc_bit_reader *reader, int bits) {
#ifdef __CUDACC__
    if (reader->n_pending < bits) {
        reader->pending |= (uint64_t)*(const uint32_t *)reader->next << reader->n_pending;
        reader->next += 4;
        reader->n_pending += 32;
    }
#else
    for (; reader->n_pending < bits; reader->n_pending += 8)
        reader->pending |= (uint64_t)*reader->next++ << reader->n_pending;
#endif
    const uint32_t code = (uint32_t)reader->pending & UINT32_MAX >> (32 - bits);
    reader->pending >>= bits;
    reader->n_pending -= bits;
    return code;
}

/* From a column on that begins on a byte. */
static inline hc_bit_reader hc_bits_from(const uint8_t *row, int64_t first, int bits) {
    return (hc_bit_reader){row + first / 8 * bits, 0, 0};
}

/* Code `index` of a row; reads only bytes of the code. bits <= 32. */
static inline uint32_t hc_read_bits(const uint8_t *row, int64_t index, int bits) {
    const int64_t first = index * bits, last = first + bits - 1;
    if (bits <= 8 && (bits & (bits - 1)) == 0) /* in one byte */
        return (uint32_t)(row[first >> 3] >> (first & 7)) & ((1u << bits) - 1);
    uint64_t word = 0;
    HC_SHORT_LOOP
    for (int64_t byte = last >> 3; byte >= first >> 3; byte--)
        word = word << 8 | row[byte];
    return (uint32_t)(word >> (first & 7) & (((uint64_t)1 << bits) - 1));
}

static inline int32_t hc_sign_extend(uint32_t code, int bits) {
    const int32_t sign = 1 << (bits - 1);
    return ((int32_t)code ^ sign) - sign;
}

static inline double hc_row_value(const hc_float_rows *x, int64_t row, int64_t column) {
    const int64_t i = row * x->row_stride + column;
    return x->dtype == HC_F64 ? ((const double *)x->data)[i] : ((const float *)x->data)[i];
}

/* false for NaN, infinity, and a float64 that rounds to 2^128. */
static inline bool hc_is_legal(double value) { return fabs((double)(float)value) <= (double)FLT_MAX; }

/* Divides many values by one number. With an inverse, hc_divided multiplies: the answer is not x / divisor, but rounds to the same
 * number of few bits. x is a float32. The divisor and a tie T between two such numbers have at most 43 bits together, so that
 *
 *   x = X 2^a, T divisor = Y 2^b, X < 2^24, Y < 2^43: |x - T divisor| is 0 or more than 2^-43 T divisor
 *
 * x * inverse is the quotient times 1 + e with 0 < e < 2^-48. Without its 6 lowest bits it is T where the quotient is T, and
 * on the side of T where the quotient is. */
typedef struct {
    double divisor, inverse;
    bool has_inverse;
} hc_divisor;

static inline hc_divisor hc_divisor_of(double divisor, bool has_inverse) {
    return (hc_divisor){divisor, has_inverse ? 1 / divisor * (1 + 0x1p-49) : 0, has_inverse};
}

static inline double hc_divided(double x, hc_divisor by) {
    if (!by.has_inverse)
        return x / by.divisor;
    double quotient = x * by.inverse;
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    bits &= ~(uint64_t)63;
    memcpy(&quotient, &bits, sizeof bits);
    return quotient;
}

/* clip(RNE(quotient), low, high) */
static inline int32_t hc_clipped(double quotient, int32_t low, int32_t high) {
    quotient = quotient > high ? high : quotient;
    quotient = quotient > low ? quotient : low; /* NaN, which is reported as invalid, becomes `low` */
    quotient += 0x1.8p52;                       /* the integer is in the lowest bits */
    uint64_t found;
    memcpy(&found, &quotient, sizeof found);
    return (int32_t)(uint32_t)found;
}

/* clip(RNE(x / s), low, high), the quotient rounded once to float64. */
static inline int32_t hc_quotient(double x, double scale, int32_t low, int32_t high) {
    return hc_clipped(x / scale, low, high);
}

static inline float hc_saturated(double value) {
    const float rounded = (float)value;
    return rounded > FLT_MAX ? FLT_MAX : rounded < -FLT_MAX ? -FLT_MAX : rounded;
}

/* float32(a * b), rounded once and saturated. */
static inline float hc_saturated_product(float a, float b) {
    const float rounded = a * b;
    return rounded > FLT_MAX ? FLT_MAX : rounded < -FLT_MAX ? -FLT_MAX : rounded;
}

/* v as 8-bit limbs, the top one signed, at the same index of each limb's matrix. */
static inline void hc_store_limbs(const hc_int_tile *out, int n_limbs, int64_t place, int32_t value) {
    HC_SHORT_LOOP
    for (int i = 0; i < n_limbs; i++)
        out->limb[i][place] = (int8_t)(uint8_t)((uint32_t)value >> (8 * i) & 0xff);
}

/* The largest integer of two's complement without the lowest code, or of an unsigned number. */
static inline int32_t hc_largest_code(int bits, bool is_unsigned) {
    return (int32_t)((1u << (is_unsigned ? bits : bits - 1)) - 1);
}

/* Walks the groups that a tile touches: columns [c, last) of the tile are in group `group` of the row. */
#define HC_FOR_GROUPS(tile, geometry)                                                                                  \
    for (int64_t c = 0, group = 0, last = 0;                                                                           \
         c < (tile)->columns &&                                                                                        \
         (group = HC_ROW_QUOTIENT((tile)->first_column + c, (geometry)->group),                                        \
         last = hc_min((tile)->columns, (group + 1) * (geometry)->group - (tile)->first_column), true);                \
         c = last)

/* Floats of a sign, two exponent bits with bias 1 and m fraction bits are integers times 2^-m. The integer is the
 * magnitude bits, plus the part above 2 * 2^m, plus twice the part above 3 * 2^m. Computed on bytes, so that compilers
 * vectorize it. The result is the integer plus hc_e2_zero(m), which makes it unsigned. */
static inline int hc_e2_zero(int m) { return (8 << m) - 4; }
static inline uint8_t hc_e2_integer(uint8_t code, int m) {
    const uint8_t half = (uint8_t)(2 << m), most = (uint8_t)(3 << m);
    const uint8_t magnitude = code & (uint8_t)((4 << m) - 1), is_negative = code & (4 << m) ? 0xff : 0;
    const uint8_t above = (uint8_t)((magnitude > half ? magnitude : half) - half);
    const uint8_t far = (uint8_t)((magnitude > most ? magnitude : most) - most);
    const uint8_t integer = (uint8_t)(magnitude + above + far + far);
    return (uint8_t)(hc_e2_zero(m) + (integer ^ is_negative) - is_negative);
}

static inline int hc_limbs_for(int32_t max_abs) { return max_abs <= 127 ? 1 : max_abs <= 32767 ? 2 : 3; }

#endif
