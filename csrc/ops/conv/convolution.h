/* One convolution, checked, and the contract of an algorithm: a line of algorithms.def. An algorithm says why it refuses, what
 * it would do, and runs; it calls no other. Its line is of an order, which says what is multiplied; the costs of costs/ make
 * seconds of its work. algorithms.c is the only place that chooses.
 */
#ifndef HC_CONVOLUTION_H
#define HC_CONVOLUTION_H

#include "ops/check.h"
#include "ops/product/operand.h"

/* What is multiplied follows from the formats alone (quantized/images.h). All algorithms of an order give the same bits, but for
 * floats: those whose `error` is 1 sum every answer in one fmaf chain over (r, s, c), the others have bits of their own, so that
 * shapes alone choose.
 *
 *   FLOATS    x as it is
 *   FOLDED    integers of x and w with one scale a row: exact
 *   GROUPED   integers whose groups have scales: one fmaf a segment
 *   ROUNDED   the values that x is rounded to: one fmaf chain */
typedef enum { HC_CONV_FLOATS = 0, HC_CONV_FOLDED, HC_CONV_GROUPED, HC_CONV_ROUNDED, HC_N_CONV_ORDERS } hc_conv_order;

typedef struct hc_images hc_images;

typedef struct {
    const hc_run *run;
    const hc_view *x, *out, *bias; /* (image, channel, h, w); bias NULL: none */
    const hc_operand *w;
    const hc_window *window;
    const hc_format *activations; /* NULL: floats */
    bool relu;
    const hc_prepacked_filters *filters; /* packed before, or NULL */
    hc_conv_shape shape;
    hc_conv_order order;
    hc_images *images; /* while an algorithm runs: x quantized (quantized/images.h); NULL: floats */
} hc_convolution;

/* Work of an algorithm: the counts that costs/ has times for. For floats they follow from shapes alone. */
typedef struct {
    double products; /* multiply-adds, those of padded tiles included */
    double values;   /* of windows that are gathered, of tiles and answers that are transformed */
    double filters;  /* values of filters that are transformed */
    double kept;     /* of transformed filters that were packed before and come from beyond the caches */
    double images;   /* values of images: they are quantized first. These two follow from the convolution alone */
    double windows;  /* places of windows, in each group */
    int64_t bytes;   /* of working memory */
} hc_conv_work;

typedef enum {
#define HC_ALGORITHM(order, symbol, ...) HC_ALGORITHM_##order##_##symbol,
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
    HC_N_ALGORITHMS
} hc_algorithm_number;

/* Seconds in one thread, by the costs of this processor, or else of the best class of instruction sets. */
double hc_conv_seconds(uint32_t isa, hc_algorithm_number number, const hc_conv_work *work);
/* Of floats: the same on every machine, since the choice is one of bits. */
#define HC_CONV_ALIKE UINT32_MAX

typedef struct {
    hc_conv_order order;
    const char *id;          /* its number's name: ORDER_symbol */
    const char *name, *what; /* the name is what a caller may force; each order has it once at most */
    double error;            /* mean error over that of one chain, about */
    bool finishes;           /* adds the bias and cuts at 0 itself */
    bool multiplies_zeros;   /* that a pattern of packed filters leaves out, where `implicit` skips them */
    const char *(*refuses)(const hc_convolution *conv);
    hc_conv_work (*work)(const hc_convolution *conv);
    hc_status (*run)(const hc_convolution *conv, hc_error *error);
    /* NULL: filters are not packed before. What this convolution packs at each call, all 0 for none; does it, for all groups. */
    hc_filter_form (*form)(const hc_convolution *conv);
    hc_status (*prepack)(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error);
} hc_algorithm;

/* One answer: bias, or -0 for none, is added; what is below 0, or -0, becomes +0; NaN stays. */
static inline float hc_finished(float value, float bias, bool relu) {
    value += bias;
    return relu && value <= 0 ? 0.0f : value;
}

#endif
