/* One convolution, checked, and the contract of an algorithm: a line of algorithms.def. An algorithm says why it refuses, what
 * it would do, and runs; it calls no other. Those of float32 whose `error` is 1 sum every answer in one fmaf chain over
 * (r, s, c), so their bits are the same; the others have bits of their own, and `auto` takes them by shapes alone. Sums
 * of integers are exact and have the same bits, in those that say so whatever their error with floats is, so that `auto` may
 * ask the instruction set there.
 */
#ifndef HC_CONVOLUTION_H
#define HC_CONVOLUTION_H

#include "ops/check.h"
#include "ops/product/operand.h"

typedef struct {
    const hc_run *run;
    const hc_view *x, *out, *bias; /* (image, channel, h, w); bias NULL: none */
    const hc_operand *w;
    const hc_window *window;
    const hc_format *activations; /* NULL: floats */
    bool relu;
    const hc_prepacked_filters *filters; /* packed before, or NULL */
    hc_conv_shape shape;
} hc_convolution;

/* What an algorithm would do: float32 multiply-adds or what takes as long, and bytes of working memory. */
typedef struct {
    double products;
    int64_t bytes;
} hc_conv_work;

typedef enum {
#define HC_ALGORITHM(symbol, ...) HC_ALGORITHM_##symbol,
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
    HC_N_ALGORITHMS
} hc_algorithm_number;

typedef struct {
    const char *name, *what;
    double error;          /* mean error over that of one chain, about */
    bool finishes;         /* adds the bias and cuts at 0 itself */
    bool exact;            /* of integers: their sums are */
    bool multiplies_zeros; /* that a pattern of packed filters leaves out, where `implicit` skips them */
    const char *(*refuses)(const hc_convolution *conv);
    hc_conv_work (*work)(const hc_convolution *conv);
    hc_status (*run)(const hc_convolution *conv, hc_error *error);
    /* NULL: filters are not packed before. What this convolution packs at each call, all 0 for none; does it, for all groups. */
    hc_filter_form (*form)(const hc_convolution *conv);
    hc_status (*prepack)(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error);
} hc_algorithm;

/* The filters of one group as a source. The contexts must outlive it. */
typedef struct {
    hc_dense_context dense;
    hc_packed_context packed;
} hc_filters;
hc_source hc_filter_source(const hc_convolution *conv, int64_t first, int64_t filters, hc_filters *context);

/* Windows and answers as the two matrices of a convolution that is a product. Row: ((image * P) + p) * Q + q.
 * Windows [first, first + rows) of one group, columns r, s, c, one after the other. */
void hc_window_rows(const hc_convolution *conv, int64_t group, int64_t first, int64_t rows, float *values);
/* out (images, filters of one group, P, Q), columns filters. */
hc_rows hc_answer_rows(const hc_view *out, const hc_conv_shape *shape, int64_t first_image, int64_t images,
                       int64_t first_filter);

/* One answer: bias, or -0 for none, is added; what is below 0, or -0, becomes +0; NaN stays. */
static inline float hc_finished(float value, float bias, bool relu) {
    value += bias;
    return relu && value <= 0 ? 0.0f : value;
}

#endif
