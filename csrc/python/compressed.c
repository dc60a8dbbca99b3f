/* The binding of compressed weights, CSR and EIE: parse -> view -> release the GIL -> call -> status. */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

/* The memory of a C-contiguous array with this type and number of dimensions. */
static void *plain(PyObject *object, int type, int ndim, const char *name) {
    if (!PyArray_Check(object) || PyArray_TYPE((PyArrayObject *)object) != type ||
        PyArray_NDIM((PyArrayObject *)object) != ndim || !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)object) ||
        !PyArray_ISALIGNED((PyArrayObject *)object) || !PyArray_ISNOTSWAPPED((PyArrayObject *)object)) {
        PyErr_Format(PyExc_ValueError, "%s: expected a C-contiguous array of %d dimensions and another type", name,
                     ndim);
        return NULL;
    }
    return PyArray_DATA((PyArrayObject *)object);
}

static int64_t length(PyObject *array, int axis) { return PyArray_DIM((PyArrayObject *)array, axis); }

/* (columns, starts int64, indices int32, values float32) */
static int parse_csr(PyObject *object, hc_csr *csr) {
    PyObject *starts, *indices, *values;
    long long columns;
    if (!hc_parse_tuple(object, "csr", "LOOO", &columns, &starts, &indices, &values) ||
        !(csr->starts = plain(starts, NPY_INT64, 1, "csr: starts")) ||
        !(csr->indices = plain(indices, NPY_INT32, 1, "csr: indices")) ||
        !(csr->values = plain(values, NPY_FLOAT32, 1, "csr: values")))
        return 0;
    csr->columns = columns;
    csr->rows = length(starts, 0) - 1;
    csr->stored = length(indices, 0);
    if (csr->rows < 0 || length(values, 0) != csr->stored) {
        PyErr_SetString(PyExc_ValueError, "csr: starts, indices and values do not fit each other");
        return 0;
    }
    return 1;
}

/* (rows, columns, codebook float32 (16), pointers uint32 (elements, columns + 1), entries uint8) */
static int parse_eie(PyObject *object, hc_eie *eie) {
    PyObject *codebook, *pointers, *entries;
    long long rows, columns;
    if (!hc_parse_tuple(object, "eie", "LLOOO", &rows, &columns, &codebook, &pointers, &entries) ||
        !(eie->codebook = plain(codebook, NPY_FLOAT32, 1, "eie: codebook")) ||
        !(eie->pointers = plain(pointers, NPY_UINT32, 2, "eie: pointers")) ||
        !(eie->entries = plain(entries, NPY_UINT8, 1, "eie: entries")))
        return 0;
    eie->rows = rows;
    eie->columns = columns;
    eie->elements = length(pointers, 0);
    eie->n_entries = length(entries, 0);
    if (rows < 0 || columns < 0 || length(pointers, 1) - 1 != columns || length(codebook, 0) != HC_EIE_CODES) {
        PyErr_SetString(PyExc_ValueError, "eie: expected a codebook (16) and pointers (elements, columns + 1)");
        return 0;
    }
    return 1;
}

static PyObject *none_or_error(hc_status status, const hc_error *error) {
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, error);
}

/* New arrays: starts of a matrix with `rows` rows, then indices and values of `stored`. */
static PyObject *new_csr(int64_t rows, int64_t stored) {
    npy_intp starts = rows + 1, count = stored;
    return Py_BuildValue("(NNN)", PyArray_SimpleNew(1, &starts, NPY_INT64), PyArray_SimpleNew(1, &count, NPY_INT32),
                         PyArray_SimpleNew(1, &count, NPY_FLOAT32));
}

static void *data_of(PyObject *tuple, int item) { return PyArray_DATA((PyArrayObject *)PyTuple_GET_ITEM(tuple, item)); }

PyObject *hc_csr_transpose_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *csr_object;
    hc_csr csr;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "O", &csr_object) || !parse_csr(csr_object, &csr))
        return NULL;
    PyObject *answer = new_csr(csr.columns, csr.stored);
    if (!answer)
        return NULL;
    HC_WITHOUT_GIL(hc_csr_transpose(&csr, data_of(answer, 0), data_of(answer, 1), data_of(answer, 2), &error));
    if (status == HC_OK)
        return answer;
    Py_DECREF(answer);
    return hc_raise(status, &error);
}

PyObject *hc_csr_matmul_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *csr_object, *out_object;
    hc_run run;
    hc_view x, out;
    hc_packed packed;
    hc_csr csr;
    hc_held held = {.count = 0};
    hc_operand operand = {0};
    if (!PyArg_ParseTuple(args, "OOOO", &run_object, &x_object, &csr_object, &out_object) ||
        !hc_parse_run(run_object, &run) || !parse_csr(csr_object, &csr) ||
        !hc_parse_view(out_object, "matmul: out", &out, &held))
        goto failed;
    if (PyTuple_Check(x_object)) {
        operand.packed = &packed;
        if (!hc_parse_packed(x_object, "matmul: x", false, &packed, &held))
            goto failed;
    } else {
        operand.dense = &x;
        if (!hc_parse_view(x_object, "matmul: x", &x, &held))
            goto failed;
    }
    hc_error error;
    hc_status status;
    bool ascending = true;
    HC_WITHOUT_GIL(hc_csr_matmul(&run, &operand, &csr, &out, &ascending, &error));
    hc_release(&held);
    return status == HC_OK ? PyBool_FromLong(ascending) : hc_raise(status, &error);
failed:
    hc_release(&held);
    return NULL;
}

/* An array of one dimension as it lies in memory, or NULL. */
static PyArrayObject *row_of(PyObject *object) {
    PyArrayObject *array = (PyArrayObject *)object;
    return object && PyArray_CheckExact(object) && PyArray_NDIM(array) == 1 && PyArray_ISCARRAY_RO(array) ? array
                                                                                                          : NULL;
}

static bool are_apart(PyArrayObject *a, PyArrayObject *b) {
    const char *first = PyArray_BYTES(a), *second = PyArray_BYTES(b);
    return first + PyArray_NBYTES(a) <= second || second + PyArray_NBYTES(b) <= first;
}

/* Rows of a matrix of SciPy in CSR times x, all of them plain, and `out` as well. `starts` are for 32-bit ones. */
static PyObject *csr_product(const hc_run *run, PyArrayObject *x, PyArrayObject *const part[3], const npy_intp shape[2],
                             int64_t *starts, PyObject *out) {
    PyArrayObject *values = part[0], *indices = part[1], *pointers = part[2];
    const int ndim = PyArray_NDIM(x);
    npy_intp size[2] = {PyArray_DIM(x, 0), shape[0]};
    PyArrayObject *answer;
    if (out == Py_None) {
        answer = (PyArrayObject *)PyArray_SimpleNew(ndim, size + 2 - ndim, NPY_FLOAT32);
    } else {
        answer = (PyArrayObject *)out;
        if (!PyArray_CheckExact(out) || PyArray_TYPE(answer) != NPY_FLOAT32 || !PyArray_ISCARRAY(answer) ||
            PyArray_NDIM(answer) != ndim || PyArray_DIM(answer, ndim - 1) != shape[0] ||
            (ndim == 2 && PyArray_DIM(answer, 0) != size[0]) || !are_apart(answer, x) || !are_apart(answer, values) ||
            !are_apart(answer, indices) || !are_apart(answer, pointers))
            return NULL;
        Py_INCREF(out);
    }
    if (!answer)
        return NULL;
    hc_csr csr = {shape[0], shape[1], PyArray_DIM(values, 0), starts, PyArray_DATA(indices), PyArray_DATA(values)};
    if (PyArray_ITEMSIZE(pointers) == 8)
        csr.starts = PyArray_DATA(pointers);
    else
        for (int64_t i = 0; i <= csr.rows; i++)
            starts[i] = ((const int32_t *)PyArray_DATA(pointers))[i];
    const int64_t rows = ndim == 2 ? size[0] : 1;
    const hc_view from = {PyArray_DATA(x), HC_F32, 2, {rows, csr.columns}, {4 * csr.columns, 4}, HC_HOST};
    const hc_view to = {PyArray_DATA(answer), HC_F32, 2, {rows, csr.rows}, {4 * csr.rows, 4}, HC_HOST};
    const hc_operand operand = {&from, NULL};
    hc_error error;
    hc_status status;
    bool ascending = true;
    HC_WITHOUT_GIL(hc_csr_matmul(run, &operand, &csr, &to, &ascending, &error));
    if (status != HC_OK || !ascending)
        Py_CLEAR(answer);
    return (PyObject *)answer;
}

/* linear(x, w, out=out) of float32 in C order and a matrix of SciPy in CSR. None if an argument is anything else or not
 * valid: the general path then says what is wrong, or sorts the columns. */
PyObject *hc_csr_linear_method(PyObject *self, PyObject *args) {
    (void)self;
    static const char *const names[] = {"data", "indices", "indptr", "format", "shape"};
    static PyObject *keys[5];
    PyObject *run_object, *x_object, *w, *out, *found[5] = {NULL};
    hc_run run;
    if (!PyArg_ParseTuple(args, "OOOO", &run_object, &x_object, &w, &out) || !hc_parse_run(run_object, &run))
        return NULL;
    PyArrayObject *x = (PyArrayObject *)x_object;
    PyObject *answer = NULL;
    if (!PyArray_CheckExact(x_object) || run.device != HC_HOST)
        return Py_NewRef(Py_None);
    bool fits = true;
    for (int i = 0; fits && i < 5; i++) {
        if (!keys[i])
            keys[i] = PyUnicode_InternFromString(names[i]);
        fits = keys[i] && (found[i] = PyObject_GetAttr(w, keys[i]));
    }
    npy_intp shape[2] = {0, 0};
    /* x is looked at last: an attribute of w may be code that resizes it */
    fits = fits && PyArray_TYPE(x) == NPY_FLOAT32 && PyArray_ISCARRAY_RO(x) && PyArray_NDIM(x) >= 1 &&
           PyArray_NDIM(x) <= 2 && PyArray_SIZE(x) > 0 && PyUnicode_Check(found[3]) &&
           PyUnicode_CompareWithASCIIString(found[3], "csr") == 0 && PyTuple_CheckExact(found[4]) &&
           PyTuple_GET_SIZE(found[4]) == 2;
    for (int i = 0; fits && i < 2; i++) {
        PyObject *size = PyTuple_GET_ITEM(found[4], i);
        fits = PyLong_CheckExact(size) && (shape[i] = PyLong_AsSsize_t(size)) > 0 && shape[i] <= INT32_MAX;
    }
    PyArrayObject *const part[3] = {fits ? row_of(found[0]) : NULL, fits ? row_of(found[1]) : NULL,
                                    fits ? row_of(found[2]) : NULL};
    if (fits && part[0] && part[1] && part[2] && PyArray_TYPE(part[0]) == NPY_FLOAT32 &&
        PyArray_TYPE(part[1]) == NPY_INT32 && PyArray_DESCR(part[2])->kind == 'i' && PyArray_ITEMSIZE(part[2]) >= 4 &&
        PyArray_DIM(part[2], 0) == shape[0] + 1 && PyArray_DIM(part[0], 0) == PyArray_DIM(part[1], 0) &&
        PyArray_DIM(x, PyArray_NDIM(x) - 1) == shape[1]) {
        int64_t *starts = PyMem_Malloc(PyArray_ITEMSIZE(part[2]) == 8 ? 1 : (size_t)(shape[0] + 1) * sizeof *starts);
        answer = starts ? csr_product(&run, x, part, shape, starts, out) : PyErr_NoMemory();
        PyMem_Free(starts);
    }
    for (int i = 0; i < 5; i++)
        Py_XDECREF(found[i]);
    if (!answer && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
    return answer || PyErr_Occurred() ? answer : Py_NewRef(Py_None);
}

PyObject *hc_eie_codebook_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *values_object, *codebook_object;
    float *values, *codebook;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "OO", &values_object, &codebook_object) ||
        !(values = plain(values_object, NPY_FLOAT32, 1, "eie: values")) ||
        !(codebook = plain(codebook_object, NPY_FLOAT32, 1, "eie: codebook")))
        return NULL;
    if (length(codebook_object, 0) != HC_EIE_CODES) {
        PyErr_SetString(PyExc_ValueError, "eie: expected a codebook (16)");
        return NULL;
    }
    HC_WITHOUT_GIL(hc_eie_codebook(length(values_object, 0), values, codebook, &error));
    return none_or_error(status, &error);
}

PyObject *hc_eie_count_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *w_object, *pointers_object;
    hc_run run;
    float *w;
    uint32_t *pointers;
    int64_t n_entries = 0;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "OOO", &run_object, &w_object, &pointers_object) || !hc_parse_run(run_object, &run) ||
        !(w = plain(w_object, NPY_FLOAT32, 2, "eie: w")) ||
        !(pointers = plain(pointers_object, NPY_UINT32, 2, "eie: pointers")))
        return NULL;
    const int64_t rows = length(w_object, 0), columns = length(w_object, 1), elements = length(pointers_object, 0);
    if (length(pointers_object, 1) != columns + 1) {
        PyErr_SetString(PyExc_ValueError, "eie: expected pointers (elements, columns + 1)");
        return NULL;
    }
    HC_WITHOUT_GIL(hc_eie_count_entries(&run, w, rows, columns, elements, pointers, &n_entries, &error));
    return status == HC_OK ? PyLong_FromLongLong(n_entries) : hc_raise(status, &error);
}

PyObject *hc_eie_encode_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *w_object, *eie_object;
    hc_run run;
    float *w;
    hc_eie eie;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "OOO", &run_object, &w_object, &eie_object) || !hc_parse_run(run_object, &run) ||
        !(w = plain(w_object, NPY_FLOAT32, 2, "eie: w")) || !parse_eie(eie_object, &eie))
        return NULL;
    if (length(w_object, 0) != eie.rows || length(w_object, 1) != eie.columns) {
        PyErr_SetString(PyExc_ValueError, "eie: w has another shape");
        return NULL;
    }
    HC_WITHOUT_GIL(hc_eie_encode(&run, w, &eie, (uint8_t *)eie.entries, &error));
    return none_or_error(status, &error);
}

PyObject *hc_eie_check_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *eie_object;
    hc_eie eie;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "O", &eie_object) || !parse_eie(eie_object, &eie))
        return NULL;
    HC_WITHOUT_GIL(hc_eie_check(&eie, &error));
    return none_or_error(status, &error);
}

PyObject *hc_eie_decode_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *eie_object, *out_object;
    hc_run run;
    hc_eie eie;
    float *out;
    if (!PyArg_ParseTuple(args, "OOO", &run_object, &eie_object, &out_object) || !hc_parse_run(run_object, &run) ||
        !parse_eie(eie_object, &eie) || !(out = plain(out_object, NPY_FLOAT32, 2, "eie: out")))
        return NULL;
    if (length(out_object, 0) != eie.rows || length(out_object, 1) != eie.columns) {
        PyErr_SetString(PyExc_ValueError, "eie: out has another shape");
        return NULL;
    }
    hc_error error;
    hc_status status = hc_eie_check(&eie, &error);
    if (status == HC_OK)
        HC_WITHOUT_GIL((hc_eie_decode(&run, &eie, out), HC_OK));
    return none_or_error(status, &error);
}

PyObject *hc_eie_expand_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *eie_object;
    hc_run run;
    hc_eie eie;
    if (!PyArg_ParseTuple(args, "OO", &run_object, &eie_object) || !hc_parse_run(run_object, &run) ||
        !parse_eie(eie_object, &eie))
        return NULL;
    hc_error error;
    hc_status status = hc_eie_check(&eie, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    npy_intp n_starts = eie.rows + 1;
    PyObject *starts = PyArray_SimpleNew(1, &n_starts, NPY_INT64);
    if (!starts)
        return NULL;
    int64_t *begins = PyArray_DATA((PyArrayObject *)starts);
    HC_WITHOUT_GIL((hc_eie_rows_begin(&run, &eie, begins), HC_OK));
    if (status != HC_OK) {
        Py_DECREF(starts);
        return hc_raise(status, &error);
    }
    npy_intp count = begins[eie.rows];
    PyObject *answer = Py_BuildValue("(NNN)", starts, PyArray_SimpleNew(1, &count, NPY_INT32),
                                     PyArray_SimpleNew(1, &count, NPY_FLOAT32));
    if (!answer)
        return NULL;
    HC_WITHOUT_GIL((hc_eie_expand(&run, &eie, begins, data_of(answer, 1), data_of(answer, 2)), HC_OK));
    if (status == HC_OK)
        return answer;
    Py_DECREF(answer);
    return hc_raise(status, &error);
}

PyObject *hc_eie_multiply_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *eie_object, *x_object, *out_object;
    PyObject *rows_object;
    hc_run run;
    hc_eie eie;
    hc_csr rows;
    float *x, *out;
    hc_error error;
    hc_status status;
    if (!PyArg_ParseTuple(args, "OOOOO", &run_object, &eie_object, &rows_object, &x_object, &out_object) ||
        !hc_parse_run(run_object, &run) || !parse_eie(eie_object, &eie) || !parse_csr(rows_object, &rows) ||
        !(x = plain(x_object, NPY_FLOAT32, 2, "eie: x")) || !(out = plain(out_object, NPY_FLOAT32, 2, "eie: out")))
        return NULL;
    const int64_t vectors = length(x_object, 0);
    if (length(x_object, 1) != eie.columns || length(out_object, 0) != vectors || length(out_object, 1) != eie.rows) {
        PyErr_SetString(PyExc_ValueError, "eie: x or out has another shape");
        return NULL;
    }
    if (rows.rows != eie.rows || rows.columns != eie.columns) {
        PyErr_SetString(PyExc_ValueError, "eie: rows of another shape");
        return NULL;
    }
    /* The constructor of EIEArray checked these components, and their memory is that of immutable bytes. */
    HC_WITHOUT_GIL(hc_eie_multiply_rows(&run, &eie, &rows, vectors, x, out, &error));
    return none_or_error(status, &error);
}

PyObject *hc_eie_load_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *eie_object, *x_object, *busy_object;
    long long depth;
    hc_eie eie;
    float *x = NULL;
    int64_t *busy;
    hc_error error;
    hc_status status;
    hc_eie_cycles found;
    if (!PyArg_ParseTuple(args, "OOLO", &eie_object, &x_object, &depth, &busy_object) || !parse_eie(eie_object, &eie) ||
        (x_object != Py_None && !(x = plain(x_object, NPY_FLOAT32, 1, "eie: x"))) ||
        !(busy = plain(busy_object, NPY_INT64, 1, "eie: busy")))
        return NULL;
    if ((x && length(x_object, 0) != eie.columns) || length(busy_object, 0) != eie.elements) {
        PyErr_SetString(PyExc_ValueError, "eie: x or busy has another length");
        return NULL;
    }
    status = hc_eie_check(&eie, &error);
    if (status == HC_OK)
        HC_WITHOUT_GIL(hc_eie_load(&eie, x, depth, busy, &found, &error));
    if (status != HC_OK)
        return hc_raise(status, &error);
    return Py_BuildValue("(LLLL)", (long long)found.cycles, (long long)found.broadcasts, (long long)found.stalls,
                         (long long)found.padding);
}
