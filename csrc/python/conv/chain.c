/* The binding of chains of convolutions. Tuples of steps hold the arrays that a call reads. */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

typedef struct {
    hc_format activations;
    hc_held held;
} hc_step_memory;

/* A contiguous float32 array as a view. */
static bool floats_of(PyObject *object, int ndim, bool writes, hc_view *view) {
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(array) != ndim || PyArray_TYPE(array) != NPY_FLOAT32 ||
        !PyArray_ISCARRAY_RO(array) || (writes && !PyArray_ISWRITEABLE(array)))
        return false;
    *view = (hc_view){.data = PyArray_DATA(array), .dtype = HC_F32, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        view->shape[i] = PyArray_DIM(array, i);
        view->strides[i] = PyArray_STRIDE(array, i);
    }
    return true;
}

/* False with an exception set. */
static bool step_of(PyObject *tuple, hc_conv_step *step, hc_step_memory *memory) {
    PyObject *w, *bias, *format, *out, *filters;
    long long s[2], p[2], d[2], around[4], groups, pool[2];
    int clamps, guess;
    *step = (hc_conv_step){.from = -1};
    if (!hc_parse_tuple(tuple, "conv_chain: a step", "iiOOO(LL)(LL)(LL)L(LLLL)p(ff)(LL)pOO", &step->from, &step->plus,
                        &w, &bias, &format, &s[0], &s[1], &p[0], &p[1], &d[0], &d[1], &groups, &around[0], &around[1],
                        &around[2], &around[3], &clamps, &step->low, &step->high, &pool[0], &pool[1], &guess, &filters,
                        &out))
        return false;
    if (w == Py_None) {
        step->pool[0] = pool[0];
        step->pool[1] = pool[1];
    } else if (!hc_parse_format(format, &memory->activations)) {
        return false;
    } else {
        step->activations = &memory->activations;
        step->w = hc_packed_of(w, &memory->held);
    }
    if (filters != Py_None && !(step->filters = PyCapsule_GetPointer(filters, HC_PREPACKED_FILTERS_CAPSULE)))
        return false;
    step->window =
        (hc_window){.stride = {s[0], s[1]}, .pad_before = {p[0], p[1]}, .dilation = {d[0], d[1]}, .groups = groups};
    for (int i = 0; i < 4; i++)
        step->around[i] = around[i];
    step->clamps = clamps;
    step->guess = guess;
    hc_view of_bias = {.ndim = 0};
    const bool known = w == Py_None ? bias == Py_None : step->w && step->w->ndim == 4;
    const bool fits = known && (bias == Py_None || floats_of(bias, 1, false, &of_bias)) &&
                      (bias == Py_None || of_bias.shape[0] == step->w->shape[0]) &&
                      (out == Py_None || floats_of(out, 4, true, &step->out));
    step->bias = of_bias.data;
    if (!fits && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "conv_chain: expected a packed weight, and contiguous float32 arrays");
    return fits;
}

static void free_filters(PyObject *capsule) {
    hc_prepacked_filters_free(PyCapsule_GetPointer(capsule, HC_PREPACKED_FILTERS_CAPSULE));
}

/* (guess, filters packed in this call or None); NULL with an exception set. */
static PyObject *kept_of(hc_conv_step *step) {
    PyObject *filters = NULL;
    if (step->packed) {
        filters = PyCapsule_New(step->packed, HC_PREPACKED_FILTERS_CAPSULE, free_filters);
        if (!filters)
            return NULL;
        step->packed = NULL; /* of the capsule now */
    }
    PyObject *guess = PyBool_FromLong(step->guess);
    return filters ? Py_BuildValue("(NN)", guess, filters) : Py_BuildValue("(NO)", guess, Py_None);
}

PyObject *hc_conv_chain_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *inputs, *tuples, *answer = NULL;
    hc_settings settings;
    hc_held none = {.count = 0};
    if (!PyArg_ParseTuple(args, "OO!O!", &run_object, &PyTuple_Type, &inputs, &PyTuple_Type, &tuples) ||
        !hc_parse_call(run_object, &settings, &none))
        return NULL;
    const Py_ssize_t n_inputs = PyTuple_GET_SIZE(inputs), n_steps = PyTuple_GET_SIZE(tuples);
    hc_view *views = PyMem_Calloc((size_t)n_inputs + 1, sizeof *views);
    hc_conv_step *steps = PyMem_Calloc((size_t)n_steps + 1, sizeof *steps);
    hc_step_memory *memory = PyMem_Calloc((size_t)n_steps + 1, sizeof *memory);
    bool fits = views && steps && memory;
    if (!fits)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; fits && i < n_inputs; i++) {
        fits = floats_of(PyTuple_GET_ITEM(inputs, i), 4, false, &views[i]);
        if (!fits)
            PyErr_SetString(PyExc_ValueError, "conv_chain: expected inputs as contiguous float32 of four dimensions");
    }
    for (Py_ssize_t i = 0; fits && i < n_steps; i++)
        fits = step_of(PyTuple_GET_ITEM(tuples, i), &steps[i], &memory[i]);
    if (fits) {
        hc_error error;
        hc_status status;
        HC_WITHOUT_GIL(hc_conv_chain(&settings.run, (int)n_inputs, views, (int)n_steps, steps, &error));
        if (status != HC_OK)
            hc_raise(status, &error);
        else
            answer = PyTuple_New(n_steps);
        for (Py_ssize_t i = 0; answer && i < n_steps; i++) {
            PyObject *kept = kept_of(&steps[i]);
            if (kept)
                PyTuple_SET_ITEM(answer, i, kept);
            else
                Py_CLEAR(answer);
        }
    }
    for (Py_ssize_t i = 0; memory && steps && i < n_steps; i++) {
        hc_prepacked_filters_free(steps[i].packed);
        hc_release(&memory[i].held);
    }
    PyMem_Free(views);
    PyMem_Free(steps);
    PyMem_Free(memory);
    hc_release(&none);
    return answer;
}
