/* Shared by the paths of few vectors: weights that are read as they are stored, without a decoded tile. */
#ifndef HC_OPS_GEMV_H
#define HC_OPS_GEMV_H

#include "formats/format.h"
#include "kernels/kernel.h"
#include "ops/product/measure.h"
#include "ops/product/sparse.h"

/* Weight rows in the form of kernels: codes of 4 or 8 bits, scales and zero points as float32. Rows in other formats
 * are decoded one at a time, to codes of 32 bits. */
typedef struct {
    const hc_packed_context *packed;
    hc_stored_form form;
    int64_t rows;
    bool decodes;
    bool has_minima;  /* of groups: the kernel is gemv_values */
    bool unpacks;     /* codes of other widths than `bits` are expanded to it */
    bool keeps_codes; /* codes of other widths are not expanded to bytes */
    int bits, flip;
    float zero;                       /* of a code after the flip, if there are no zero points */
    bool as_integers;                 /* small floats of 4 bits as integers by `table`, wider ones as bytes */
    uint8_t table[16];                /* the integer + zero, indexed by code */
    bool is_short;                    /* the integers of `table` are at most 15, as those of 4-bit codes */
    int64_t row_bytes, scratch_bytes; /* bytes of a stored row; bytes of buffers for one row */
    hc_gemv_scales_fn *scales;
    hc_row_floats_fn *minima;
    hc_gemv_unpack_fn *unpack;
    hc_gemv_nibbles_fn *nibbles; /* of codes of 1 to 3 bits, which become 4-bit codes; or NULL */
} hc_gemv_weights;

/* Whether rows are decoded to float32 before they are multiplied by x; if not, *form describes how kernels read them:
 * codes of a table of up to 3 bits as 4-bit codes. */
bool hc_gemv_decodes(const hc_packed_context *packed, bool may_decode, hc_stored_form *form);

/* false if the format is not stored in this form; with may_decode, if a row is too long to decode it as a whole. */
bool hc_gemv_weights_init(hc_gemv_weights *weights, const hc_product *product, bool may_decode);

/* One row; the pointers are into the array or into scratch memory. row_scale multiplies the folded sum. */
typedef struct {
    const uint8_t *codes;
    const float *scales, *zeros, *minima; /* (groups), or NULL */
    const float *table;                   /* c by code, or NULL */
    float row_tables[16];
    float row_scale, coarse; /* coarse: as it is stored, or 1 */
} hc_gemv_row;
/* scales: their destination, which becomes out->scales, or NULL for scratch memory. Without want_scales they are not
 * loaded. */
void hc_gemv_row_load(const hc_gemv_weights *weights, int64_t row, bool want_scales, uint8_t *scratch, float *scales,
                      hc_gemv_row *out);

/* Rows of a pattern made dense with codes of 0: shape and memory of the kernel's rows. */
typedef struct {
    hc_geometry geometry; /* columns and groups of all values */
    hc_sparse_masks masks;
    hc_expand_fn *expand;
    uint8_t fill;             /* two 4-bit codes of 0 */
    int64_t words, row_bytes; /* of 64 columns; of a row of codes */
} hc_gemv_densified;

/* false if a row is too long. */
bool hc_gemv_densified_init(hc_gemv_densified *whole, const hc_gemv_weights *weights);
int64_t hc_gemv_densified_bytes(const hc_gemv_densified *whole,
                                const hc_gemv_weights *weights); /* of scratch for a row */
void hc_gemv_densified_row(const hc_gemv_densified *whole, const hc_gemv_weights *weights, int64_t row,
                           uint8_t *scratch, hc_gemv_row *io);
int hc_gemv_zero_code(const hc_stored_form *form); /* -1: there is no code of 0 for all groups and rows */

/* Address of the codes of a row, for prefetch; rows after the last have the address of the last. */
const uint8_t *hc_gemv_row_codes(const hc_gemv_weights *weights, int64_t row);

/* y[vector, row]; one NaN for all, since processors produce different NaNs. */
void hc_gemv_store(const hc_rows *out, int64_t row, int64_t vector, float value);

/* lanes[i] + lanes[i + n / 2], and so on down to one sum; n is 16 or 64. */
float hc_gemv_fold(float *lanes, int n);

/* Writes n vectors of x in the order of gemv_groups and gemv_24_groups, interleaved with the others of n_vectors:
 * groups next to each other. */
void hc_gemv_order_groups(const hc_run *run, const float *x, int64_t ldx, int64_t columns, int64_t group, int n,
                          int n_vectors, float *out);

/* Bits of a scale that these kernels read as it is stored, otherwise 0. */
int hc_gemv_scale_bits(const hc_stored_form *form);

/* Integers of x: the number of signed 8-bit limbs that they need; the value of limbs with distance ld, the lowest at
 * `limbs`; and the lowest limb, which is removed from the value. */
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

/* Vector v of x as signed limbs with distance ld; memory has 3 x padded bytes. A scale that the mode does not have may
 * be NULL. */
typedef struct {
    int8_t *memory, *limbs;
    int64_t ld;
    float *group_scales, *row_scale;
} hc_gemv_vector;
void hc_gemv_load_vector(const hc_packed_context *x, hc_int_mode mode, int64_t v, int n_signed_limbs,
                         const hc_gemv_vector *to);

/* NULL, or why no path of float or integer vectors supports these operands. */
const char *hc_gemv_refuses(const hc_product *product);
const char *hc_gemv_int_sides_refuse(const hc_product *product);
const char *hc_gemv_few_refuse(const hc_product *product); /* also refuses more than HC_GEMV_MOST integer vectors */

/* Weights times float vectors by float.c; `whole`: dense rows of a pattern, or NULL. */
hc_status hc_gemv_multiply(const hc_product *product, hc_gemv_weights *weights, hc_gemv_densified *densified,
                           hc_error *error);
/* Few rows of floats times float32 rows that are contiguous along the columns, on either side, in the order of one
 * chain: nothing is packed. */
bool hc_is_few_dense(const hc_product *product);
hc_status hc_few_dense(const hc_product *product, hc_error *error);
enum { HC_GEMV_COPIED = 1 << 22 }; /* values that these and hc_flat may copy: 16 MiB */
/* All rows of a dense source, ld floats apart. */
void hc_copy_rows(const hc_run *run, const hc_source *source, float *to, int64_t ld);
/* Other dense float32 without panels: up to some hundred rows of x, or small w (flat.c). */
bool hc_is_flat(const hc_product *product);
hc_status hc_flat(const hc_product *product, hc_error *error);
/* Floats of x in that order, and whether there is memory for them. */
bool hc_gemv_fits(const hc_product *product, const hc_geometry *geometry);

#endif
