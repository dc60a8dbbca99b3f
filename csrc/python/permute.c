/* The binding of hc_permute. */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

PyObject *hc_permute_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object;
    PyArrayObject *scores, *order;
    int n, m;
    long long rows;
    hc_run run;
    hc_error error;
    if (!PyArg_ParseTuple(args, "OO!LiiO!", &run_object, &PyArray_Type, &scores, &rows, &n, &m, &PyArray_Type,
                          &order) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    if (PyArray_TYPE(scores) != NPY_INT16 || PyArray_NDIM(scores) != 2 || !PyArray_IS_C_CONTIGUOUS(scores) ||
        PyArray_TYPE(order) != NPY_INT32 || PyArray_NDIM(order) != 1 || !PyArray_IS_C_CONTIGUOUS(order) ||
        !PyArray_ISWRITEABLE(order) || m < 1 || PyArray_DIM(order, 0) % m != 0) {
        PyErr_SetString(PyExc_ValueError,
                        "permute: expected int16 scores (columns, ld) and an int32 order (groups * m)");
        return NULL;
    }
    hc_status status;
    int64_t exchanges = 0;
    HC_WITHOUT_GIL(hc_permute(&run, rows, PyArray_DIM(scores, 0), PyArray_DIM(scores, 1), PyArray_DATA(scores), n, m,
                              PyArray_DIM(order, 0) / m, PyArray_DATA(order), &exchanges, &error));
    return status == HC_OK ? PyLong_FromLongLong(exchanges) : hc_raise(status, &error);
}
