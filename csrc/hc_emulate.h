/* heterocompute: matmuls as given hardware accumulates them: a part of the public C API like hc.h. */
#ifndef HC_EMULATE_H
#define HC_EMULATE_H

#include "hc.h"

/* Matmuls as given hardware accumulates them; heterocompute/reference/emulation.py is the definition. Both operands are
 * rows over k, C-contiguous. hc_terms splits a packed array into codes (rows, columns), scales (rows, groups) and one
 * factor per row. */
typedef struct {
    bool integers, groups, integer_scales; /* codes are integers; groups have scales; these scales are integers */
} hc_terms_kind;
hc_status hc_terms(const hc_run *run, const hc_packed *packed, float *codes, float *scales, float *row_scale,
                   hc_terms_kind *kind, hc_error *error);

/* Codes: integers, or e | sign << 10 for log numbers. Scales: one kind, (rows, groups), or none. */
typedef struct {
    int64_t rows, columns, group, groups;
    const int32_t *codes, *integer_scales;
    const float *float_scales; /* both sides have them, or neither */
} hc_code_rows;
enum { HC_LOG_SUMS = 2047 };
typedef struct {
    int bits;             /* of the accumulator; 0: float64, for log numbers */
    bool saturates;       /* the accumulator saturates; otherwise it wraps */
    int64_t chunk;        /* values of a step; 0: a whole segment */
    bool mitchell;        /* products of integers by Mitchell's logarithms */
    int scale_shift;      /* bits that are cut from a product of integer scales, RNE */
    int64_t scale_limit;  /* the largest product of scales after that; 0: it is exact */
    const double *powers; /* (HC_LOG_SUMS) of log numbers: the value of each sum of exponents; otherwise NULL */
    double unit;          /* the value of 1 in the accumulator, if float32 scales join segments */
} hc_code_sum;
/* out (a->rows, b->rows): float32 with float32 scales, float64 if bits is 0, otherwise int64, the accumulators. */
hc_status hc_emulate_codes(const hc_run *run, const hc_code_rows *a, const hc_code_rows *b, const hc_code_sum *sum,
                           void *out, hc_error *error);

/* Finite float32 values. Type of the accumulator: the bits of its significand and the exponent of its smallest normal
 * number. */
typedef struct {
    int precision, smallest;
    int64_t chunk;        /* products of a step */
    int aligned_bits;     /* of the addends, from the largest exponent down; 0: the sum of a step is exact */
    bool cuts, truncates; /* addends are cut, sums are truncated; otherwise both are RNE */
    int smallest_input;   /* as `smallest`, of the inputs */
    int lowest;           /* aligned: lower bound of the largest exponent */
} hc_float_sum;
hc_status hc_emulate_floats(const hc_run *run, int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                            const hc_float_sum *sum, float *out, hc_error *error);

#endif
