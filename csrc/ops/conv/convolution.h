/* One checked convolution, and the interface of an algorithm, an entry of algorithms.def. An algorithm returns why it
 * refuses, estimates its work, and runs; it calls no other algorithm. Its entry belongs to an order, which determines
 * the kind of operands. costs.def converts its work to seconds. Only algorithms.c chooses.
 */
#ifndef HC_CONVOLUTION_H
#define HC_CONVOLUTION_H

#include "kernels/kernel.h"
#include "ops/check.h"
#include "ops/product/operand.h"

/* The formats alone determine the order, the kind of operands (quantized/images.h). All algorithms of an order give the
 * same bits, except for floats: algorithms whose `error` is 1 sum every output in one fmaf chain over (r, s, c), each
 * of the others has its own bits. So for floats only shapes determine the choice.
 *
 *   FLOATS    x as it is
 *   FOLDED    integers of x and w with one scale per row: exact
 *   GROUPED   integers whose groups have scales: one fmaf per segment
 *   ROUNDED   the values that x is rounded to: one fmaf chain */
typedef enum { HC_CONV_FLOATS = 0, HC_CONV_FOLDED, HC_CONV_GROUPED, HC_CONV_ROUNDED, HC_N_CONV_ORDERS } hc_conv_order;

typedef struct hc_images hc_images;

/* Inside a chain (quantized/chain.c), for one image: x as codes instead of its values, and more steps after the bias. The result is
 * contiguous, (h, w, filter). */
typedef struct {
    const uint8_t
        *codes;   /* of all of x, biased by 128, (h, w, channel), 64 bytes after them are readable. NULL: none */
    int64_t line; /* codes from a line to the next */
    float scale;
    hc_link_steps steps;
    const float *plus; /* like the result; or NULL */
    bool floats;       /* whether the result is written to `out` */
    uint8_t *to;       /* codes of the result, biased by 128; or NULL */
    int64_t to_line;
    float to_scale;
    uint32_t largest; /* bits of the largest magnitude of the result, HC_LINK_NOT_FINITE if one is not finite */
} hc_conv_link;

typedef struct {
    const hc_run *run;
    const hc_view *x, *out, *bias; /* (image, channel, h, w); bias NULL: none */
    const hc_operand *w;
    const hc_window *window;
    const hc_format *activations; /* NULL: floats */
    bool relu;
    const hc_prepacked_filters *filters; /* packed before, or NULL */
    hc_prepacked_filters **packs;        /* where hc_conv_linked puts filters that it packs; NULL: nowhere */
    hc_conv_shape shape;
    hc_conv_order order;
    hc_conv_link *link; /* or NULL */
    hc_images *images;  /* while an algorithm runs: the quantized x (quantized/images.h); NULL: floats */
} hc_convolution;

/* Work of an algorithm: the counts for which costs.def has times. For floats they depend on shapes alone. */
typedef struct {
    double products; /* multiply-adds, including those of padded tiles */
    double values;   /* values of windows that are gathered, and of tiles and outputs that are transformed */
    double filters;  /* values of filters that are transformed */
    double kept;     /* values of prepacked transformed filters that are read from memory */
    /* values of images, which are quantized first. This and the next count depend on the convolution alone */
    double images;
    double windows; /* positions of windows, in each group */
    /* values that are read or written across the layout of x or of the result; only the choice among algorithms of the
     * same bits regards them */
    double moved;
    double shared;  /* likewise: products whose pixels are loaded once for several outputs */
    bool of_floats; /* by kernels of floats: the costs are those of `planes` of floats */
    bool is_rows;   /* a matmul of packed rows: only the products count */
    int64_t bytes;  /* of working memory */
} hc_conv_work;

typedef enum {
#define HC_ALGORITHM(order, symbol, ...) HC_ALGORITHM_##order##_##symbol,
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
    HC_N_ALGORITHMS
} hc_algorithm_number;

/* Seconds in one thread, by the costs of this processor, otherwise of the best class of instruction sets. */
double hc_conv_seconds(uint32_t isa, hc_algorithm_number number, const hc_conv_work *work);
/* Nanoseconds of a call and of the first six counts. Those of floats are the same on every machine. */
enum { HC_CONV_COSTS = 7 };
void hc_algorithm_costs(uint32_t isa, hc_algorithm_number number, double costs[HC_CONV_COSTS]);
/* For floats the costs are the same on every machine, since the choice determines the bits. */
#define HC_CONV_ALIKE UINT32_MAX

/* The values that an algorithm moves whose kernels read the channels of a pixel and write the filters of an output as
 * neighbours, each with its weight. */
static inline double hc_conv_moved_by(const hc_convolution *conv, double read, double write) {
    const hc_conv_shape *s = &conv->shape;
    const bool reads = conv->x->strides[1] != hc_dtype_size(conv->x->dtype) && s->channels > 1;
    const bool writes = conv->out->strides[1] != (int64_t)sizeof(float) && s->filters > 1;
    return (reads ? read * (double)s->n * (double)s->channels * (double)(s->height * s->width) : 0) +
           (writes ? write * (double)s->n * (double)s->filters * (double)(s->out_height * s->out_width) : 0);
}
static inline double hc_conv_moved(const hc_convolution *conv) { return hc_conv_moved_by(conv, 1, 1); }

/* The same if x is quantized: 0.16 ns a value that is read, 0.48 if it is not float32. A value that is written takes 0.14
 * ns with `direct` and 0.09 with `implicit` (ten layers of 24 to 480 channels, three formats, Zen 4, 2026-11). */
static inline double hc_conv_moved_codes(const hc_convolution *conv, double write) {
    return hc_conv_moved_by(conv, conv->x->dtype == HC_F32 ? 0.55 : 1.6, write);
}

typedef struct {
    hc_conv_order order;
    const char *id;          /* its number's name: ORDER_symbol */
    const char *name, *what; /* the name can be forced by a caller; each order has it at most once */
    double error;            /* approximate mean error relative to that of one chain */
    bool finishes;           /* whether it adds the bias and applies the ReLU itself */
    /* whether it multiplies the zeros of packed filters with a pattern, which `implicit` skips */
    bool multiplies_zeros;
    bool of_layout; /* whether it depends on strides: never chosen against algorithms with other bits */
    const char *(*refuses)(const hc_convolution *conv);
    hc_conv_work (*work)(const hc_convolution *conv);
    hc_status (*run)(const hc_convolution *conv, hc_error *error);
    bool (*links)(const hc_convolution *conv); /* whether it does what a link says; NULL: never */
    /* NULL: filters cannot be prepacked. form: what this convolution packs in each call, all 0 for nothing. prepack:
     * packs it for all groups. */
    hc_filter_form (*form)(const hc_convolution *conv);
    hc_status (*prepack)(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error);
} hc_algorithm;

/* The fastest algorithm that links if it is about as fast as all others, otherwise -1; the convolution by it. */
int hc_conv_links(const hc_convolution *conv);
hc_status hc_conv_linked(hc_convolution *conv, int algorithm, hc_error *error);

/* One output: adds the bias (-0 for none). With relu, values below 0 and -0 become +0, and NaN stays. */
static inline float hc_finished(float value, float bias, bool relu) {
    value += bias;
    return relu && value <= 0 ? 0.0f : value;
}

#endif
