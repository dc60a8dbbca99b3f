/* Convolutions one after the other (hc_conv_chain), one image at a time. A tensor between two steps is (h, w, channel):
 * values, or the padded codes that the next convolution reads, or both.
 *
 * The scale of codes depends on the largest magnitude of all results, so that values are kept and then rounded. If results
 * are clamped, the largest magnitude often is the limit itself. A step may then guess so: it rounds its results as they are
 * computed, and repeats the convolution with values if the guess was wrong.
 *
 * Memory: the tensors that are still needed, and those of one convolution.
 */
#include "base/convert.h"
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/quantized/images.h"

#include <math.h>
#include <string.h>

enum { ZERO = 128, SLACK = 64, ROWS = 16, MOST_STEPS = 4096, INFINITE = 0x7f800000 /* bits */ };

typedef struct {
    void *data;
    int64_t bytes;
    bool used;
} hc_room;

typedef struct {
    int64_t channels, height, width;
    int last;            /* step that reads it last */
    bool is_known;       /* an input */
    bool keeps, guesses; /* whether values are needed besides codes; whether codes may be guessed */
    int64_t around[4];   /* zeros in the codes */
    hc_view view;        /* of the image at hand: (1, channel, h, w) */
    float *values;       /* or NULL: an input that is read as it is */
    uint8_t *codes;      /* or NULL */
    float scale;         /* of the codes */
    uint32_t largest;    /* bits of the largest magnitude */
    hc_room *of_values, *of_codes;
} hc_tensor;

typedef struct {
    const hc_run *run;
    int n_inputs, n_steps;
    const hc_view *inputs;
    hc_conv_step *steps;
    hc_tensor *tensors;
    hc_room *rooms;
    int n_rooms, most_rooms; /* more than are used at a time */
    bool *links;             /* of each step */
} hc_chain;

static hc_room *room_of(hc_chain *chain, int64_t bytes) {
    hc_room *best = NULL;
    for (int i = 0; i < chain->n_rooms; i++) {
        hc_room *one = &chain->rooms[i];
        if (!one->used && one->bytes >= bytes && (!best || one->bytes < best->bytes))
            best = one;
    }
    if (chain->n_rooms < chain->most_rooms ? !best || best->bytes > 8 * bytes : !best) {
        hc_room *free = NULL;
        for (int i = 0; i < chain->n_rooms && chain->n_rooms == chain->most_rooms; i++)
            free = chain->rooms[i].used ? free : &chain->rooms[i];
        void *data = hc_alloc_aligned(bytes);
        if (!data)
            return NULL;
        if (free)
            hc_free_aligned(free->data);
        best = free ? free : &chain->rooms[chain->n_rooms++];
        *best = (hc_room){.data = data, .bytes = bytes};
    }
    best->used = true;
    return best;
}

static void leave_codes(hc_tensor *t) {
    if (t->of_codes)
        t->of_codes->used = false;
    t->of_codes = NULL;
    t->codes = NULL;
}

static void leave(hc_tensor *t) {
    leave_codes(t);
    if (t->of_values)
        t->of_values->used = false;
    t->of_values = NULL;
    t->values = NULL;
}

/* A view (1, channel, h, w) of contiguous values (h, w, channel). */
static hc_view pixels_of(void *data, int64_t channels, int64_t height, int64_t width) {
    const int64_t size = sizeof(float), pixel = channels * size;
    return (hc_view){.data = data,
                     .dtype = HC_F32,
                     .ndim = 4,
                     .shape = {1, channels, height, width},
                     .strides = {height * width * pixel, size, width * pixel, pixel}};
}

static int64_t codes_line(const hc_tensor *t) { return (t->width + t->around[2] + t->around[3]) * t->channels; }
static uint8_t *codes_at(const hc_tensor *t, int64_t line) {
    return t->codes + (line + t->around[0]) * codes_line(t) + t->around[2] * t->channels;
}

static void around_task(void *context, int64_t line, int thread) {
    (void)thread;
    const hc_tensor *t = context;
    const int64_t all = codes_line(t), own = t->width * t->channels, h = line - t->around[0];
    uint8_t *to = t->codes + line * all;
    if (h < 0 || h >= t->height) {
        memset(to, ZERO, (size_t)all);
        return;
    }
    const int64_t left = t->around[2] * t->channels;
    memset(to, ZERO, (size_t)left);
    memset(to + left + own, ZERO, (size_t)(all - left - own));
}

/* Memory for codes, with zeros around them. */
static bool has_codes(hc_chain *chain, hc_tensor *t) {
    const int64_t lines = t->height + t->around[0] + t->around[1], bytes = lines * codes_line(t);
    t->of_codes = room_of(chain, bytes + SLACK);
    if (!t->of_codes)
        return false;
    t->codes = t->of_codes->data;
    memset(t->codes + bytes, 0, SLACK);
    for (int64_t line = 0; line < lines; line++)
        around_task(t, line, 0);
    return true;
}

static bool has_values(hc_chain *chain, hc_tensor *t) {
    t->of_values = room_of(chain, t->channels * t->height * t->width * (int64_t)sizeof(float));
    t->values = t->of_values ? t->of_values->data : NULL;
    t->view = pixels_of(t->values, t->channels, t->height, t->width);
    return t->values;
}

typedef struct {
    const hc_run *run;
    hc_tensor *t;
} hc_tensor_job;

static void round_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_tensor_job *job = context;
    const hc_tensor *t = job->t;
    const int64_t n = t->width * t->channels;
    HC_PICK(codes_s8, job->run)(t->values + h * n, n, t->scale, HC_PANEL_U8, codes_at(t, h));
}

static void turn_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_tensor_job *job = context;
    const hc_tensor *t = job->t;
    const hc_view *v = &t->view;
    float *to = t->values + h * t->width * t->channels;
    const char *from = (const char *)v->data + h * v->strides[2];
    for (int64_t w = 0; w < t->width; w++)
        for (int64_t c = 0; c < t->channels; c++)
            memcpy(to + w * t->channels + c, from + w * v->strides[3] + c * v->strides[1], sizeof(float));
}

/* Values of a tensor whose view is an input's. */
static bool turned(hc_chain *chain, hc_tensor *t) {
    const hc_view view = t->view;
    if (!has_values(chain, t))
        return false;
    t->view = view;
    hc_tensor_job job = {chain->run, t};
    hc_parallel(chain->run->n_threads, t->height, turn_task, &job);
    t->view = pixels_of(t->values, t->channels, t->height, t->width);
    return true;
}

typedef struct {
    const hc_run *run;
    const hc_tensor *t;
    float *to;
} hc_planes_job;

/* ROWS pixels of all channels, as planes. */
static void planes_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_planes_job *job = context;
    const hc_tensor *t = job->t;
    const int64_t pixels = t->height * t->width, first = task * ROWS, n = hc_min(ROWS, pixels - first);
    HC_PICK(pack_x32, job->run)
    (t->values + first * t->channels, t->channels * (int64_t)sizeof(float), (int)n, t->channels, job->to + first,
     (int)pixels, 0);
}

typedef struct {
    const hc_run *run;
    const hc_tensor *t;
    const hc_link_steps *steps;
    const float *plus;
    uint32_t *largest; /* of each line */
} hc_finish_job;

static void finish_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_finish_job *job = context;
    const int64_t depth = job->t->channels, at = h * job->t->width * depth;
    job->largest[h] = HC_PICK(link_f32, job->run)(job->t->width, depth, job->t->values + at, depth, job->steps, NULL,
                                                  job->plus ? job->plus + at : NULL, depth, 0);
}

static bool finish(hc_chain *chain, hc_tensor *t, const hc_link_steps *steps, const float *plus) {
    uint32_t *largest = hc_alloc_aligned(t->height * (int64_t)sizeof *largest);
    if (!largest)
        return false;
    hc_finish_job job = {chain->run, t, steps, plus, largest};
    hc_parallel(chain->run->n_threads, t->height, finish_task, &job);
    t->largest = 0;
    for (int64_t h = 0; h < t->height; h++)
        t->largest = largest[h] > t->largest ? largest[h] : t->largest;
    hc_free_aligned(largest);
    return true;
}

/* Values with the zeros of a step around them, for a convolution that does not read codes. */
static hc_status widened(hc_chain *chain, const hc_tensor *t, const int64_t around[4], hc_room **room, hc_view *view,
                         hc_error *error) {
    const int64_t height = t->height + around[0] + around[1], width = t->width + around[2] + around[3];
    *room = room_of(chain, height * width * t->channels * (int64_t)sizeof(float));
    if (!*room)
        return hc_fail(error, HC_MEMORY, "conv2d: not enough memory for a tensor");
    float *to = (*room)->data;
    memset(to, 0, (size_t)(height * width * t->channels) * sizeof *to);
    for (int64_t h = 0; h < t->height; h++)
        memcpy(to + ((h + around[0]) * width + around[2]) * t->channels, t->values + h * t->width * t->channels,
               (size_t)(t->width * t->channels) * sizeof *to);
    *view = pixels_of(to, t->channels, height, width);
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

/* The convolution of step `i`. */
static hc_status run_step(hc_chain *chain, int i, hc_error *error) {
    hc_conv_step *step = &chain->steps[i];
    hc_tensor *x = &chain->tensors[step->from], *y = &chain->tensors[chain->n_inputs + i];
    hc_tensor *other = step->plus >= 0 ? &chain->tensors[step->plus] : NULL;
    const hc_operand w = {.packed = step->w};
    const hc_view bias = {
        .data = (void *)step->bias, .dtype = HC_F32, .ndim = 1, .shape = {y->channels}, .strides = {sizeof(float)}};
    const hc_link_steps steps = {step->clamps, step->low, step->high};
    const hc_status none = HC_MEMORY;
    void *nowhere = chain->inputs[0].data; /* of results that are codes alone */
    hc_window window = step->window;
    hc_view seen = x->view;
    hc_room *room = NULL;
    hc_status status = HC_OK;
    if (other && !other->values && !turned(chain, other))
        return hc_fail(error, none, "conv2d: not enough memory for a tensor");
    hc_conv_link link = {.steps = steps, .plus = other ? other->values : NULL};
    if (chain->links[i] && !x->is_known) {
        int64_t around[4];
        around_of(step, around);
        if (x->codes && !same(around, x->around))
            leave_codes(x);
        if (!x->codes) {
            HC_ASSERT(x->values);
            memcpy(x->around, around, sizeof around);
            if (!has_codes(chain, x))
                return hc_fail(error, none, "conv2d: not enough memory for a tensor");
            x->scale = hc_f32_from_bits(x->largest) / HC_LINE_LARGEST;
            hc_tensor_job job = {chain->run, x};
            hc_parallel(chain->run->n_threads, x->height, round_task, &job);
        }
        link.codes = x->codes;
        link.line = codes_line(x);
        link.scale = x->scale;
        seen = pixels_of(x->codes, x->channels, x->height + around[0] + around[1], x->width + around[2] + around[3]);
        window.pad_before[0] = window.pad_before[1] = 0;
    } else if (step->around[0] || step->around[1] || step->around[2] || step->around[3]) {
        status = widened(chain, x, step->around, &room, &seen, error);
    }
    const bool guesses = y->guesses && step->guess;
    for (int attempt = guesses ? 0 : 1; status == HC_OK && attempt < 2; attempt++) {
        link.largest = 0;
        link.floats = attempt == 1 || y->keeps;
        if (link.floats && !y->values && !has_values(chain, y))
            status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
        if (attempt == 0 && status == HC_OK) {
            if (!has_codes(chain, y))
                status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
            link.to = y->codes ? codes_at(y, 0) : NULL;
            link.to_line = codes_line(y);
            link.to_scale = y->scale = step->high / HC_LINE_LARGEST;
        }
        if (status != HC_OK)
            break;
        const hc_view out = link.floats ? y->view : pixels_of(nowhere, y->channels, y->height, y->width);
        if (chain->links[i]) {
            hc_convolution conv = convolution_of(chain, step, &w, &bias, &seen, &window, &out);
            conv.link = &link;
            status = hc_conv_linked(&conv, error);
            y->largest = link.largest;
        } else {
            status = hc_conv2d(chain->run, &seen, &w, step->bias ? &bias : NULL, &window, NULL, step->activations, &out,
                               error);
            if (status == HC_OK && !finish(chain, y, &steps, link.plus))
                status = hc_fail(error, none, "conv2d: not enough memory for a tensor");
        }
        if (attempt == 0 && status == HC_OK) {
            if (y->largest == hc_f32_bits(step->high))
                break;
            step->guess = false;
            leave_codes(y);
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
        if (step->from < 0 || step->from >= here || step->plus >= here || !step->activations || step->w->ndim != 4)
            return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain reads a tensor that is not there", i);
        hc_tensor *x = &chain->tensors[step->from];
        int64_t size[2], padded = x->channels; /* values */
        for (int d = 0; d < 2; d++) {
            const hc_window *window = &step->window;
            const int64_t zeros = step->around[2 * d] + step->around[2 * d + 1] + 2 * window->pad_before[d];
            const int64_t whole = (d ? x->width : x->height) + zeros;
            const int64_t reach = window->dilation[d] * (step->w->shape[2 + d] - 1) + 1;
            if (window->stride[d] < 1 || window->dilation[d] < 1 || whole < reach || zeros < 0 || zeros > 1 << 30 ||
                (step->around[2 * d] | step->around[2 * d + 1]) < 0 || (x->is_known && step->around[2 * d]) ||
                (x->is_known && step->around[2 * d + 1]))
                return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain has an invalid window", i);
            size[d] = (whole - reach) / window->stride[d] + 1;
            if (!hc_mul_size(padded, x->is_known ? whole - zeros : whole, &padded) || padded > INT32_MAX)
                return hc_fail(error, HC_VALUE, "conv2d: step %d of a chain reads more than 2^31 - 1 values", i);
        }
        *y = (hc_tensor){.channels = step->w->shape[0], .height = size[0], .width = size[1], .last = i};
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
        const hc_operand w = {.packed = step->w};
        const hc_view view = x->is_known
                                 ? chain->inputs[step->from]
                                 : pixels_of(chain->inputs[0].data, x->channels, x->height + around[0] + around[1],
                                             x->width + around[2] + around[3]);
        hc_view one = view;
        one.shape[0] = 1;
        const hc_view out = pixels_of(chain->inputs[0].data, y->channels, y->height, y->width);
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
        y->keeps = step->out.data != NULL;
        y->guesses = chain->links[i] && step->clamps && step->high > 0 && step->high < (float)HUGE_VAL &&
                     step->low >= -step->high;
    }
    for (int i = 0; i < chain->n_steps; i++) {
        const hc_conv_step *step = &chain->steps[i];
        hc_tensor *x = &chain->tensors[step->from];
        int64_t around[4];
        around_of(step, around);
        if (step->plus >= 0)
            chain->tensors[step->plus].keeps = true;
        if (!chain->links[i])
            x->keeps = true;
        else if (x->scale == 0 && !x->is_known) /* the first reader */
            memcpy(x->around, around, sizeof around), x->scale = 1;
        else if (!same(x->around, around))
            x->keeps = true;
        if (!chain->links[i])
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
        leave(&chain->tensors[i]);
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
            const int64_t pixels = y->height * y->width;
            hc_planes_job job = {chain->run, y, (float *)out->data + image * y->channels * pixels};
            hc_parallel(chain->run->n_threads, hc_ceil_div(pixels, ROWS), planes_task, &job);
        }
        for (int t = 0; t <= chain->n_inputs + i; t++)
            if (chain->tensors[t].last == i)
                leave(&chain->tensors[t]);
    }
    return status;
}

hc_status hc_conv_chain(const hc_run *run, int n_inputs, const hc_view *inputs, int n_steps, hc_conv_step *steps,
                        hc_error *error) {
    if (n_inputs < 1 || n_steps < 1 || n_inputs > MOST_STEPS || n_steps > MOST_STEPS)
        return hc_fail(error, HC_VALUE, "conv2d: a chain has %d inputs and %d steps", n_inputs, n_steps);
    const int64_t n = n_inputs + n_steps, at_rooms = n * (int64_t)sizeof(hc_tensor);
    const int64_t at_links = at_rooms + 3 * n * (int64_t)sizeof(hc_room);
    uint8_t *memory = hc_alloc_aligned(at_links + n_steps);
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
                      .links = (bool *)(memory + at_links)};
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
