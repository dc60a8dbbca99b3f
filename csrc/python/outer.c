/* The binding of convolution without zeros, and of bitmaps: parse -> view -> release the GIL -> call -> status. */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

PyObject *hc_conv2d_outer_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *w_object, *out_object;
    long long s0, s1, p0, p1;
    hc_run run;
    hc_view x, w, out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(LL)(LL)O", &run_object, &x_object, &w_object, &s0, &s1, &p0, &p1, &out_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(x_object, "conv2d_outer: x", &x, &held) ||
        !hc_parse_view(w_object, "conv2d_outer: w", &w, &held) ||
        !hc_parse_view(out_object, "conv2d_outer: out", &out, &held)) {
        hc_release(&held);
        return NULL;
    }
    const hc_window window = {.stride = {s0, s1}, .pad_before = {p0, p1}, .dilation = {1, 1}, .groups = 1};
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_conv2d_outer(&run, &x, &w, &window, &out, &error));
    hc_release(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_count_outer_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *w_object;
    long long s0, s1, p0, p1, out_height, out_width, rows, columns, weights, activations, banks, accumulators;
    hc_run run;
    hc_view x, w;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(LL)(LL)(LL)(LL)(LL)LL", &run_object, &x_object, &w_object, &s0, &s1, &p0, &p1,
                          &out_height, &out_width, &rows, &columns, &weights, &activations, &banks, &accumulators) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(x_object, "count_outer: x", &x, &held) ||
        !hc_parse_view(w_object, "count_outer: w", &w, &held)) {
        hc_release(&held);
        return NULL;
    }
    const hc_window window = {.stride = {s0, s1}, .pad_before = {p0, p1}, .dilation = {1, 1}, .groups = 1};
    const hc_outer_machine machine = {rows, columns, weights, activations, banks, accumulators};
    hc_error error;
    hc_outer_counts counts;
    hc_status status;
    HC_WITHOUT_GIL(
        hc_count_outer(&run, &x, &w, &window, (const int64_t[]){out_height, out_width}, &machine, &counts, &error));
    hc_release(&held);
    if (status != HC_OK)
        return hc_raise(status, &error);
    return Py_BuildValue("(LLLLL)", (long long)counts.products, (long long)counts.useful, (long long)counts.conflicts,
                         (long long)counts.steps, (long long)counts.cycles);
}

/* A one-dimensional C-contiguous array; its data are written to *data. */
static bool parse_items(PyObject *object, bool writable, void **data, int64_t *count, int *bytes) {
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_Check(object) || PyArray_NDIM(array) != 1 || !PyArray_IS_C_CONTIGUOUS(array) ||
        (writable && !PyArray_ISWRITEABLE(array))) {
        PyErr_SetString(PyExc_ValueError, "bitmap: expected contiguous arrays of one dimension");
        return false;
    }
    *data = PyArray_DATA(array);
    *count = PyArray_DIM(array, 0);
    *bytes = (int)PyArray_ITEMSIZE(array);
    return true;
}

/* (run, items, bitmap, values, what): what is 0 for mark, 1 for compress, 2 for expand. */
PyObject *hc_bitmap_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *objects[3];
    int what, bytes, bitmap_bytes, value_bytes;
    int64_t count, bitmap_count, kept;
    void *items, *bitmap, *values;
    hc_run run;
    if (!PyArg_ParseTuple(args, "OOOOi", &run_object, &objects[0], &objects[1], &objects[2], &what) ||
        !hc_parse_run(run_object, &run) || !parse_items(objects[0], what == 2, &items, &count, &bytes) ||
        !parse_items(objects[1], what == 0, &bitmap, &bitmap_count, &bitmap_bytes) ||
        !parse_items(objects[2], what == 1, &values, &kept, &value_bytes))
        return NULL;
    if (bitmap_bytes != 1 || bitmap_count != count / 8 + (count % 8 != 0) || value_bytes != bytes) {
        PyErr_Format(PyExc_ValueError, "bitmap: %lld bytes of bits and values of %d bytes for %lld items of %d",
                     (long long)bitmap_count, value_bytes, (long long)count, bytes);
        return NULL;
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(what == 0   ? hc_bitmap_mark(&run, bytes, count, items, bitmap, &kept, &error)
                   : what == 1 ? hc_bitmap_compress(&run, bytes, count, items, bitmap, kept, values, &error)
                               : hc_bitmap_expand(&run, bytes, count, bitmap, kept, values, items, &error));
    return status == HC_OK ? PyLong_FromLongLong(kept) : hc_raise(status, &error);
}
