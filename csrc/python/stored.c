/* The binding of ops/stored/: moving and checking packed codes, blocks of GGUF. No arithmetic here. */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

static PyArrayObject *matrix_of(PyObject *object, const char *name, bool writable) {
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_Check(object) || PyArray_NDIM(array) != 2 || !PyArray_IS_C_CONTIGUOUS(array) ||
        (writable && !PyArray_ISWRITEABLE(array))) {
        PyErr_Format(PyExc_ValueError, "%s: expected a contiguous array of two dimensions", name);
        return NULL;
    }
    return array;
}

/* (array, bits, kind) */
static bool parse_codes(PyObject *object, const char *name, int64_t rows, int64_t columns, bool writable,
                        hc_code_matrix *codes) {
    PyObject *array_object;
    int bits, kind;
    if (!hc_parse_tuple(object, name, "Oii", &array_object, &bits, &kind))
        return false;
    PyArrayObject *array = matrix_of(array_object, name, writable);
    if (!array)
        return false;
    const int64_t first = PyArray_DIM(array, 0), bytes = PyArray_DIM(array, 1) * PyArray_ITEMSIZE(array);
    const bool turned = kind == HC_CODES_TURNED || kind == HC_CODES_TURNED_AWQ, words = kind == HC_CODES_WORD_COLUMNS;
    int64_t size = 0;
    bool fits = bits >= 1 && bits <= 8 && kind >= 0 && kind < HC_N_CODES_KINDS &&
                hc_mul_size(turned ? rows : columns, bits, &size) && size < INT64_MAX - 7;
    if (fits && words)
        fits = PyArray_ITEMSIZE(array) == 4 && PyArray_DIM(array, 1) == rows && first == hc_ceil_div(size, 32);
    else if (fits)
        fits = first == (turned ? columns : rows) && bytes >= hc_ceil_div(size, 8);
    if (kind == HC_CODES_TURNED_AWQ || kind == HC_CODES_HIGH_FIRST)
        fits = fits && bits == 4 && (kind == HC_CODES_HIGH_FIRST || rows % 8 == 0);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s: (%lld, %lld bytes) does not hold (%lld, %lld) codes of %d bits", name,
                     (long long)first, (long long)bytes, (long long)rows, (long long)columns, bits);
        return false;
    }
    *codes = (hc_code_matrix){PyArray_DATA(array), bits, (hc_codes_kind)kind, bytes};
    return true;
}

PyObject *hc_move_codes_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *from_object, *to_object;
    long long rows, columns;
    unsigned char flip;
    hc_run run;
    hc_code_matrix from, to;
    if (!PyArg_ParseTuple(args, "OLLbOO", &run_object, &rows, &columns, &flip, &from_object, &to_object) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    if (rows < 0 || columns < 0)
        return PyErr_Format(PyExc_ValueError, "move_codes: sizes below 0");
    if (!parse_codes(from_object, "move_codes: from", rows, columns, false, &from) ||
        !parse_codes(to_object, "move_codes: to", rows, columns, true, &to))
        return NULL;
    const bool turned = from.kind >= HC_CODES_TURNED || to.kind >= HC_CODES_TURNED;
    if (turned && from.kind != HC_CODES_ROWS && to.kind != HC_CODES_ROWS)
        return PyErr_Format(PyExc_ValueError, "move_codes: one side is turned, expected rows on the other");
    hc_status status;
    HC_WITHOUT_GIL((hc_move_codes(&run, rows, columns, flip, &from, &to), HC_OK));
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, NULL);
}

PyObject *hc_code_fault_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *codes_object, *zero_object;
    long long runs, length, padded, groups, unused, padding;
    hc_run run;
    hc_code_rules rules = {0};
    if (!PyArg_ParseTuple(args, "OOiLLLLLOL", &run_object, &codes_object, &rules.bits, &runs, &length, &padded, &unused,
                          &padding, &zero_object, &groups) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    PyArrayObject *codes = matrix_of(codes_object, "code_fault: codes", false), *zeros = NULL;
    if (!codes || (zero_object != Py_None && !(zeros = matrix_of(zero_object, "code_fault: zero points", false))))
        return NULL;
    rules.codes = PyArray_DATA(codes);
    rules.rows = PyArray_DIM(codes, 0);
    rules.row_bytes = PyArray_DIM(codes, 1) * PyArray_ITEMSIZE(codes);
    rules.runs = runs;
    rules.length = length;
    rules.padded = padded;
    rules.groups = groups;
    rules.unused = unused;
    rules.padding = padding;
    int64_t size, points = 0;
    bool fits = rules.bits >= 1 && rules.bits <= 32 && runs >= 0 && length >= 0 && padded >= length &&
                hc_mul_size(runs, padded, &size) && hc_mul_size(size, rules.bits, &size) && size <= INT64_MAX - 7 &&
                rules.row_bytes >= hc_ceil_div(size, 8);
    if (zeros) {
        rules.zero_points = PyArray_DATA(zeros);
        rules.zero_bytes = PyArray_DIM(zeros, 1) * PyArray_ITEMSIZE(zeros);
        fits = fits && groups >= 1 && PyArray_DIM(zeros, 0) == rules.rows && hc_mul_size(runs, groups, &points) &&
               hc_mul_size(points, rules.bits, &points) && points <= INT64_MAX - 7 &&
               rules.zero_bytes >= hc_ceil_div(points, 8);
    }
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "code_fault: the codes are not as many");
    hc_code_fault found = HC_CODES_SOUND;
    hc_status status;
    HC_WITHOUT_GIL((found = hc_find_fault(&run, &rules), HC_OK));
    return status == HC_OK ? PyLong_FromLong(found) : hc_raise(status, NULL);
}

PyObject *hc_blocks_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *packed_object, *data_object;
    const char *name;
    int reads;
    hc_run run;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OsOOp", &run_object, &name, &packed_object, &data_object, &reads) ||
        !hc_parse_run(run_object, &run) || !hc_parse_packed(packed_object, "blocks", reads, &packed, &held))
        return hc_give_up(&held);
    PyArrayObject *data = matrix_of(data_object, "blocks: data", !reads);
    int64_t values = 1, rows = 1;
    for (int i = 0; i < packed.ndim; i++) {
        bool along = false;
        for (int a = 0; a < packed.n_axes; a++)
            along = along || packed.axes[a] == i;
        if (!along)
            rows *= packed.shape[i];
        else
            values *= packed.shape[i];
    }
    if (!data)
        return hc_give_up(&held);
    if (PyArray_DIM(data, 0) != rows ||
        PyArray_DIM(data, 1) * PyArray_ITEMSIZE(data) != hc_blocks_bytes(name, values)) {
        PyErr_Format(PyExc_ValueError, "blocks: expected (%lld, %lld bytes) of %s", (long long)rows,
                     (long long)hc_blocks_bytes(name, values), name);
        return hc_give_up(&held);
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(reads ? hc_read_blocks(&run, name, PyArray_DATA(data), &packed, &error)
                         : hc_write_blocks(&run, name, &packed, PyArray_DATA(data), &error));
    return hc_finish(status, &error, &held);
}

PyObject *hc_blocks_bytes_method(PyObject *self, PyObject *args) {
    (void)self;
    const char *name;
    long long values;
    if (!PyArg_ParseTuple(args, "sL", &name, &values))
        return NULL;
    return PyLong_FromLongLong(values < 0 ? 0 : hc_blocks_bytes(name, values));
}
