/* The binding of the emulated matmuls: arrays whose type, shape and order are checked here. */
#include "hc_emulate.h"
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

/* The data of a C-contiguous array of this type and shape; NULL with an exception set. */
static void *data_of(PyObject *object, const char *name, int type, int ndim, int64_t rows, int64_t columns) {
    if (PyArray_Check(object)) {
        PyArrayObject *array = (PyArrayObject *)object;
        if (PyArray_TYPE(array) == type && PyArray_ISCARRAY_RO(array) && PyArray_NDIM(array) == ndim &&
            PyArray_DIM(array, 0) == rows && (ndim == 1 || PyArray_DIM(array, 1) == columns))
            return PyArray_DATA(array);
    }
    PyErr_Format(PyExc_ValueError, "%s: expected another type, shape or order", name);
    return NULL;
}

static bool is_matrix(PyObject *object, const char *name) {
    if (PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 2)
        return true;
    PyErr_Format(PyExc_TypeError, "%s: expected an array of two dimensions", name);
    return false;
}

static int64_t dim(PyObject *object, int axis) { return PyArray_DIM((PyArrayObject *)object, axis); }

PyObject *hc_terms_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *packed_object, *codes, *scales, *row_scale;
    hc_run run;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOO", &run_object, &packed_object, &codes, &scales, &row_scale) ||
        !hc_parse_run(run_object, &run) || !hc_parse_packed(packed_object, "emulate", false, &packed, &held)) {
        hc_release(&held);
        return NULL;
    }
    hc_error error;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS];
    hc_status status =
        hc_layout(&packed.format, packed.ndim, packed.shape, packed.n_axes, packed.axes, &geometry, layout, &error);
    if (status != HC_OK) {
        hc_release(&held);
        return hc_raise(status, &error);
    }
    float *to_codes = data_of(codes, "terms: codes", NPY_FLOAT32, 2, geometry.rows, geometry.columns);
    float *to_scales =
        to_codes ? data_of(scales, "terms: scales", NPY_FLOAT32, 2, geometry.rows, geometry.groups) : NULL;
    float *to_rows = to_scales ? data_of(row_scale, "terms: row_scale", NPY_FLOAT32, 1, geometry.rows, 0) : NULL;
    if (!to_rows) {
        hc_release(&held);
        return NULL;
    }
    hc_terms_kind kind;
    HC_WITHOUT_GIL(hc_terms(&run, &packed, to_codes, to_scales, to_rows, &kind, &error));
    hc_release(&held);
    if (status != HC_OK)
        return hc_raise(status, &error);
    return Py_BuildValue("(NNN)", PyBool_FromLong(kind.integers), PyBool_FromLong(kind.groups),
                         PyBool_FromLong(kind.integer_scales));
}

/* (codes, group, scales): int32 codes (rows, columns); scales None, int32 or float32 (rows, groups). */
static bool parse_rows(PyObject *object, const char *name, hc_code_rows *rows) {
    PyObject *codes, *scales;
    long long group;
    if (!hc_parse_tuple(object, name, "OLO", &codes, &group, &scales) || !is_matrix(codes, name))
        return false;
    *rows = (hc_code_rows){.rows = dim(codes, 0), .columns = dim(codes, 1), .group = group};
    rows->codes = data_of(codes, name, NPY_INT32, 2, rows->rows, rows->columns);
    if (!rows->codes || scales == Py_None)
        return rows->codes != NULL;
    if (!is_matrix(scales, name))
        return false;
    rows->groups = dim(scales, 1);
    if (group < 1 || rows->groups < rows->columns / group + (rows->columns % group > 0)) {
        PyErr_Format(PyExc_ValueError, "%s: too few scales", name);
        return false;
    }
    const bool integers = PyArray_TYPE((PyArrayObject *)scales) == NPY_INT32;
    const void *data = data_of(scales, name, integers ? NPY_INT32 : NPY_FLOAT32, 2, rows->rows, rows->groups);
    *(integers ? (const void **)&rows->integer_scales : (const void **)&rows->float_scales) = data;
    return data != NULL;
}

PyObject *hc_emulate_codes_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *a_object, *b_object, *powers, *out;
    int saturates, mitchell;
    long long chunk, limit;
    hc_run run;
    hc_code_rows a, b;
    hc_code_sum sum = {0};
    if (!PyArg_ParseTuple(args, "OOOipLpiLOdO", &run_object, &a_object, &b_object, &sum.bits, &saturates, &chunk,
                          &mitchell, &sum.scale_shift, &limit, &powers, &sum.unit, &out) ||
        !hc_parse_run(run_object, &run) || !parse_rows(a_object, "emulate: a", &a) ||
        !parse_rows(b_object, "emulate: b", &b))
        return NULL;
    sum.saturates = saturates;
    sum.mitchell = mitchell;
    sum.chunk = chunk;
    sum.scale_limit = limit;
    if (powers != Py_None && !(sum.powers = data_of(powers, "emulate: powers", NPY_FLOAT64, 1, HC_LOG_SUMS, 0)))
        return NULL;
    const int type = a.float_scales ? NPY_FLOAT32 : sum.bits == 0 ? NPY_FLOAT64 : NPY_INT64;
    void *to = data_of(out, "emulate: out", type, 2, a.rows, b.rows);
    if (!to)
        return NULL;
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_emulate_codes(&run, &a, &b, &sum, to, &error));
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_emulate_floats_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *a, *b, *out;
    int cuts, truncates;
    long long chunk;
    hc_run run;
    hc_float_sum sum = {0};
    if (!PyArg_ParseTuple(args, "OOOiiLippiiO", &run_object, &a, &b, &sum.precision, &sum.smallest, &chunk,
                          &sum.aligned_bits, &cuts, &truncates, &sum.smallest_input, &sum.lowest, &out) ||
        !hc_parse_run(run_object, &run) || !is_matrix(a, "emulate: a") || !is_matrix(b, "emulate: b"))
        return NULL;
    sum.cuts = cuts;
    sum.truncates = truncates;
    sum.chunk = chunk;
    const int64_t m = dim(a, 0), n = dim(b, 0), k = dim(a, 1);
    const float *from_a = data_of(a, "emulate: a", NPY_FLOAT32, 2, m, k);
    const float *from_b = from_a ? data_of(b, "emulate: b", NPY_FLOAT32, 2, n, k) : NULL;
    float *to = from_b ? data_of(out, "emulate: out", NPY_FLOAT32, 2, m, n) : NULL;
    if (!to)
        return NULL;
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_emulate_floats(&run, m, n, k, from_a, from_b, &sum, to, &error));
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}
