/* Operations of one value each, such as sums and limits, on a part of a row. */
#ifndef HC_KERNELS_POINTWISE_H
#define HC_KERNELS_POINTWISE_H

#include <stdint.h>

typedef enum {
    HC_POINTWISE_ADD,   /* a + b */
    HC_POINTWISE_SUB,   /* a - b */
    HC_POINTWISE_MUL,   /* a b */
    HC_POINTWISE_DIV,   /* a / b */
    HC_POINTWISE_CLIP,  /* `low` if a is below it, or else `high` if a is above it, or else a: NaN and -0 stay */
    HC_POINTWISE_HARD,  /* a `scale` + `shift`, both rounded, then limits as above */
    HC_POINTWISE_LEAKY, /* a if a >= 0, or else a `scale`; NaN stays */
    HC_N_POINTWISE
} hc_pointwise_operation;

/* a_step, b_step: 1, or 0 if all use the first value. b is not read by operations of one operand. to may be a or b. */
typedef struct {
    hc_pointwise_operation operation;
    const float *a, *b;
    int a_step, b_step;
    float low, high, scale, shift;
    float *to;
} hc_pointwise_part;

/* pointwise_f32: to[i] = the operation of a[i a_step] and b[i b_step], for i < n. */
typedef void hc_pointwise_f32_fn(int64_t n, const hc_pointwise_part *part);

#endif
