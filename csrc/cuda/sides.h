/* Either side of a product of integers, as the planners of matmuls and convolutions take it. */
#ifndef HC_CUDA_SIDES_H
#define HC_CUDA_SIDES_H

#include "cuda/steps.h"

typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_components parts;
    hc_int_form form[HC_N_INT_MODES];
} hc_cuda_side;

/* Format and geometry are there: whether its integers can be had, and their form. */
hc_status hc_cuda_load_side(hc_cuda_side *side, hc_error *error);
/* Columns of a segment, 0 for the whole row; -1: the groups of the two sides do not nest. */
int64_t hc_cuda_segment_of(const hc_cuda_side *x, const hc_cuda_side *w);
/* True if a segment ends inside a block of the side's pattern. */
bool hc_cuda_cuts_blocks(const hc_cuda_side *side, int64_t group);
/* The step that writes the integers of a side with components. `to` has their address and layout. */
hc_status hc_cuda_add_integers(const hc_cuda_side *side, hc_cuda_integer_rows to, hc_cuda_plan *plan, hc_error *error);
/* The steps that quantize x to the format of a side and write its integers alone. */
hc_status hc_cuda_add_quantized_integers(const hc_cuda_side *side, const hc_view *x, int n_axes, const int *axes,
                                         hc_cuda_integer_rows to, int64_t cleared, hc_cuda_plan *plan, hc_error *error);
/* Where workspace is reserved for what a format stores of rows. */
void hc_cuda_reserve_parts(const hc_format *format, const hc_geometry *geometry, hc_cuda_plan *plan,
                           hc_components *parts);
/* The step that decodes a packed array to rows of float32, in the workspace; of a pattern, whole columns. */
hc_status hc_cuda_decode_whole(const hc_packed *packed, const hc_geometry *geometry, hc_cuda_plan *plan,
                               const void **decoded, hc_error *error);

#endif
