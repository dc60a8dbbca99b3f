/* The definitions of the formats and matmuls in plain C, one value at a time, for the runner to compare with.
 * They share only type names with csrc/.
 *
 * value = float32(scale * (step * code)):  step is VS-Quant's integer s_q or 1, scale is gamma or the group's.
 */
#ifndef HC_TEST_PLAIN_H
#define HC_TEST_PLAIN_H

#include "hc.h"

typedef struct {
    hc_format format;
    hc_geometry geometry;
    int32_t *code; /* (rows, padded), q - z, 0 in the padding */
    int32_t *step; /* (rows, groups) */
    float *scale;  /* (rows, groups) */
} plain_packed;

enum { PLAIN_INT, PLAIN_VSQ }; /* the first lines of formats.def */

/* x: (rows, columns) in row-major order, without padding. All memory comes from guard_alloc. */
plain_packed plain_quantize(const hc_format *format, const hc_geometry *geometry, const double *x);

/* The value of padded column `column` of a row. */
float plain_value(const plain_packed *packed, int64_t row, int64_t column);

/* The padded column of a column. */
int64_t plain_column(const hc_geometry *geometry, int64_t column);

/* Whether the integers step * code need only one scale per row. */
bool plain_is_folded(const plain_packed *packed);

/* Dot products of two rows, each in its documented order of operations. */
float plain_packed_product(const plain_packed *a, int64_t i, const plain_packed *b, int64_t j);
float plain_gemv(const float *x, const plain_packed *w, int64_t j);
float plain_chain(int64_t k, const float *x, const float *w);

#endif
