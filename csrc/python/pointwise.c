/* The binding of operations of one value each. Tuples hold the arrays that a call reads and writes. */
#include "hc_layers.h"
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

/* The memory of a contiguous float32 array of at least n values; NULL otherwise. */
static float *floats_of(PyObject *object, int64_t n, bool writes) {
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_TYPE(array) != NPY_FLOAT32 || !PyArray_ISCARRAY_RO(array) ||
        (writes && !PyArray_ISWRITEABLE(array)) || PyArray_SIZE(array) < n)
        return NULL;
    return PyArray_DATA(array);
}

static bool input_of(PyObject *tuple, int64_t columns, hc_pointwise_input *input) {
    PyObject *array;
    long long rows, row_step, step;
    int64_t last;
    if (!hc_parse_tuple(tuple, "pointwise: an input", "OLLL", &array, &rows, &row_step, &step))
        return false;
    *input = (hc_pointwise_input){NULL, rows, row_step, step};
    if (rows >= 1 && row_step >= 0 && (step == 0 || step == 1) && !__builtin_mul_overflow(rows - 1, row_step, &last) &&
        !__builtin_add_overflow(last, (columns - 1) * step + 1, &last))
        input->values = floats_of(array, last, false);
    if (!input->values)
        PyErr_SetString(PyExc_ValueError, "pointwise: expected inputs as contiguous float32, with their steps inside");
    return input->values != NULL;
}

static bool step_of(PyObject *tuple, int64_t size, PyObject *outs, hc_pointwise_step *step) {
    int out;
    if (!hc_parse_tuple(tuple, "pointwise: a step", "iiiffffi", &step->operation, &step->a, &step->b, &step->low,
                        &step->high, &step->scale, &step->shift, &out))
        return false;
    step->out = NULL;
    if (out >= 0 && out < PyTuple_GET_SIZE(outs))
        step->out = floats_of(PyTuple_GET_ITEM(outs, out), size, true);
    if (out >= 0 && !step->out)
        PyErr_SetString(PyExc_ValueError, "pointwise: expected results as contiguous float32 of all rows");
    return out < 0 || step->out;
}

PyObject *hc_pointwise_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *inputs, *steps, *outs;
    long long rows, columns;
    int64_t size = 0;
    hc_run run;
    if (!PyArg_ParseTuple(args, "OLLO!O!O!", &run_object, &rows, &columns, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &steps, &PyTuple_Type, &outs) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    hc_pointwise_input of_inputs[HC_POINTWISE_INPUTS];
    hc_pointwise_step of_steps[HC_POINTWISE_STEPS];
    const Py_ssize_t n_inputs = PyTuple_GET_SIZE(inputs), n_steps = PyTuple_GET_SIZE(steps);
    if (rows < 1 || columns < 1 || __builtin_mul_overflow(rows, columns, &size) || n_inputs > HC_POINTWISE_INPUTS ||
        n_steps > HC_POINTWISE_STEPS) {
        PyErr_Format(PyExc_ValueError, "pointwise: expected rows and columns, up to %d inputs and up to %d steps",
                     HC_POINTWISE_INPUTS, HC_POINTWISE_STEPS);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n_inputs; i++)
        if (!input_of(PyTuple_GET_ITEM(inputs, i), columns, &of_inputs[i]))
            return NULL;
    for (Py_ssize_t i = 0; i < n_steps; i++)
        if (!step_of(PyTuple_GET_ITEM(steps, i), size, outs, &of_steps[i]))
            return NULL;
    const hc_pointwise call = {rows, columns, (int)n_inputs, (int)n_steps, of_inputs, of_steps};
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_pointwise_call(&run, &call, &error));
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}
