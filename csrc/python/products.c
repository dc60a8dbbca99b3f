/* The binding of matmuls and convolutions: parse -> view -> release the GIL -> call -> status. */
#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

/* An array, or the tuple of a packed array, which begins with its format. */
typedef struct {
    hc_view view;
    hc_packed packed;
    hc_operand operand;
} hc_argument;

static int parse_operand(PyObject *object, const char *name, hc_argument *argument, hc_held *held) {
    argument->operand = (hc_operand){0};
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) > 0 && PyTuple_Check(PyTuple_GET_ITEM(object, 0))) {
        argument->operand.packed = &argument->packed;
        return hc_parse_packed(object, name, false, &argument->packed, held);
    }
    argument->operand.dense = &argument->view;
    return hc_parse_view(object, name, &argument->view, held);
}

PyObject *hc_matmul_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *a_object, *b_object, *format_object, *bias_object, *out_object;
    hc_settings settings;
    hc_argument a, b;
    hc_format activations;
    hc_view bias, out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO", &run_object, &a_object, &b_object, &format_object, &bias_object,
                          &out_object) ||
        !hc_parse_call(run_object, &settings, &held) || !parse_operand(a_object, "matmul: a", &a, &held) ||
        !parse_operand(b_object, "matmul: b", &b, &held) ||
        (format_object != Py_None && !hc_parse_format(format_object, &activations)) ||
        (bias_object != Py_None && !hc_parse_view(bias_object, "linear: bias", &bias, &held)) ||
        !hc_parse_view(out_object, "matmul: out", &out, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    do
        HC_WITHOUT_GIL(hc_matmul(&settings.run, &a.operand, &b.operand, format_object != Py_None ? &activations : NULL,
                                 bias_object != Py_None ? &bias : NULL, &out, &error));
    while (status == HC_OK && hc_cuda_lends(&settings));
    return settings.run.device == HC_HOST ? hc_finish(status, &error, &held)
                                          : hc_cuda_answer(&settings, status, &error, &held);
}

PyObject *hc_matmul_shape_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *a_object, *b_object;
    const char *name;
    int64_t a[HC_MAX_DIMS], b[HC_MAX_DIMS], shape[HC_MAX_DIMS];
    int a_ndim, b_ndim, ndim;
    hc_error error;
    if (!PyArg_ParseTuple(args, "sOO", &name, &a_object, &b_object) || !hc_parse_sizes(a_object, "a", a, &a_ndim) ||
        !hc_parse_sizes(b_object, "b", b, &b_ndim))
        return NULL;
    const hc_status status = hc_matmul_shape(name, a_ndim, a, b_ndim, b, &ndim, shape, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    PyObject *tuple = PyTuple_New(ndim);
    for (int i = 0; tuple && i < ndim; i++) {
        PyObject *size = PyLong_FromLongLong(shape[i]);
        if (!size) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, size);
    }
    return tuple;
}

/* (chosen, candidates, None): the paths of the CPU launch no kernels of a device. */
static PyObject *candidates_of(const hc_explanation *found) {
    PyObject *candidates = PyList_New(found->n);
    for (int i = 0; candidates && i < found->n; i++) {
        const hc_work *work = &found->candidate[i].work;
        PyObject *one = Py_BuildValue("(sszds(ddddddddd))", found->candidate[i].path, found->candidate[i].what,
                                      found->candidate[i].reason, found->candidate[i].seconds, found->candidate[i].id,
                                      work->codes, work->decoded, work->unpacked, work->limbs, work->spread,
                                      work->products, work->wide, work->groups, work->values);
        if (!one)
            Py_CLEAR(candidates);
        else
            PyList_SET_ITEM(candidates, i, one);
    }
    return candidates ? Py_BuildValue("(iNO)", found->chosen, candidates, Py_None) : NULL;
}

PyObject *hc_explain_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *a_object, *b_object, *format_object, *out_object;
    hc_settings settings;
    hc_argument a, b;
    hc_format activations;
    hc_view out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOO", &run_object, &a_object, &b_object, &format_object, &out_object) ||
        !hc_parse_call(run_object, &settings, &held) || !parse_operand(a_object, "matmul: a", &a, &held) ||
        !parse_operand(b_object, "matmul: b", &b, &held) ||
        (format_object != Py_None && !hc_parse_format(format_object, &activations)) ||
        !hc_parse_view(out_object, "matmul: out", &out, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    hc_explanation found;
    HC_WITHOUT_GIL(hc_explain(&settings.run, &a.operand, &b.operand, format_object != Py_None ? &activations : NULL,
                              &out, &found, &error));
    hc_release(&held);
    if (status != HC_OK)
        return hc_raise(status, &error);
    PyObject *paths;
    if (settings.run.device == HC_HOST) {
        paths = candidates_of(&found);
    } else { /* its route does not refuse */
        hc_cuda_call call = {.n = 0};
        hc_cuda_fill_matmul(&call, &a.operand, format_object != Py_None ? &activations : NULL, b.operand.packed, NULL,
                            &out);
        paths = hc_cuda_explain(&settings, &call);
    }
    PyObject *routes = paths ? PyList_New(found.n_routes) : NULL;
    for (int i = 0; routes && i < found.n_routes; i++) {
        PyObject *one = Py_BuildValue("(sszd)", found.of_route[i].name, found.of_route[i].what,
                                      found.of_route[i].reason, found.of_route[i].seconds);
        if (!one)
            Py_CLEAR(routes);
        else
            PyList_SET_ITEM(routes, i, one);
    }
    return paths ? Py_BuildValue("(iNN)", found.route, routes, paths) : NULL;
}

static PyObject *names_of(const char *(*name_of)(int number)) {
    PyObject *names = PyList_New(0);
    const char *text;
    for (int i = 0; names && (text = name_of(i)) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(text);
        if (!name || PyList_Append(names, name) != 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

PyObject *hc_paths_method(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return Py_BuildValue("(NN)", names_of(hc_path_name), names_of(hc_cuda_path_name));
}

/* The arguments of a convolution, parsed. */
typedef struct {
    hc_settings settings;
    hc_view x, bias, out;
    hc_argument w;
    hc_format activations;
    hc_window window;
    hc_conv_options options;
    bool has_bias, has_activations;
    PyObject *ready; /* a dict: panels of these filters by form, or NULL */
    hc_held held;
} hc_conv_arguments;

static bool parse_conv(PyObject *args, hc_conv_arguments *a) {
    PyObject *run_object, *x_object, *w_object, *bias_object, *format_object, *out_object, *filters = Py_None;
    long long s0, s1, p0, p1, d0, d1, groups;
    int strict = 0, relu = 0;
    *a = (hc_conv_arguments){.held = {.count = 0}};
    if (!PyArg_ParseTuple(args, "OOOO(LL)(LL)(LL)LOO|zppO", &run_object, &x_object, &w_object, &bias_object, &s0, &s1,
                          &p0, &p1, &d0, &d1, &groups, &format_object, &out_object, &a->options.algorithm, &strict,
                          &relu, &filters))
        return false;
    if (filters != Py_None && !PyDict_Check(filters)) {
        PyErr_SetString(PyExc_TypeError, "conv2d: panels are not a dict");
        return false;
    }
    a->ready = filters == Py_None ? NULL : filters;
    a->window = (hc_window){.stride = {s0, s1}, .pad_before = {p0, p1}, .dilation = {d0, d1}, .groups = groups};
    a->options.strict = strict;
    a->options.relu = relu;
    a->has_bias = bias_object != Py_None;
    a->has_activations = format_object != Py_None;
    return hc_parse_call(run_object, &a->settings, &a->held) && hc_parse_view(x_object, "conv2d: x", &a->x, &a->held) &&
           parse_operand(w_object, "conv2d: w", &a->w, &a->held) &&
           (!a->has_activations || hc_parse_format(format_object, &a->activations)) &&
           (!a->has_bias || hc_parse_view(bias_object, "conv2d: bias", &a->bias, &a->held)) &&
           hc_parse_view(out_object, "conv2d: out", &a->out, &a->held);
}

static void free_prepacked_filters(PyObject *capsule) {
    hc_prepacked_filters_free(PyCapsule_GetPointer(capsule, HC_PREPACKED_FILTERS_CAPSULE));
}

/* Packs filters in this form and keeps them: (capsule, bytes, instruction sets). NULL with an error set. */
static PyObject *pack_filters(const hc_conv_arguments *a, PyObject *form) {
    hc_error error;
    hc_status status;
    hc_prepacked_filters *filters = NULL;
    HC_WITHOUT_GIL(hc_prepack_filters(&a->settings.run, &a->x, &a->w.operand, a->has_bias ? &a->bias : NULL, &a->window,
                                      &a->options, a->has_activations ? &a->activations : NULL, &a->out, &filters,
                                      &error));
    if (status != HC_OK) {
        hc_prepacked_filters_free(filters);
        return hc_raise(status, &error);
    }
    PyObject *capsule = PyCapsule_New(filters, HC_PREPACKED_FILTERS_CAPSULE, free_prepacked_filters);
    if (!capsule) {
        hc_prepacked_filters_free(filters);
        return NULL;
    }
    PyObject *entry = Py_BuildValue("(NLk)", capsule, (long long)hc_prepacked_filters_bytes(filters),
                                    (unsigned long)a->settings.run.isa);
    /* Two threads may both pack; either result is correct. */
    if (entry && PyDict_SetItem(a->ready, form, entry) != 0)
        Py_CLEAR(entry);
    return entry;
}

/* Makes a convolution use panels that exist or are packed now; false with an error set. */
static bool use_panels(hc_conv_arguments *a) {
    hc_error error;
    hc_filter_form form;
    const hc_status status =
        hc_form_of_filters(&a->settings.run, &a->x, &a->w.operand, a->has_bias ? &a->bias : NULL, &a->window,
                           &a->options, a->has_activations ? &a->activations : NULL, &a->out, &form, &error);
    if (status != HC_OK)
        return hc_raise(status, &error) != NULL;
    if (!form.panels)
        return true;
    PyObject *key = PyBytes_FromStringAndSize((const char *)&form, sizeof form);
    PyObject *entry = key ? Py_XNewRef(PyDict_GetItemWithError(a->ready, key)) : NULL;
    if (key && !entry && !PyErr_Occurred())
        entry = pack_filters(a, key);
    Py_XDECREF(key);
    const bool found = entry && PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) > 0 && hc_hold(&a->held, entry);
    if (found)
        a->options.filters = PyCapsule_GetPointer(PyTuple_GET_ITEM(entry, 0), HC_PREPACKED_FILTERS_CAPSULE);
    Py_XDECREF(entry);
    return found && a->options.filters;
}

static hc_cuda_call device_conv(const hc_conv_arguments *a) {
    return (hc_cuda_call){.what = CONV2D,
                          .x = a->x,
                          .activations = a->has_activations ? &a->activations : NULL,
                          .packed = a->w.packed,
                          .window = a->window,
                          .relu = a->options.relu,
                          .bias = a->has_bias ? a->bias.data : NULL,
                          .out = a->out};
}

PyObject *hc_conv2d_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_conv_arguments a;
    if (!parse_conv(args, &a))
        return hc_give_up(&a.held);
    if (a.settings.run.device != HC_HOST) {
        const hc_cuda_call call = device_conv(&a);
        return hc_cuda_finish(&a.settings, &call, &a.held);
    }
    if (a.ready && !use_panels(&a))
        return hc_give_up(&a.held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_conv2d(&a.settings.run, &a.x, &a.w.operand, a.has_bias ? &a.bias : NULL, &a.window, &a.options,
                             a.has_activations ? &a.activations : NULL, &a.out, &error));
    return hc_finish(status, &error, &a.held);
}

typedef hc_status gradient_function(const hc_run *run, const hc_view *dy, const hc_view *other, const hc_window *window,
                                    const hc_view *to, hc_error *error);

static PyObject *gradient_of(PyObject *args, gradient_function *function) {
    PyObject *run_object, *dy_object, *other_object, *to_object;
    long long s0, s1, p0, p1, d0, d1, groups;
    hc_run run;
    hc_view dy, other, to;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(LL)(LL)(LL)LO", &run_object, &dy_object, &other_object, &s0, &s1, &p0, &p1, &d0,
                          &d1, &groups, &to_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(dy_object, "conv2d_gradient: dy", &dy, &held) ||
        !hc_parse_view(other_object, "conv2d_gradient: operand", &other, &held) ||
        !hc_parse_view(to_object, "conv2d_gradient: out", &to, &held))
        return hc_give_up(&held);
    const hc_window window = {.stride = {s0, s1}, .pad_before = {p0, p1}, .dilation = {d0, d1}, .groups = groups};
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(function(&run, &dy, &other, &window, &to, &error));
    return hc_finish(status, &error, &held);
}

PyObject *hc_conv2d_gradient_method(PyObject *self, PyObject *args) {
    (void)self;
    return gradient_of(args, hc_conv2d_gradient);
}

PyObject *hc_conv2d_gradient_planes_method(PyObject *self, PyObject *args) {
    (void)self;
    return gradient_of(args, hc_conv2d_gradient_planes);
}

PyObject *hc_explain_conv2d_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_conv_arguments a;
    if (!parse_conv(args, &a))
        return hc_give_up(&a.held);
    if (a.settings.run.device != HC_HOST) {
        const hc_cuda_call call = device_conv(&a);
        PyObject *found = hc_cuda_explain(&a.settings, &call);
        hc_release(&a.held);
        return found;
    }
    hc_error error;
    hc_status status;
    hc_conv_explanation found;
    HC_WITHOUT_GIL(hc_explain_conv2d(&a.settings.run, &a.x, &a.w.operand, a.has_bias ? &a.bias : NULL, &a.window,
                                     &a.options, a.has_activations ? &a.activations : NULL, &a.out, &found, &error));
    hc_release(&a.held);
    if (status != HC_OK)
        return hc_raise(status, &error);
    PyObject *candidates = PyList_New(0);
    for (int i = 0; candidates && i < found.n; i++) {
        const char *name, *what;
        double error_ratio;
        hc_conv_algorithm(i, &name, &what, &error_ratio);
        const double *work = found.candidate[i].work;
        if (found.candidate[i].what)
            what = found.candidate[i].what;
        PyObject *one =
            Py_BuildValue("(sszd(dddddd)LOz)", name, what, found.candidate[i].reason, found.candidate[i].seconds,
                          work[0], work[1], work[2], work[3], work[4], work[5], (long long)found.candidate[i].bytes,
                          found.candidate[i].admitted ? Py_True : Py_False, found.candidate[i].id);
        if (!one || PyList_Append(candidates, one) != 0)
            Py_CLEAR(candidates);
        Py_XDECREF(one);
    }
    return candidates ? Py_BuildValue("(iNO)", found.chosen, candidates, Py_None) : NULL;
}

PyObject *hc_conv_algorithms_method(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *all = PyList_New(0);
    const char *name, *what;
    double error;
    for (int i = 0; all && hc_conv_algorithm(i, &name, &what, &error); i++) {
        PyObject *one = Py_BuildValue("(ssd)", name, what, error);
        if (!one || PyList_Append(all, one) != 0)
            Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

static void free_prepacked(PyObject *capsule) {
    hc_prepacked_free(PyCapsule_GetPointer(capsule, HC_PREPACKED_CAPSULE));
}

PyObject *hc_prepack_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *packed_object;
    hc_settings settings;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OO", &run_object, &packed_object) || !hc_parse_call(run_object, &settings, &held) ||
        !hc_parse_packed(packed_object, "prepack: w", false, &packed, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    hc_prepacked *prepacked = NULL;
    if (settings.run.device != HC_HOST) { /* `allocate` is asked for the memory of the panels */
        const hc_cuda_call call = {.what = PREPACK, .packed = packed};
        return hc_cuda_finish(&settings, &call, &held);
    }
    HC_WITHOUT_GIL(hc_prepack(&settings.run, &packed, &prepacked, &error));
    hc_release(&held);
    if (status != HC_OK) {
        hc_prepacked_free(prepacked);
        return hc_raise(status, &error);
    }
    if (!prepacked)
        return Py_NewRef(Py_None);
    PyObject *capsule = PyCapsule_New(prepacked, HC_PREPACKED_CAPSULE, free_prepacked);
    if (!capsule) {
        hc_prepacked_free(prepacked);
        return NULL;
    }
    return Py_BuildValue("(NL)", capsule, (long long)hc_prepacked_bytes(prepacked));
}
