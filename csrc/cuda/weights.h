/* What a matmul of integers makes of its weights before the product: their integers as the kernels read them, or, where kernels
 * read codes as they are stored, scales or nothing. hc_cuda_plan_prepack makes it once, for rows of x with one scale each.
 */
#ifndef HC_CUDA_WEIGHTS_H
#define HC_CUDA_WEIGHTS_H

#include "cuda/sides.h"

typedef enum {
    HC_CUDA_BYTES,   /* (limbs, rows, ld) */
    HC_CUDA_24,      /* (rows, ld / 2) that a pattern 2:4 kept, and their places */
    HC_CUDA_STORED,  /* nothing is made: components equal such bytes and their scales */
    HC_CUDA_NIBBLES, /* scales alone, and folded, nothing: kernels read codes of 4 bits */
} hc_cuda_kind;

typedef struct {
    hc_cuda_kind kind;
    hc_int_mode mode;
    bool is_wide, has_minima; /* is_wide: limbs, or sums beyond 32 bits */
    int32_t length;           /* bytes of a segment */
    int64_t group, segments;  /* columns of a segment, 0: the whole row; segments of a row */
    int64_t ld;               /* bytes of a row */
} hc_cuda_form;

/* Addresses; NULL: not made. */
typedef struct {
    int8_t *integers;
    uint32_t *places;
    float *scales, *minima;
    int64_t bytes, cleared; /* of all, and of the first that start as zero */
} hc_cuda_made;

/* The form for a side x with as many columns. HC_UNSUPPORTED, with a sentence: the kernels lack it. */
hc_status hc_cuda_form_of(const hc_cuda_side *x, const hc_cuda_side *w, hc_cuda_form *form, hc_error *error);
/* True if bytes with a sign, a float32 scale per row and rows of ld bytes are stored. Without parts they will be in the workspace. */
bool hc_cuda_is_stored_as_integers(const hc_cuda_side *side, bool has_parts, int64_t ld);
/* Where it lies, in memory that begins there; NULL: sizes alone. */
void hc_cuda_lay_out(const hc_cuda_side *w, const hc_cuda_form *form, void *memory, hc_cuda_made *made);
/* Where hc_cuda_plan_prepack has made it of this array; false: not, or in another form. */
bool hc_cuda_find_prepacked(const hc_packed *packed, const hc_cuda_side *w, const hc_cuda_form *form,
                            hc_cuda_made *made);
/* The steps that make it. */
hc_status hc_cuda_add_weights(const hc_cuda_side *w, const hc_cuda_form *form, const hc_cuda_made *made,
                              hc_cuda_plan *plan, hc_error *error);

#endif
