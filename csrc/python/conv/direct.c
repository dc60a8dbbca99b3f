/* Convolutions of plain arguments in one step, as matmuls in direct.c: None, without side effects, if an argument is
 * anything else or is refused. The general path (heterocompute/products/conv.py) then handles the call.
 */
#include "python/call.h"
#include "python/methods.h"

enum { N_ARGUMENTS = 14, MOST = 1 << 30 };

/* An int; no bool and no other type. -1 for anything else and for negative and large values. */
static int64_t count_of(PyObject *object) {
    if (!PyLong_CheckExact(object))
        return -1;
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow || value < 0 || value > MOST ? -1 : value;
}

/* Two counts of at least `least`, given as one or as a tuple. */
static bool pair_of(PyObject *object, int64_t least, int64_t pair[2]) {
    const bool is_pair = PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2;
    pair[0] = count_of(is_pair ? PyTuple_GET_ITEM(object, 0) : object);
    pair[1] = is_pair ? count_of(PyTuple_GET_ITEM(object, 1)) : pair[0];
    return pair[0] >= least && pair[1] >= least;
}

/* 0 or 1 for the first and second word, otherwise -1. */
static int word_of(PyObject *object, const char *first, const char *second) {
    if (!PyUnicode_CheckExact(object))
        return -1;
    return PyUnicode_CompareWithASCIIString(object, first) == 0    ? 0
           : PyUnicode_CompareWithASCIIString(object, second) == 0 ? 1
                                                                   : -1;
}

/* Padding before and after the rows and the columns. Words are left to the general path. */
static bool padding_of(PyObject *object, int64_t before[2], int64_t after[2]) {
    const bool is_pair = PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2;
    if (is_pair && PyTuple_CheckExact(PyTuple_GET_ITEM(object, 0))) {
        int64_t rows[2], columns[2];
        if (!pair_of(PyTuple_GET_ITEM(object, 0), 0, rows) || !PyTuple_CheckExact(PyTuple_GET_ITEM(object, 1)) ||
            !pair_of(PyTuple_GET_ITEM(object, 1), 0, columns))
            return false;
        before[0] = rows[0], after[0] = rows[1];
        before[1] = columns[0], after[1] = columns[1];
        return true;
    }
    if (!pair_of(object, 0, before))
        return false;
    after[0] = before[0], after[1] = before[1];
    return true;
}

typedef struct {
    hc_settings settings;
    hc_side side[2]; /* images and filters */
    hc_view bias;
    bool has_bias, has_format, is_nhwc, stopped;
    hc_format format;
    hc_window window;
    int64_t after[2]; /* padding */
    hc_conv_options options;
} hc_direct_conv;

/* Sizes of the answer (n, k, p, q); false if the general path has something to say. */
static bool shape_of(const hc_direct_conv *d, int64_t shape[4]) {
    const int64_t *filters = d->side[1].is_dense ? d->side[1].view.shape : d->side[1].packed.shape;
    const int64_t *images = d->side[0].view.shape;
    shape[0] = images[0];
    shape[1] = filters[0];
    for (int i = 0; i < 2; i++) {
        const int64_t taps = filters[2 + i], size = images[2 + i] + d->window.pad_before[i] + d->after[i];
        if (taps > INT32_MAX || (taps > 1 && d->window.dilation[i] > size))
            return false;
        const int64_t reach = d->window.dilation[i] * (taps - 1) + 1;
        if (reach > size)
            return false;
        shape[2 + i] = (size - reach) / d->window.stride[i] + 1;
    }
    return true;
}

static void put_channels_second(hc_view *view) {
    const int64_t size = view->shape[3], stride = view->strides[3];
    for (int i = 3; i > 1; i--) {
        view->shape[i] = view->shape[i - 1];
        view->strides[i] = view->strides[i - 1];
    }
    view->shape[1] = size;
    view->strides[1] = stride;
}

static bool parse(hc_direct_conv *d, PyObject *const *args, hc_held *held) {
    const int layout = word_of(args[10], "NCHW", "NHWC"), accuracy = word_of(args[13], "default", "strict");
    PyObject *algorithm = args[9], *relu = args[12];
    if (layout < 0 || accuracy < 0 || !PyUnicode_CheckExact(algorithm) || (relu != Py_True && relu != Py_False))
        return false;
    d->is_nhwc = layout == 1;
    d->options = (hc_conv_options){.strict = accuracy == 1, .relu = relu == Py_True};
    if (PyUnicode_CompareWithASCIIString(algorithm, "auto") != 0) {
        Py_ssize_t length;
        d->options.algorithm = PyUnicode_AsUTF8AndSize(algorithm, &length);
        if (!d->options.algorithm || (Py_ssize_t)strlen(d->options.algorithm) != length)
            return false;
    }
    d->has_bias = args[3] != Py_None;
    d->has_format = args[8] != Py_None;
    d->window.groups = count_of(args[7]);
    if (!pair_of(args[4], 1, d->window.stride) || !padding_of(args[5], d->window.pad_before, d->after) ||
        !pair_of(args[6], 1, d->window.dilation) || d->window.groups < 1 ||
        !hc_parse_settings(args[0], &d->settings, held))
        return false;
    hc_side *x = &d->side[0], *w = &d->side[1];
    if (d->settings.run.device != HC_HOST || !hc_side_as_given(args[1], x, held) || !x->is_dense || x->view.ndim != 4 ||
        !hc_side_as_given(args[2], w, held) || (w->is_dense ? w->view.ndim : w->packed.ndim) != 4)
        return false;
    if (d->is_nhwc)
        put_channels_second(&x->view);
    return (!d->has_format || hc_parse_format(args[8], &d->format)) &&
           (!d->has_bias || hc_bias_of(args[3], &d->bias, held));
}

/* All that the choice of an algorithm reads, for dense filters. Networks repeat their layers, and choosing takes as long
 * as a layer of 8 x 8 filters. */
typedef struct {
    int64_t isa, n_threads, one_order, strict, has_bias, relu, x_type, w_type;
    int64_t x[4], x_strides[4], w[4], w_strides[4], out[4], out_strides[4];
    hc_window window;
} hc_choice_key;

typedef struct {
    const char *algorithm; /* NULL: the place is empty */
    hc_choice_key key;
} hc_known_choice;

enum { BITS_OF_PLACES = 5 };
static _Thread_local hc_known_choice known_choices[1 << BITS_OF_PLACES];

static hc_choice_key key_of(const hc_direct_conv *d, const hc_view *w, const hc_view *out) {
    const hc_view *x = &d->side[0].view;
    hc_choice_key key = {.isa = d->settings.run.isa,
                         .n_threads = d->settings.run.n_threads,
                         .one_order = d->settings.run.one_order,
                         .strict = d->options.strict,
                         .has_bias = d->has_bias,
                         .relu = d->options.relu,
                         .x_type = x->dtype,
                         .w_type = w->dtype,
                         .window = d->window};
    const size_t four = 4 * sizeof(int64_t);
    memcpy(key.x, x->shape, four), memcpy(key.x_strides, x->strides, four);
    memcpy(key.w, w->shape, four), memcpy(key.w_strides, w->strides, four);
    memcpy(key.out, out->shape, four), memcpy(key.out_strides, out->strides, four);
    return key;
}

static hc_known_choice *place_of(const hc_choice_key *key) {
    uint64_t hash = (uint64_t)(key->isa + key->window.stride[1] + key->window.groups);
    for (int i = 0; i < 4; i++)
        hash = hash * 31 + (uint64_t)(key->x[i] * 7 + key->w[i] * 5 + key->x_strides[i] * 3 + key->out[i]);
    return &known_choices[(hash * 0x9e3779b97f4a7c15u) >> (64 - BITS_OF_PLACES)];
}

/* The algorithm that the core chooses for floats; NULL if it has to choose itself. It refuses a name that does not apply,
 * so that a wrong one would change no bit. */
static const char *known_algorithm(const hc_direct_conv *d, const hc_view *out) {
    const hc_operand *w = &d->side[1].operand;
    if (!w->dense || d->has_format || d->settings.run.path)
        return NULL;
    const hc_choice_key key = key_of(d, w->dense, out);
    hc_known_choice *known = place_of(&key);
    if (known->algorithm && memcmp(&known->key, &key, sizeof key) == 0)
        return known->algorithm;
    hc_error error;
    hc_status status;
    hc_conv_explanation found;
    const char *name, *what;
    double ratio;
    HC_WITHOUT_GIL(hc_explain_conv2d(&d->settings.run, &d->side[0].view, w, d->has_bias ? &d->bias : NULL, &d->window,
                                     &d->options, NULL, out, &found, &error));
    if (status != HC_OK || !hc_conv_algorithm(found.chosen, &name, &what, &ratio))
        return NULL;
    *known = (hc_known_choice){name, key};
    return name;
}

static PyObject *convolve(hc_direct_conv *d, PyObject *bias, PyObject *out_object) {
    int64_t shape[4];
    if (!shape_of(d, shape))
        return NULL;
    const int64_t given[4] = {shape[0], shape[d->is_nhwc ? 2 : 1], shape[d->is_nhwc ? 3 : 2],
                              shape[d->is_nhwc ? 1 : 3]};
    hc_view out;
    PyObject *answer = hc_answer_of(out_object, 4, given, d->side, bias, &out);
    if (!answer)
        return NULL;
    if (d->is_nhwc)
        put_channels_second(&out);
    const hc_operand *w = &d->side[1].operand;
    const int64_t *filters = w->dense ? w->dense->shape : w->packed->shape;
    double products = 1;
    for (int i = 0; i < 4; i++)
        products *= (double)shape[i] * (i > 0 ? (double)filters[i] : 1);
    d->settings.run.n_threads = hc_threads_for(d->settings.run.n_threads, products);
    if (!d->options.algorithm)
        d->options.algorithm = known_algorithm(d, &out);
    if (PyErr_Occurred()) { /* a signal */
        d->stopped = true;
        Py_DECREF(answer);
        return NULL;
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_conv2d(&d->settings.run, &d->side[0].view, w, d->has_bias ? &d->bias : NULL, &d->window,
                             &d->options, d->has_format ? &d->format : NULL, &out, &error));
    d->stopped = status == HC_STOPPED || PyErr_Occurred();
    if (status == HC_MEMORY) {
        hc_raise(status, &error);
        d->stopped = true;
    }
    if (status != HC_OK)
        Py_CLEAR(answer);
    return answer;
}

PyObject *hc_direct_conv2d_method(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (n != N_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "direct_conv2d: expected %d arguments, got %zd", (int)N_ARGUMENTS, n);
    hc_direct_conv d;
    hc_held held = {.count = 0};
    d.stopped = false;
    PyObject *answer = parse(&d, args, &held) ? convolve(&d, args[3], args[11]) : NULL;
    hc_release(&held);
    if (answer || d.stopped)
        return answer;
    hc_forget();
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
