/* The table of algorithms.def, the choice, and the entry function. */
#include "ops/conv/prepacked.h"
#include "ops/conv/quantized/images.h"
#include "ops/conv/quantized/widened.h"
#include "ops/conv/windows.h"

#include <stdlib.h>
#include <string.h>

#define HC_ALGORITHM(order, symbol, ...)                                                                               \
    const char *hc_conv_##symbol##_refuses(const hc_convolution *conv);                                                \
    hc_conv_work hc_conv_##symbol##_work(const hc_convolution *conv);                                                  \
    hc_status hc_conv_##symbol##_run(const hc_convolution *conv, hc_error *error);                                     \
    bool hc_conv_##symbol##_links(const hc_convolution *conv);                                                         \
    hc_filter_form hc_conv_##symbol##_form(const hc_convolution *conv);                                                \
    hc_status hc_conv_##symbol##_prepack(const hc_convolution *conv, hc_prepacked_filters *to, hc_error *error);
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM

#define HC_LINKS(symbol) .links = hc_conv_##symbol##_links
#define HC_PREPACKS(symbol) .form = hc_conv_##symbol##_form, .prepack = hc_conv_##symbol##_prepack
static const hc_algorithm ALGORITHMS[HC_N_ALGORITHMS] = {
#define HC_ALGORITHM(section, symbol, text, does, ...)                                                                 \
    {.order = HC_CONV_##section,                                                                                       \
     .id = #section "_" #symbol,                                                                                       \
     .name = text,                                                                                                     \
     .what = does,                                                                                                     \
     .refuses = hc_conv_##symbol##_refuses,                                                                            \
     .work = hc_conv_##symbol##_work,                                                                                  \
     .run = hc_conv_##symbol##_run,                                                                                    \
     __VA_ARGS__},
#include "ops/conv/algorithms.def"
#undef HC_ALGORITHM
};

_Static_assert((int)HC_N_ALGORITHMS <= (int)HC_MAX_ALGORITHMS, "hc_explain_conv2d has room for every name");

/* Largest error that `auto` admits unless the call is strict: that of F(4 x 4, 3 x 3), but not that of F(6 x 6, 3 x
 * 3). */
static const double MOST_ERROR = 15;

/* The first entry of the name with this number, or -1. */
static int line_of_name(int number) {
    int n = 0;
    for (int i = 0; i < HC_N_ALGORITHMS; i++) {
        bool is_new = true;
        for (int j = 0; j < i; j++)
            is_new = is_new && strcmp(ALGORITHMS[j].name, ALGORITHMS[i].name) != 0;
        if (is_new && n++ == number)
            return i;
    }
    return -1;
}

bool hc_conv_algorithm(int number, const char **name, const char **what, double *error) {
    const int line = number < 0 ? -1 : line_of_name(number);
    if (line < 0)
        return false;
    *name = ALGORITHMS[line].name;
    *what = ALGORITHMS[line].what;
    *error = ALGORITHMS[line].error;
    return true;
}

/* The entry of an order with this name, or -1. */
static int line_of(hc_conv_order order, const char *name) {
    for (int i = 0; i < HC_N_ALGORITHMS; i++)
        if (ALGORITHMS[i].order == order && strcmp(ALGORITHMS[i].name, name) == 0)
            return i;
    return -1;
}

/* NULL, or why multiplying the zeros of a pattern would change bits. Depends on the values of x. */
static const char *zeros_count(const hc_convolution *conv, const hc_algorithm *algorithm) {
    const hc_view *x = conv->x;
    const hc_conv_shape *s = &conv->shape;
    if (!algorithm->multiplies_zeros || conv->activations || !conv->w->packed || conv->w->packed->format.m == 0)
        return NULL;
    const bool last = llabs(x->strides[1]) < llabs(x->strides[3]); /* whether channels are contiguous */
    const int64_t size = hc_dtype_size(x->dtype), line = s->width * s->channels;
    /* images without gaps are read in parts of the size of a line, in whatever order */
    const bool whole =
        last
            ? x->strides[1] == size && x->strides[3] == s->channels * size && x->strides[2] == line * size
            : x->strides[3] == size && x->strides[2] == s->width * size && x->strides[1] == s->height * s->width * size;
    const int64_t runs = whole ? 1 : last ? s->width : s->channels;
    const hc_dense_context context = {
        .rows = {.data = (char *)x->data,
                 .n_dims = 3,
                 .shape = {s->n, s->height, runs},
                 .stride = {x->strides[0], whole ? line * size : x->strides[2], x->strides[last ? 3 : 1]},
                 .rows = s->n * s->height * runs},
        .dtype = x->dtype,
        .n_column_dims = 1,
        .column_shape = {whole  ? line
                         : last ? s->channels
                                : s->width},
        .column_stride = {whole ? size : x->strides[last ? 1 : 3]}};
    hc_filters filters;
    hc_source values;
    hc_dense_source(&values, &context);
    const hc_source w = hc_filter_source(conv, 0, s->filters, &filters);
    return hc_zeros_differ(conv->run, &values, &w);
}

/* NULL, or why the algorithm of this name does not apply to this convolution; *line: its entry in the convolution's
 * order, or -1. */
static const char *why_not(const hc_convolution *conv, const char *name, int *line) {
    *line = line_of(conv->order, name);
    if (*line < 0)
        return conv->w->packed && line_of(HC_CONV_FOLDED, name) >= 0
                   ? "filters and x have no integers of 8 bits with one scale a row"
                   : "it multiplies floats, and x is to be quantized";
    const char *reason = ALGORITHMS[*line].refuses(conv);
    return reason ? reason : zeros_count(conv, &ALGORITHMS[*line]);
}

static hc_status forced(const hc_convolution *conv, const char *wanted, int *chosen, hc_error *error) {
    char known[200] = "";
    bool is_known = line_of(conv->order, wanted) >= 0; /* the short way */
    for (int i = 0, line; !is_known && (line = line_of_name(i)) >= 0; i++) {
        const char *name = ALGORITHMS[line].name;
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, name, sizeof known - strlen(known) - 1);
        is_known = strcmp(wanted, name) == 0;
    }
    if (!is_known)
        return hc_fail(error, HC_VALUE, "conv2d: algorithm is '%s', expected 'auto' or one of %s", wanted, known);
    const char *reason = why_not(conv, wanted, chosen);
    return reason ? hc_fail(error, HC_VALUE, "conv2d: algorithm '%s' refuses this convolution: %s", wanted, reason)
                  : HC_OK;
}

/* Packed filters keep the order of matmuls of packed arrays. The fastest algorithm depends on the number of images,
 * which must not change bits in one order. */
static double most_error(const hc_convolution *conv, const hc_conv_options *options) {
    return conv->w->packed || conv->run->one_order || (options && options->strict) ? 1 : MOST_ERROR;
}

static hc_conv_work work_of(const hc_convolution *conv, int line) {
    const hc_conv_shape *s = &conv->shape;
    hc_conv_work work = ALGORITHMS[line].work(conv);
    work.images = (double)s->n * (double)s->channels * (double)s->height * (double)s->width;
    work.windows = (double)s->n * (double)conv->window->groups * (double)s->out_height * (double)s->out_width;
    if ((conv->bias || conv->relu) && !ALGORITHMS[line].finishes) /* results are read and written once more */
        work.moved += 0.5 * (double)s->n * (double)s->filters * (double)s->out_height * (double)s->out_width;
    /* a zero takes its place: 0.9 ns a value of a filter (480 and 64 channels, 2:4, Zen 4, 2026-11) */
    if (conv->order == HC_CONV_FLOATS && ALGORITHMS[line].multiplies_zeros && conv->w->packed &&
        conv->w->packed->format.m > 0)
        work.moved += 3 * (double)s->filters * (double)(s->r * s->s * s->group_channels);
    return work;
}

/* The entry with the smallest time; `skips`: among those that skip the zeros of a pattern; `alike`: by shapes alone. */
static int fastest_of(const hc_convolution *conv, double most, bool skips, bool alike) {
    const uint32_t isa = alike ? HC_CONV_ALIKE : conv->run->isa;
    double least = 0;
    int found = -1;
    for (int i = 0; i < HC_N_ALGORITHMS; i++) {
        const hc_algorithm *a = &ALGORITHMS[i];
        if (a->order != conv->order || a->error > most || (skips && a->multiplies_zeros) || (alike && a->of_layout) ||
            a->refuses(conv))
            continue;
        hc_conv_work work = work_of(conv, i);
        if (alike)
            work.moved = work.shared = 0;
        const double seconds = hc_conv_seconds(isa, (hc_algorithm_number)i, &work);
        if (found < 0 || seconds < least)
            found = i, least = seconds;
    }
    HC_ASSERT(found >= 0); /* implicit never refuses */
    return found;
}

/* For floats the shapes choose an algorithm. If it sums in one chain, so do others, and the layout chooses among them. */
static int fastest(const hc_convolution *conv, double most, bool skips) {
    const int found = fastest_of(conv, most, skips, conv->order == HC_CONV_FLOATS);
    return conv->order == HC_CONV_FLOATS && ALGORITHMS[found].error == 1 ? fastest_of(conv, 1, skips, false) : found;
}

/* If the run forces a path of matmuls, the convolution is computed as a matmul. */
static hc_status choose(const hc_convolution *conv, const hc_conv_options *options, int *chosen, hc_error *error) {
    if (options && options->algorithm)
        return forced(conv, options->algorithm, chosen, error);
    const double most = most_error(conv, options);
    *chosen = conv->run->path ? line_of(conv->order, "implicit") : fastest(conv, most, false);
    if (zeros_count(conv, &ALGORITHMS[*chosen]))
        *chosen = fastest(conv, most, true);
    return HC_OK;
}

/* The same run with no more threads than are worth waking, which takes 5 to 20 us. */
static hc_run run_for(const hc_convolution *conv) {
    enum { THREAD_PRODUCTS = 1 << 19, AROUND = 8 /* products that take as long as to read or write a value */ };
    const hc_conv_shape *s = &conv->shape;
    const double answers = (double)s->n * (double)s->out_height * (double)s->out_width * (double)s->filters;
    const double values = (double)s->n * (double)s->height * (double)s->width * (double)s->channels;
    const double products =
        answers * ((double)s->r * (double)s->s * (double)s->group_channels + AROUND) + AROUND * values;
    hc_run run = *conv->run;
    if (products / THREAD_PRODUCTS < run.n_threads)
        run.n_threads = (int)(products / THREAD_PRODUCTS) + 1;
    return run;
}

/* Memory that a checked convolution points to. */
typedef struct {
    hc_view wide;
    hc_run run;
} conv_memory;

/* If x is widened, conv->x becomes `wide`, whose data is NULL. */
static hc_status check(hc_convolution *conv, const hc_conv_options *options, conv_memory *held, int *chosen,
                       hc_error *error) {
    hc_status status =
        hc_check_conv2d(conv->x, conv->w, conv->bias, conv->window, conv->activations, conv->out, &conv->shape, error);
    if (status == HC_OK) {
        conv->order = hc_conv_order_of(conv);
        held->run = run_for(conv);
        conv->run = &held->run;
    }
    conv->relu = options && options->relu;
    conv->filters = options ? options->filters : NULL;
    *chosen = -1;
    if (status == HC_OK && hc_widens(conv, &held->wide))
        conv->x = &held->wide;
    return status == HC_OK && hc_values(conv->out) > 0 ? choose(conv, options, chosen, error) : status;
}

static void finish_pixels(float *values, int64_t n, float bias, bool relu) {
    if (relu)
        for (int64_t i = 0; i < n; i++)
            values[i] = hc_finished(values[i], bias, true);
    else
        for (int64_t i = 0; i < n; i++)
            values[i] += bias;
}

static void finish_filters(float *values, int64_t n, const float *bias, bool relu) {
    if (relu)
        for (int64_t i = 0; i < n; i++)
            values[i] = hc_finished(values[i], bias[i], true);
    else
        for (int64_t i = 0; i < n; i++)
            values[i] += bias[i];
}

/* Adds the bias and applies the ReLU, to neighbours at a time. */
static void finish(const hc_convolution *conv) {
    const hc_view *out = conv->out, *bias = conv->bias;
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float), *strides = out->strides;
    const bool aligned = !bias || (uintptr_t)bias->data % sizeof(float) == 0;
    const bool by_filters = strides[1] == size && aligned && (!bias || bias->strides[0] == size || s->filters == 1);
    const bool joined = strides[3] == size && strides[2] == s->out_width * size;
    const int64_t rows = joined ? 1 : s->out_height, columns = s->out_width * (joined ? s->out_height : 1);
    for (int64_t image = 0; image < s->n; image++) {
        char *of_image = (char *)out->data + image * strides[0];
        for (int64_t h = 0; by_filters && h < s->out_height; h++)
            for (int64_t w = 0; w < s->out_width; w++) {
                float *values = (float *)(void *)(of_image + h * strides[2] + w * strides[3]);
                if (bias)
                    finish_filters(values, s->filters, bias->data, conv->relu);
                else
                    finish_pixels(values, s->filters, -0.0f, conv->relu);
            }
        for (int64_t k = 0; !by_filters && k < s->filters; k++) {
            float of_filter = -0.0f;
            if (bias)
                memcpy(&of_filter, (const char *)bias->data + k * bias->strides[0], sizeof of_filter);
            for (int64_t h = 0; h < rows; h++) {
                char *row = of_image + k * strides[1] + h * strides[2];
                if (strides[3] == size)
                    finish_pixels((float *)(void *)row, columns, of_filter, conv->relu);
                else
                    for (int64_t w = 0; w < columns; w++, row += strides[3])
                        finish_pixels((float *)(void *)row, 1, of_filter, conv->relu);
            }
        }
    }
}

static hc_status convolve(const hc_convolution *asked, int chosen, hc_error *error) {
    hc_convolution conv = *asked;
    hc_images images;
    hc_status status = HC_OK;
    if (conv.activations) {
        status = hc_images_begin(&images, &conv, error);
        conv.images = &images;
    }
    if (status == HC_OK)
        status = ALGORITHMS[chosen].run(&conv, error);
    if (conv.activations)
        hc_images_free(&images);
    if (status == HC_OK && (conv.bias || conv.relu) && !ALGORITHMS[chosen].finishes)
        finish(&conv);
    return status;
}

/* Packs filters for an algorithm with forms, unless those of the convolution fit or nothing is packed. */
static hc_status packed_for(const hc_convolution *conv, int chosen, hc_prepacked_filters **prepacked, hc_error *error) {
    const hc_filter_form form = ALGORITHMS[chosen].form(conv);
    *prepacked = NULL;
    if (!form.panels || hc_prepacked_panels_of(conv, &form, 0))
        return HC_OK;
    hc_status status = hc_prepacked_filters_new(conv, &form, prepacked, error);
    if (status == HC_OK)
        status = ALGORITHMS[chosen].prepack(conv, *prepacked, error);
    if (status != HC_OK) {
        hc_prepacked_filters_free(*prepacked);
        *prepacked = NULL;
    }
    return status;
}

/* x of 16 bits, widened some images at a time. */
static hc_status convolve_widened(const hc_convolution *conv, const hc_view *x, int chosen, hc_error *error) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t bytes = conv->x->strides[0], most = hc_max(1, hc_min(s->n, HC_WIDE_BYTES / hc_max(bytes, 1)));
    hc_view part = *conv->x, out = *conv->out;
    hc_status status = HC_OK;
    part.data = hc_alloc_aligned(most * bytes);
    if (!part.data)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for the values of an image");
    for (int64_t first = 0; status == HC_OK && first < s->n; first += most) {
        hc_convolution of_part = *conv;
        of_part.x = &part;
        of_part.out = &out;
        part.shape[0] = out.shape[0] = of_part.shape.n = hc_min(most, s->n - first);
        out.data = (char *)conv->out->data + first * out.strides[0];
        hc_widen(conv->run, x, first, part.shape[0], &part);
        status = convolve(&of_part, chosen, error);
        if (status != HC_OK && error->argument && error->ndim > 0)
            error->index[0] += first;
    }
    hc_free_aligned(part.data);
    return status;
}

hc_status hc_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                    const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                    const hc_view *out, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    conv_memory held;
    int chosen;
    const hc_status status = check(&conv, options, &held, &chosen, error);
    if (status != HC_OK || chosen < 0)
        return status;
    return conv.x == x ? convolve(&conv, chosen, error) : convolve_widened(&conv, x, chosen, error);
}

/* The fastest algorithm that links, or -1. */
static int fastest_link(const hc_convolution *conv, double *seconds) {
    int found = -1;
    for (int i = 0; i < HC_N_ALGORITHMS; i++) {
        const hc_algorithm *a = &ALGORITHMS[i];
        if (a->order != conv->order || !a->links || !a->links(conv))
            continue;
        const hc_conv_work work = work_of(conv, i);
        const double needed = hc_conv_seconds(conv->run->isa, (hc_algorithm_number)i, &work);
        if (found < 0 || needed < *seconds)
            found = i, *seconds = needed;
    }
    return found;
}

int hc_conv_links(const hc_convolution *conv) {
    double seconds = 0;
    if (!hc_lines_make_codes(conv) || conv->order != HC_CONV_FOLDED)
        return -1;
    const int chosen = fastest_link(conv, &seconds);
    if (chosen < 0)
        return -1;
    const int best = fastest_of(conv, 1, false, false);
    const hc_conv_work work = work_of(conv, best);
    return seconds <= 1.25 * hc_conv_seconds(conv->run->isa, (hc_algorithm_number)best, &work) ? chosen : -1;
}

hc_status hc_conv_linked(hc_convolution *conv, int algorithm, hc_error *error) {
    hc_status status =
        hc_check_conv2d(conv->x, conv->w, conv->bias, conv->window, conv->activations, conv->out, &conv->shape, error);
    if (status != HC_OK)
        return status;
    conv->order = hc_conv_order_of(conv);
    if (conv->packs && ALGORITHMS[algorithm].form)
        status = packed_for(conv, algorithm, conv->packs, error);
    if (status != HC_OK)
        return status;
    if (conv->packs && *conv->packs)
        conv->filters = *conv->packs;
    hc_images images;
    conv->images = &images;
    status = hc_images_begin(&images, conv, error);
    if (status == HC_OK)
        status = ALGORITHMS[algorithm].run(conv, error);
    hc_images_free(&images);
    return status;
}

hc_status hc_explain_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                            const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                            const hc_view *out, hc_conv_explanation *explanation, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    *explanation = (hc_conv_explanation){.chosen = -1};
    conv_memory held;
    int chosen;
    const hc_status status = check(&conv, options, &held, &chosen, error);
    for (int first; status == HC_OK && (first = line_of_name(explanation->n)) >= 0; explanation->n++) {
        if (chosen < 0)
            continue;
        int line;
        const int i = explanation->n;
        explanation->candidate[i].reason = why_not(&conv, ALGORITHMS[first].name, &line);
        explanation->candidate[i].admitted = line >= 0 && ALGORITHMS[line].error <= most_error(&conv, options);
        if (line == chosen)
            explanation->chosen = i;
        if (explanation->candidate[i].reason)
            continue;
        const hc_conv_work work = work_of(&conv, line);
        explanation->candidate[i].what = ALGORITHMS[line].what;
        explanation->candidate[i].id = ALGORITHMS[line].id;
        explanation->candidate[i].work[0] = work.products;
        explanation->candidate[i].work[1] = work.values;
        explanation->candidate[i].work[2] = work.filters;
        explanation->candidate[i].work[3] = work.kept;
        explanation->candidate[i].work[4] = work.images;
        explanation->candidate[i].work[5] = work.windows;
        explanation->candidate[i].bytes = work.bytes;
        explanation->candidate[i].seconds = hc_conv_seconds(run->isa, (hc_algorithm_number)line, &work);
    }
    return status;
}

hc_status hc_form_of_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_filter_form *form, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    conv_memory held;
    int chosen;
    *form = (hc_filter_form){0};
    const hc_status status = check(&conv, options, &held, &chosen, error);
    if (status == HC_OK && chosen >= 0 && ALGORITHMS[chosen].form)
        *form = ALGORITHMS[chosen].form(&conv);
    return status;
}

hc_status hc_prepack_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_prepacked_filters **prepacked, hc_error *error) {
    hc_convolution conv = {
        .run = run, .x = x, .out = out, .bias = bias, .w = w, .window = window, .activations = activations};
    conv_memory held;
    int chosen;
    *prepacked = NULL;
    hc_status status = check(&conv, options, &held, &chosen, error);
    if (status != HC_OK || chosen < 0 || !ALGORITHMS[chosen].form)
        return status;
    return packed_for(&conv, chosen, prepacked, error);
}
