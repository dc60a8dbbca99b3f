/* Convolutions one after the other (hc_conv_chain), one image at a time. A tensor between two steps is (h, w, channel):
 * values, or the padded codes that the next convolution reads, or both.
 *
 * The scale of codes depends on the largest magnitude of all results, so that values are kept and then rounded. If results
 * are clamped, the largest magnitude often is the limit itself. A step may then guess so: it rounds its results as they are
 * computed, and repeats the convolution with values if the guess was wrong.
 *
 * Memory: the tensors that are still needed, and those of one convolution.
 */
#include "ops/conv/quantized/chain.h"
#include "base/convert.h"
#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 4096, INFINITE = 0x7f800000 /* bits */ };

/* Values with the zeros of a step around them, for a convolution that does not read codes. */
static hc_status widened(hc_chain *chain, const hc_tensor *t, const int64_t around[4], hc_room **room, hc_view *view,
                         hc_error *error) {
    const int64_t height = t->height + around[0] + around[1], width = t->width + around[2] + around[3];
    *room = hc_chain_room(chain, height * width * t->channels * (int64_t)sizeof(float));
    if (!*room)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for a tensor");
    float *to = (*room)->data;
    memset(to, 0, (size_t)(height * width * t->channels) * sizeof *to);
    for (int64_t h = 0; h < t->height; h++)
        memcpy(to + ((h + around[0]) * width + around[2]) * t->channels, t->values + h * t->width * t->channels,
               (size_t)(t->width * t->channels) * sizeof *to);
    *view = hc_pixels_view(to, t->channels, height, width);
    return HC_OK;
}

/* All zeros around the codes that a step reads. */
static void around_of(const hc_conv_step *step, int64_t around[4]) {
    for (int i = 0; i < 4; i++)
        around[i] = step->around[i] + step->window.pad_before[i / 2];
}

static bool same(const int64_t a[4], const int64_t b[4]) { return memcmp(a, b, 4 * sizeof *a) == 0; }

static hc_convolution convolution_of(const hc_chain *chain, const hc_conv_step *step, const hc_operand *w,
                                     const hc_view *bias, const hc_view *x, const hc_window *window,
                                     const hc_view *out) {
    return (hc_convolution){.run = chain->run,
                            .x = x,
                            .out = out,
                            .bias = step->bias ? bias : NULL,
                            .w = w,
                            .window = window,
                            .activations = step->activations};
}

/* Step `i`. */
static hc_status run_step(hc_chain *chain, int i, hc_error *error) {
    hc_conv_step *step = &chain->steps[i];
    hc_tensor *x = &chain->tensors[step->from], *y = &chain->tensors[chain->n_inputs + i];
    hc_tensor *other = step->plus >= 0 ? &chain->tensors[step->plus] : NULL;
    const hc_operand w = {.packed = step->w};
    const hc_view bias = {
        .data = (void *)step->bias, .dtype = HC_F32, .ndim = 1, .shape = {y->channels}, .strides = {sizeof(float)}};
    const hc_link_steps steps = {step->clamps, step->low, step->high};
    const hc_status none = HC_MEMORY;
    const hc_prepacked_filters *filters = step->packed ? step->packed : step->filters; /* of an earlier image */
    void *nowhere = chain->inputs[0].data; /* of results that are codes alone */
    hc_window window = step->window;
    hc_view seen = x->view;
    hc_room *room = NULL;
    hc_status status = HC_OK;
    if ((other && !other->values && !hc_tensor_turn(chain, other)) ||
        (!step->w && !x->values && !hc_tensor_turn(chain, x)))
        return hc_fail(error, none, "conv2d: not enough memory for a tensor");
    hc_conv_link link = {.steps = steps, .plus = other ? other->values : NULL};
    if (chain->links[i] >= 0 && !x->is_known) {
        int64_t around[4];
        around_of(step, around);
        if (x->codes && !same(around, x->around))
            hc_tensor_leave_codes(x);
        if (!x->codes) {
            HC_ASSERT(x->values);
            memcpy(x->around, around, sizeof around);
            if (!hc_tensor_has_codes(chain, x))
                return hc_fail(error, none, "conv2d: not enough memory for a tensor");
            x->scale = hc_f32_from_bits(x->largest) / HC_LINE_LARGEST;
            hc_tensor_round(chain, x);
        }
        link.codes = x->codes;
        link.line = hc_codes_line(x);
        link.scale = x->scale;
        seen =
            hc_pixels_view(x->codes, x->channels, x->height + around[0] + around[1], x->width + around[2] + around[3]);
        window.pad_before[0] = window.pad_before[1] = 0;
    } else if (step->around[0] || step->around[1] || step->around[2] || step->around[3]) {
        status = widened(chain, x, step->around, &room, &seen, error);
    }
    const bool guesses = y->guesses && step->guess;
    for (int attempt = guesses ? 0 : 1; status == HC_OK && attempt < 2; attempt++) {
        link.largest = 0;
        link.floats = attempt == 1 || y->keeps;
        if (link.floats && !y->values && !hc_tensor_has_values(chain, y))
            status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
        if (attempt == 0 && status == HC_OK) {
            if (!hc_tensor_has_codes(chain, y))
                status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
            link.to = y->codes ? hc_codes_at(y, 0) : NULL;
            link.to_line = hc_codes_line(y);
            link.to_scale = y->scale = step->high / HC_LINE_LARGEST;
        }
        if (status != HC_OK)
            break;
        const hc_view out = link.floats ? y->view : hc_pixels_view(nowhere, y->channels, y->height, y->width);
        if (chain->links[i] >= 0) {
            hc_convolution conv = convolution_of(chain, step, &w, &bias, &seen, &window, &out);
            hc_prepacked_filters *packed = NULL;
            conv.link = &link;
            conv.filters = filters;
            conv.packs = &packed;
            status = hc_conv_linked(&conv, chain->links[i], error);
            y->largest = link.largest;
            if (packed) {
                hc_prepacked_filters_free(step->packed);
                filters = step->packed = packed;
            }
        } else {
            const hc_view *offset = step->bias ? &bias : NULL;
            if (step->w && !filters) {
                status = hc_prepack_filters(chain->run, &seen, &w, offset, &window, NULL, step->activations, &out,
                                            &step->packed, error);
                filters = step->packed;
            }
            const hc_conv_options options = {.filters = filters};
            if (!step->w)
                hc_tensor_pool(chain, x, y, &window, step->pool);
            else if (status == HC_OK)
                status = hc_conv2d(chain->run, &seen, &w, offset, &window, &options, step->activations, &out, error);
            if (status == HC_OK && !hc_tensor_finish(chain, y, &steps, link.plus))
                status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
        }
        if (attempt == 0 && status == HC_OK) {
            if (y->largest == hc_f32_bits(step->high))
                break;
            step->guess = false;
            hc_tensor_leave_codes(y);
            link.to = NULL;
            if (link.floats)
                break;
        }
    }
    if (room)
        room->used = false;
    if (status == HC_OK && y->largest >= INFINITE)
        status = hc_fail(error, HC_VALUE, "conv2d: a result of a chain is not finite");
    return status;
}

/* Sizes of all tensors; who reads them. */
static hc_status plan(hc_chain *chain, hc_error *error) {
    for (int i = 0; i < chain->n_inputs; i++) {
        const hc_view *v = &chain->inputs[i];
        const hc_status status = hc_check_view("x", v, error);
        if (status != HC_OK)
            return status;
        if (v->ndim != 4 || v->dtype != HC_F32 || v->shape[0] != chain->inputs[0].shape[0])
            return hc_fail(error, HC_VALUE, "conv2d: inputs of a chain are not float32 images, of the same number");
        chain->tensors[i] = (hc_tensor){
            .channels = v->shape[1], .height = v->shape[2], .width = v->shape[3], .last = -1, .is_known = true};
    }
    for (int i = 0; i < chain->n_steps; i++) {
        const hc_conv_step *step = &chain->steps[i];
        const int here = chain->n_inputs + i;
        hc_tensor *y = &chain->tensors[here];
        const bool pools = !step->w;
        if (step->from < 0 || step->from >= here || step->plus >= here || (!pools && !step->activations) ||
            (!pools && step->w->ndim != 4))
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain reads a tensor that is not there", i);
        hc_tensor *x = &chain->tensors[step->from];
        int64_t size[2], padded = x->channels; /* values */
        for (int d = 0; d < 2; d++) {
            const hc_window *window = &step->window;
            const int64_t zeros = step->around[2 * d] + step->around[2 * d + 1] + 2 * window->pad_before[d];
            const int64_t whole = (d ? x->width : x->height) + zeros;
            const int64_t side = pools ? step->pool[d] : step->w->shape[2 + d];
            const int64_t reach = window->dilation[d] * (side - 1) + 1, before = window->pad_before[d];
            if ((pools && (side < 1 || window->dilation[d] != 1 || before < 0 || before > side / 2 ||
                           step->around[2 * d] || step->around[2 * d + 1])) ||
                window->stride[d] < 1 || window->dilation[d] < 1 || whole < reach || zeros < 0 || zeros > 1 << 30 ||
                (step->around[2 * d] | step->around[2 * d + 1]) < 0 || (x->is_known && step->around[2 * d]) ||
                (x->is_known && step->around[2 * d + 1]))
                return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain has an invalid window", i);
            size[d] = (whole - reach) / window->stride[d] + 1;
            if (!hc_mul_size(padded, x->is_known ? whole - zeros : whole, &padded) || padded > INT32_MAX)
                return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain reads more than 2^31 - 1 values", i);
        }
        *y = (hc_tensor){
            .channels = pools ? x->channels : step->w->shape[0], .height = size[0], .width = size[1], .last = i};
        const hc_tensor *plus = step->plus >= 0 ? &chain->tensors[step->plus] : NULL;
        if (plus && (plus->channels != y->channels || plus->height != y->height || plus->width != y->width))
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain adds a tensor of another shape", i);
        if (step->out.data &&
            (step->out.ndim != 4 || step->out.dtype != HC_F32 || step->out.shape[0] != chain->inputs[0].shape[0] ||
             step->out.shape[1] != y->channels || step->out.shape[2] != y->height || step->out.shape[3] != y->width))
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain has a result of another shape", i);
        int64_t values = 0;
        if (!hc_mul_size(y->channels, y->height, &values) || !hc_mul_size(values, y->width, &values) ||
            values > INT32_MAX)
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain has more than 2^31 - 1 values", i);
        x->last = i;
        if (step->plus >= 0)
            chain->tensors[step->plus].last = i;
    }
    return HC_OK;
}

/* Which steps are computed by algorithms that link, and which tensors are needed as values. */
static hc_status choose(hc_chain *chain, hc_error *error) {
    for (int i = 0; i < chain->n_steps; i++) {
        const hc_conv_step *step = &chain->steps[i];
        const hc_tensor *x = &chain->tensors[step->from];
        hc_tensor *y = &chain->tensors[chain->n_inputs + i];
        int64_t around[4];
        around_of(step, around);
        y->keeps = step->out.data != NULL;
        if (!step->w)
            continue;
        const hc_operand w = {.packed = step->w};
        const hc_view view = x->is_known
                                 ? chain->inputs[step->from]
                                 : hc_pixels_view(chain->inputs[0].data, x->channels, x->height + around[0] + around[1],
                                                  x->width + around[2] + around[3]);
        hc_view one = view;
        one.shape[0] = 1;
        const hc_view out = hc_pixels_view(chain->inputs[0].data, y->channels, y->height, y->width);
        hc_window window = step->window;
        if (!x->is_known)
            window.pad_before[0] = window.pad_before[1] = 0;
        hc_convolution conv = convolution_of(chain, step, &w, NULL, &one, &window, &out);
        const hc_status status = hc_check_conv2d(&one, &w, NULL, &window, step->activations, &out, &conv.shape, error);
        if (status != HC_OK)
            return status;
        conv.order = hc_conv_order_of(&conv);
        if (conv.order == HC_CONV_FLOATS)
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain does not round its input", i);
        chain->links[i] = hc_conv_links(&conv);
        y->guesses = chain->links[i] >= 0 && step->clamps && step->high > 0 && step->high < (float)HUGE_VAL &&
                     step->low >= -step->high;
    }
    for (int i = 0; i < chain->n_steps; i++) {
        const hc_conv_step *step = &chain->steps[i];
        hc_tensor *x = &chain->tensors[step->from];
        int64_t around[4];
        around_of(step, around);
        if (step->plus >= 0)
            chain->tensors[step->plus].keeps = true;
        if (chain->links[i] < 0)
            x->keeps = true;
        else if (x->scale == 0 && !x->is_known) /* the first reader */
            memcpy(x->around, around, sizeof around), x->scale = 1;
        else if (!same(x->around, around))
            x->keeps = true;
        if (chain->links[i] < 0)
            x->guesses = false;
    }
    for (int i = 0; i < chain->n_inputs + chain->n_steps; i++) /* codes that no step reads */
        chain->tensors[i].guesses = chain->tensors[i].guesses && chain->tensors[i].scale != 0;
    return HC_OK;
}

static hc_status run_image(hc_chain *chain, int64_t image, hc_error *error) {
    const int n = chain->n_inputs + chain->n_steps;
    hc_status status = HC_OK;
    for (int i = 0; i < n; i++)
        hc_tensor_leave(&chain->tensors[i]);
    for (int i = 0; i < chain->n_inputs; i++) {
        hc_view *view = &chain->tensors[i].view;
        *view = chain->inputs[i];
        view->data = (char *)view->data + image * view->strides[0];
        view->shape[0] = 1;
    }
    for (int i = 0; i < chain->n_steps && status == HC_OK; i++) {
        status = run_step(chain, i, error);
        hc_tensor *y = &chain->tensors[chain->n_inputs + i];
        const hc_view *out = &chain->steps[i].out;
        if (status == HC_OK && out->data) {
            hc_tensor_planes(chain, y, (float *)out->data + image * y->channels * y->height * y->width);
        }
        for (int t = 0; t <= chain->n_inputs + i; t++)
            if (chain->tensors[t].last == i)
                hc_tensor_leave(&chain->tensors[t]);
    }
    return status;
}

hc_status hc_conv_chain(const hc_run *run, int n_inputs, const hc_view *inputs, int n_steps, hc_conv_step *steps,
                        hc_error *error) {
    if (n_inputs < 1 || n_steps < 1 || n_inputs > MOST_STEPS || n_steps > MOST_STEPS)
        return hc_fail(error, HC_VALUE, "conv2d: a chain has %d inputs and %d steps", n_inputs, n_steps);
    const int64_t n = n_inputs + n_steps, at_rooms = n * (int64_t)sizeof(hc_tensor);
    const int64_t at_links = at_rooms + 3 * n * (int64_t)sizeof(hc_room);
    uint8_t *memory = hc_alloc_aligned(at_links + n_steps * (int64_t)sizeof(int));
    if (!memory)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for a chain");
    hc_chain chain = {.run = run,
                      .n_inputs = n_inputs,
                      .n_steps = n_steps,
                      .inputs = inputs,
                      .steps = steps,
                      .tensors = (hc_tensor *)(void *)memory,
                      .rooms = (hc_room *)(void *)(memory + at_rooms),
                      .most_rooms = 3 * (int)n,
                      .links = (int *)(void *)(memory + at_links)};
    for (int i = 0; i < n_steps; i++)
        chain.links[i] = -1;
    hc_status status = plan(&chain, error);
    if (status == HC_OK)
        status = choose(&chain, error);
    for (int64_t image = 0; status == HC_OK && image < inputs[0].shape[0]; image++)
        status = run_image(&chain, image, error);
    for (int i = 0; i < chain.n_rooms; i++)
        hc_free_aligned(chain.rooms[i].data);
    hc_free_aligned(memory);
    return status;
}
