/* Panels: strips of `tile` rows of a side, in which the values of one k are contiguous. A side is decoded portion by
 * portion from its source into scratch memory, and transposed from there into panels. Nothing else is ever decoded.
 *
 * k is walked in KC blocks. A KC block is cut into segments: one for FLOATS and FOLDED, for GROUPED the columns between
 * two group boundaries of either side. Segments begin at a step of kr values in every panel and are padded with zeros.
 *
 *   panel p, limb d:  panels + (p * limbs + d) * limb_bytes, in the layout of kernels/gemm/gemm.h
 *   its scales, segment s:  scales + (p * n_segments + s) * tile      init: ((p * limbs + d) * n_segments + s) * tile
 */
#ifndef HC_PACK_H
#define HC_PACK_H

#include "kernels/kernel.h"
#include "ops/product/product.h"
#include "ops/product/sparse.h"

enum { HC_MAX_LIMBS = 3, HC_MAX_SIGNED_LIMBS = 4 }; /* parts of an integer of a, of b */

typedef struct {
    int64_t first, columns; /* of k */
    int64_t steps;          /* of kr values, over all segments */
    int64_t n_segments;
    int64_t *end; /* the column after segment s */
    int32_t *segment_steps;
    bool even;          /* padding only at the very end: column c is value c - first of the panel */
    bool opens, closes; /* the first segment begins, the last segment ends in this KC block */
} hc_kc;

typedef struct {
    const hc_source *source;
    hc_order kind;
    bool is_b;
    int tile, kr, form;
    bool kept;  /* panels of gemm_nm_s8_... */
    bool split; /* FOLDED: b's codes, and the integer scale of each segment */
    bool wide;  /* a, of the form HC_PANEL_S16: the upper 16 bits of an integer are one limb */
    hc_nm_form nm_form;
    int limbs; /* parts of an integer, 8-bit unless `wide`: limbs of a, balanced limbs of b (-128 .. 127); 1: floats */
    hc_pack_x32_fn *pack_x32;
    hc_compensation_s8_fn *compensation_s8; /* NULL if panels need no init */
    int32_t init_factor;                    /* of the sums */
    int64_t limb_bytes;                     /* of the current KC block */
    uint8_t *panels;
    int32_t *init;
    float *scales;     /* GROUPED, split */
    float *row_scales; /* FOLDED */
} hc_panels;

/* Fills the segments of the KC block that begins at column `first`, at most `limit` columns; true if a segment had to
 * be cut. */
bool hc_kc_fill(hc_kc *kc, hc_order kind, const hc_source *a, const hc_source *b, int64_t first, int64_t limit, int kr);

/* Sets the properties of a side, then the layout of panels that the chosen kernel needs. */
void hc_panels_init(hc_panels *side, hc_order kind, const hc_run *run, const hc_source *source, bool is_b);
void hc_panels_use_kernel(hc_panels *side, const hc_kernel *kernel, const hc_run *run);

/* The kernel of gemm_f32, gemm_s8, gemm_s8_scaled or gemm_small_scaled for b. A FOLDED b whose pattern is kept uses
 * hc_nm_kernel instead. */
const hc_kernel *hc_product_line(hc_order order, bool exact_groups, bool kept, const hc_source *b, const hc_run *run);

/* The kernel of gemm_small_split or gemm_split_words for b. */
const hc_kernel *hc_split_line(const hc_source *b, const hc_run *run);
/* Number of columns of b that its sums can hold; 0 if it does not multiply this FOLDED b. */
int64_t hc_split_columns(const hc_source *a, const hc_source *b, const hc_run *run);
void hc_panels_split(hc_panels *b);

/* Number of columns for which int32 holds the sums of a with limbs of 16 bits times the limbs of b: one pass for two
 * limbs of 8 bits, two for three or four. 0 if the kernels of this run have no such panels, or a has integers of 8 bits. */
int64_t hc_wide_columns(hc_order order, const hc_source *a, const hc_source *b, const hc_run *run);
void hc_panels_widen(hc_panels *a);

/* Largest |v| that stored codes can have: the lowest code may be one further from 0 than the largest. */
int64_t hc_most_of(const hc_source *side, hc_int_mode mode);

/* Signed limbs that b needs, each from -128 to 127. */
int hc_signed_limbs(const hc_int_form *form);

/* Signed limbs of integers whose lower limbs are unsigned (v = sum of limb[i] 256^i), in place. */
void hc_balance_limbs(int8_t *const limbs[HC_MAX_SIGNED_LIMBS], int64_t ld, int n_limbs, int n_signed_limbs,
                      int64_t rows, int64_t columns);

/* Bytes of one limb of one panel, and of all parts of a panel, for a KC block of this size. */
int64_t hc_limb_bytes(const hc_panels *side, int64_t steps);
int64_t hc_panel_bytes(const hc_panels *side, int64_t steps, int64_t n_segments);

/* Scratch bytes that packing needs on each thread. */
int64_t hc_pack_scratch(void);

/* Packs rows first_row .. of the source (as many as there are, at most `tile`) into panel `panel`. */
void hc_pack_panel(const hc_panels *side, const hc_kc *kc, int64_t first_row, int64_t panel, void *scratch);

/* The order of x for kernels that read 4-bit codes as they are stored: in blocks of HC_NIBBLES_STEP columns, even
 * columns before odd ones. n is a multiple of HC_NIBBLES_STEP. */
enum { HC_NIBBLES_STEP = 128 };
void hc_order_nibbles(int8_t *x, int64_t n);

#endif
