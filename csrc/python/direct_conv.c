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
    const double products =
        (double)(filters[1] * filters[2] * filters[3]) * (double)(shape[0] * shape[1]) * (double)(shape[2] * shape[3]);
    d->settings.run.n_threads = hc_threads_for(d->settings.run.n_threads, products);
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
