/* What the paths of few vectors share: weights read as they are stored, without a decoded tile. */
#ifndef HC_OPS_GEMV_H
#define HC_OPS_GEMV_H

#include "formats/format.h"
#include "kernels/kernel.h"
#include "ops/product/measure.h"
#include "ops/product/sparse.h"

/* Weight rows as the kernels take them: codes of 4 or 8 bits, scales and zero points as float32. What is not stored
 * like that is decoded a row at a time, to codes of 32 bits. */
typedef struct {
    const hc_packed_context *packed;
    hc_stored_form form;
    int64_t rows;
    bool decodes;
    bool keeps_codes; /* of other widths: rows come without a byte for each */
    int bits, flip;
    float zero;                       /* of a code after the flip, where there are no zero points */
    bool as_integers;                 /* small floats of 4 bits by `table`, of more as bytes */
    uint8_t table[16];                /* the integer + zero by code */
    int64_t row_bytes, scratch_bytes; /* stored; of the buffers that one row needs */
    hc_gemv_scales_fn *scales;
    hc_gemv_unpack_fn *unpack;
} hc_gemv_weights;

/* Whether rows are decoded to float32 before they meet x; else *form says how they are stored. */
bool hc_gemv_decodes(const hc_packed_context *packed, bool may_decode, hc_stored_form *form);

/* false where the format is not stored like that; with may_decode, where a row is too long to decode it whole. */
bool hc_gemv_weights_init(hc_gemv_weights *weights, const hc_product *product, bool may_decode);

/* One row; the pointers lead into the array or into scratch. row_scale multiplies the folded sum. */
typedef struct {
    const uint8_t *codes;
    const float *scales, *zeros; /* (groups), or NULL */
    const float *table;          /* c by code, or NULL */
    float row_tables[16];
    float row_scale, coarse; /* coarse: as it is stored, or 1 */
} hc_gemv_row;
/* scales: where to put them (out->scales is that), or NULL: into scratch. Without want_scales they are not loaded. */
void hc_gemv_row_load(const hc_gemv_weights *weights, int64_t row, bool want_scales, uint8_t *scratch, float *scales,
                      hc_gemv_row *out);

/* A pattern whose rows are made dense, by codes of 0: shape and place of the kernel's rows. */
typedef struct {
    hc_geometry geometry; /* columns and group count all values */
    hc_sparse_masks masks;
    hc_expand_fn *expand;
    uint8_t fill;             /* two codes of 0 of 4 bits */
    int64_t words, row_bytes; /* of 64 columns; of a row of codes */
} hc_gemv_densified;

/* false where a row is too long. */
bool hc_gemv_densified_init(hc_gemv_densified *whole, const hc_gemv_weights *weights);
int64_t hc_gemv_densified_bytes(const hc_gemv_densified *whole,
                                const hc_gemv_weights *weights); /* of scratch for a row */
void hc_gemv_densified_row(const hc_gemv_densified *whole, const hc_gemv_weights *weights, int64_t row,
                           uint8_t *scratch, hc_gemv_row *io);
int hc_gemv_zero_code(const hc_stored_form *form); /* -1: there is none for all groups and rows */

/* Where the codes of a row begin, for prefetch; the last row stands for those behind it. */
const uint8_t *hc_gemv_row_codes(const hc_gemv_weights *weights, int64_t row);

/* y[vector, row]; every NaN is the same one, since processors differ in what they make. */
void hc_gemv_store(const hc_rows *out, int64_t row, int64_t vector, float value);

/* lanes[i] + lanes[i + n / 2], and so on down to one sum; n is 16 or 64. */
float hc_gemv_fold(float *lanes, int n);

/* n vectors of x in the order of gemv_groups and gemv_24_groups, between the others of n_vectors: groups side by side. */
void hc_gemv_order_groups(const float *x, int64_t ldx, int64_t columns, int64_t group, int n, int n_vectors,
                          float *out);

/* Bits of a scale that these kernels take as it is stored, else 0. */
int hc_gemv_scale_bits(const hc_stored_form *form);

/* Integers of x: how many signed limbs of 8 bits they need, the value of limbs that lie ld apart, the lowest at
 * `limbs`, and the lowest limb, which is taken from the value. */
static inline int hc_gemv_limbs(const hc_int_form *form) {
    return form->max_abs <= 127 ? 1 : form->max_abs <= 32639 ? 2 : form->max_abs <= 8355711 ? 3 : 4;
}

static inline int32_t hc_gemv_value(const int8_t *limbs, int64_t ld, int n_limbs) {
    int32_t value = limbs[(n_limbs - 1) * ld];
    for (int limb = n_limbs - 2; limb >= 0; limb--)
        value = value * 256 + (uint8_t)limbs[limb * ld];
    return value;
}

static inline int8_t hc_gemv_limb(int32_t *value) {
    const int8_t limb = (int8_t)(uint8_t)((uint32_t)*value & 0xff);
    *value = (*value - limb) / 256;
    return limb;
}

/* Vector v of x as signed limbs that lie ld apart; memory holds 3 x padded bytes. A scale that the mode has not may be NULL. */
typedef struct {
    int8_t *memory, *limbs;
    int64_t ld;
    float *group_scales, *row_scale;
} hc_gemv_vector;
void hc_gemv_load_vector(const hc_packed_context *x, hc_int_mode mode, int64_t v, int n_signed_limbs,
                         const hc_gemv_vector *to);

/* Why no path with float vectors, or integer ones, takes these sides at all; or NULL. */
const char *hc_gemv_refuses(const hc_product *product);
const char *hc_gemv_int_sides_refuse(const hc_product *product);
const char *hc_gemv_few_refuse(const hc_product *product); /* nor more than HC_GEMV_MOST integer ones */

/* Weights times float vectors as float.c does it; of a pattern its rows made dense, or NULL. */
hc_status hc_gemv_multiply(const hc_product *product, hc_gemv_weights *weights, hc_gemv_densified *densified,
                           hc_error *error);
/* Few rows of floats times float32 rows that lie along the columns, either side, in the order of one chain: nothing is packed. */
bool hc_is_few_dense(const hc_product *product);
hc_status hc_few_dense(const hc_product *product, hc_error *error);
/* Places that x takes there, and whether there is memory for them. */
bool hc_gemv_fits(const hc_product *product, const hc_geometry *geometry);

#endif
