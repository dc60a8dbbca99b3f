/* The table of algorithms.def, the choice, and the way in. What is chosen follows from shapes and formats alone: an algorithm
 * may have bits of its own, and they are to be the same on every machine. */
#include "ops/conv/prepacked.h"
#include "ops/product/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HC_ALGORITHM(symbol, ...)                                                                                      \
    const char *hc_conv_##symbol##_refuses(const hc_convolution *conv);                                                \
    hc_conv_work hc_conv_##symbol##_work(const hc_convolution *conv);                                                  \
    hc_status hc_conv_##symbol##_run(const hc_convolution *conv, hc_error *error);                                     \
    hc_filter_form hc_conv_##symbol##_form(const hc_convolution *conv);                                                \
    hc_status hc_conv_##symbol##_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error);
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM

#define HC_PREPACKS(symbol) .form = hc_conv_##symbol##_form, .prepack = hc_conv_##symbol##_prepack
static const hc_algorithm ALGORITHMS[HC_N_ALGORITHMS] = {
#define HC_ALGORITHM(symbol, text, does, ...)                                                                          \
    {.name = text,                                                                                                     \
     .what = does,                                                                                                     \
     .refuses = hc_conv_##symbol##_refuses,                                                                            \
     .work = hc_conv_##symbol##_work,                                                                                  \
     .run = hc_conv_##symbol##_run,                                                                                    \
     __VA_ARGS__},
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
};
_Static_assert((int)HC_N_ALGORITHMS <= (int)HC_MAX_ALGORITHMS, "hc_explain_conv2d has room for every algorithm");

/* What `auto` admits unless it is to be strict: that of F(4 x 4, 3 x 3), and not that of F(6 x 6, 3 x 3). */
static const double MOST_ERROR = 15;

bool hc_conv_algorithm(int number, const char **name, const char **what, double *error) {
    if (number < 0 || number >= HC_N_ALGORITHMS)
        return false;
    *name = ALGORITHMS[number].name;
    *what = ALGORITHMS[number].what;
    *error = ALGORITHMS[number].error;
    return true;
}

/* NULL, or why zeros that a pattern leaves out would change bits if they were multiplied: by the values of x. */
static const char *zeros_count(const hc_convolution *conv, const hc_algorithm *algorithm) {
    const hc_view *x = conv->x;
    const hc_conv_shape *s = &conv->shape;
    if (!algorithm->multiplies_zeros || conv->activations || !conv->w->packed || conv->w->packed->format.m == 0)
        return NULL;
    const bool last = llabs(x->strides[1]) < llabs(x->strides[3]); /* channels lie nearest to each other */
    const hc_dense_context context = {.rows = {.data = (char *)x->data,
                                               .n_dims = 3,
                                               .shape = {s->n, s->height, last ? s->width : s->channels},
                                               .stride = {x->strides[0], x->strides[2], x->strides[last ? 3 : 1]},
                                               .rows = s->n * s->height * (last ? s->width : s->channels)},
                                      .dtype = x->dtype,
                                      .n_column_dims = 1,
                                      .column_shape = {last ? s->channels : s->width},
                                      .column_stride = {x->strides[last ? 1 : 3]}};
    hc_filters filters;
    hc_source values;
    hc_dense_source(&values, &context);
    const hc_source w = hc_filter_source(conv, 0, s->filters, &filters);
    return hc_zeros_differ(conv->run, &values, &w);
}

static hc_status named(const hc_convolution *conv, const char *name, int *chosen, hc_error *error) {
    char known[200] = "";
    for (int i = 0; i < HC_N_ALGORITHMS; i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, ALGORITHMS[i].name, sizeof known - strlen(known) - 1);
        if (strcmp(name, ALGORITHMS[i].name) != 0)
            continue;
        const char *reason = ALGORITHMS[i].refuses(conv);
        reason = reason ? reason : zeros_count(conv, &ALGORITHMS[i]);
        *chosen = i;
        return reason ? hc_fail(error, HC_VALUE, "conv2d: algorithm '%s' refuses this convolution: %s", name, reason)
                      : HC_OK;
    }
    return hc_fail(error, HC_VALUE, "conv2d: algorithm is '%s', wanted 'auto' or one of %s", name, known);
}

/* Packed filters keep the order of products of packed arrays. */
static double most_error(const hc_convolution *conv, const hc_conv_options *options) {
    return conv->w->packed || (options && options->strict) ? 1 : MOST_ERROR;
}

static double error_of(const hc_convolution *conv, const hc_algorithm *algorithm) {
    return conv->activations && algorithm->exact ? 1 : algorithm->error;
}

/* The number of the algorithm of least work; `skips`: of those that skip the zeros of a pattern. */
static int least_work(const hc_convolution *conv, double most, bool skips) {
    double least = 0;
    int found = -1;
    for (int i = 0; i < HC_N_ALGORITHMS; i++) {
        const hc_algorithm *algorithm = &ALGORITHMS[i];
        if (error_of(conv, algorithm) > most || (skips && algorithm->multiplies_zeros) || algorithm->refuses(conv))
            continue;
        const double products = algorithm->work(conv).products;
        if (found < 0 || products < least)
            found = i, least = products;
    }
    HC_ASSERT(found >= 0); /* implicit never refuses */
    return found;
}

/* A run that forces a path of products gets a product. */
static hc_status choose(const hc_convolution *conv, const hc_conv_options *options, int *chosen, hc_error *error) {
    if (options && options->algorithm)
        return named(conv, options->algorithm, chosen, error);
    const double most = most_error(conv, options);
    *chosen = conv->run->path ? HC_ALGORITHM_implicit : least_work(conv, most, false);
    if (zeros_count(conv, &ALGORITHMS[*chosen]))
        *chosen = least_work(conv, most, true);
    return HC_OK;
}

static hc_status check(hc_convolution *conv, const hc_conv_options *options, int *chosen, hc_error *error) {
    hc_status status =
        hc_check_conv2d(conv->x, conv->w, conv->bias, conv->window, conv->activations, conv->out, &conv->shape, error);
    conv->relu = options && options->relu;
    conv->filters = options ? options->filters : NULL;
    *chosen = -1;
    return status == HC_OK && hc_values(conv->out) > 0 ? choose(conv, options, chosen, error) : status;
}

static void finish(const hc_convolution *conv) {
    const hc_view *out = conv->out;
    int64_t index[HC_MAX_DIMS] = {0};
    const char *value = out->data;
    do {
        float bias = -0.0f;
        if (conv->bias)
            memcpy(&bias, (const char *)conv->bias->data + index[1] * conv->bias->strides[0], sizeof bias);
        float *at = (float *)(void *)((char *)out->data + (value - (const char *)out->data));
        *at = hc_finished(*at, bias, conv->relu);
    } while (hc_view_next(out, index, &value));
}

hc_status hc_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                    const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                    const hc_view *out, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    int chosen;
    hc_status status = check(&conv, options, &chosen, error);
    if (status != HC_OK || chosen < 0)
        return status;
    status = ALGORITHMS[chosen].run(&conv, error);
    if (status == HC_OK && (bias || conv.relu) && !ALGORITHMS[chosen].finishes)
        finish(&conv);
    return status;
}

hc_status hc_explain_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                            const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                            const hc_view *out, hc_conv_explanation *explanation, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    *explanation = (hc_conv_explanation){.n = HC_N_ALGORITHMS, .chosen = -1};
    const hc_status status = check(&conv, options, &explanation->chosen, error);
    for (int i = 0; status == HC_OK && explanation->chosen >= 0 && i < HC_N_ALGORITHMS; i++) {
        explanation->candidate[i].admitted = error_of(&conv, &ALGORITHMS[i]) <= most_error(&conv, options);
        explanation->candidate[i].reason = ALGORITHMS[i].refuses(&conv);
        if (!explanation->candidate[i].reason)
            explanation->candidate[i].reason = zeros_count(&conv, &ALGORITHMS[i]);
        if (explanation->candidate[i].reason)
            continue;
        const hc_conv_work work = ALGORITHMS[i].work(&conv);
        explanation->candidate[i].products = work.products;
        explanation->candidate[i].bytes = work.bytes;
        explanation->candidate[i].seconds =
            hc_estimate(run, HC_PATH_CHAIN_gemm_chain, &(hc_work){.products = work.products});
    }
    return status;
}

hc_status hc_form_of_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_filter_form *form, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    int chosen;
    *form = (hc_filter_form){0};
    const hc_status status = check(&conv, options, &chosen, error);
    if (status == HC_OK && chosen >= 0 && ALGORITHMS[chosen].form)
        *form = ALGORITHMS[chosen].form(&conv);
    return status;
}

hc_status hc_prepack_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_prepacked_filters **prepacked, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    int chosen;
    *prepacked = NULL;
    hc_status status = check(&conv, options, &chosen, error);
    if (status != HC_OK || chosen < 0 || !ALGORITHMS[chosen].form)
        return status;
    const hc_filter_form form = ALGORITHMS[chosen].form(&conv);
    if (!form.panels)
        return HC_OK;
    status = hc_prepacked_filters_new(&conv, &form, prepacked, error);
    if (status == HC_OK)
        status = ALGORITHMS[chosen].prepack(&conv, *prepacked, error);
    if (status != HC_OK) {
        hc_prepacked_filters_free(*prepacked);
        *prepacked = NULL;
    }
    return status;
}
