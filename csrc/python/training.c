/* The binding of rounding for training: fake_quantize, the values whose gradient passes, and stochastic rounding. */
#include "python/arguments.h"
#include "python/call.h"
#include "python/methods.h"

/* The bytes of a contiguous buffer of this size; false with an error. An empty one has an address too. */
static bool take_bits(PyObject *object, int64_t rows, int64_t bytes, bool writable, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return false;
    if (view->itemsize == 1 && view->len == rows * bytes)
        return true;
    PyErr_Format(PyExc_ValueError, "inside: expected %lld x %lld contiguous bytes", (long long)rows, (long long)bytes);
    PyBuffer_Release(view);
    return false;
}

static bool parse_inside(PyObject *object, const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                         hc_inside *inside, hc_view *factor, Py_buffer *view, hc_held *held) {
    PyObject *bits, *factor_object;
    int64_t rows, bytes;
    hc_error error;
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "inside: expected a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(object, "ffOO", &inside->low, &inside->high, &bits, &factor_object))
        return false;
    if (format->m > 0 || hc_inside_bytes(format, x->ndim, x->shape, n_axes, axes, &rows, &bytes, &error) != HC_OK) {
        PyErr_SetString(PyExc_ValueError, "inside: a pattern, or no rows of this format");
        return false;
    }
    inside->factor = NULL;
    if (factor_object != Py_None) {
        if (!hc_parse_view(factor_object, "inside: factor", factor, held))
            return false;
        bool same = factor->dtype == HC_F32 && factor->ndim == x->ndim;
        for (int i = 0; i < x->ndim && same; i++)
            same = factor->shape[i] == x->shape[i];
        if (!same) {
            PyErr_SetString(PyExc_ValueError, "inside: factor has another shape or dtype than wanted");
            return false;
        }
        inside->factor = factor;
    }
    if (!take_bits(bits, rows, bytes, true, view))
        return false;
    inside->bits = view->buf;
    return true;
}

PyObject *hc_fake_quantize_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *format_object, *axes_object, *clip_object, *out_object, *inside_object = Py_None;
    hc_run run;
    hc_view x, out, factor;
    hc_format format;
    hc_clip clip;
    hc_inside inside;
    int n_axes, axes[HC_MAX_DIMS];
    Py_buffer bits = {0};
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO|O", &run_object, &x_object, &format_object, &axes_object, &clip_object,
                          &out_object, &inside_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_format(format_object, &format) ||
        !hc_parse_axes(axes_object, axes, &n_axes) || !hc_parse_clip(clip_object, &clip) ||
        !hc_parse_view(x_object, "fake_quantize: x", &x, &held) ||
        !hc_parse_view(out_object, "fake_quantize: out", &out, &held) ||
        (inside_object != Py_None &&
         !parse_inside(inside_object, &x, &format, n_axes, axes, &inside, &factor, &bits, &held)))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_fake_quantize(&run, &x, &format, n_axes, axes, &clip, inside_object != Py_None ? &inside : NULL,
                                    &out, &error));
    if (inside_object != Py_None)
        PyBuffer_Release(&bits);
    return hc_finish(status, &error, &held);
}

PyObject *hc_inside_shape_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *format_object, *shape_object, *axes_object;
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS], ndim;
    int64_t shape[HC_MAX_DIMS], rows = 0, bytes = 0;
    hc_error error;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO", &format_object, &shape_object, &axes_object) ||
        !hc_parse_format(format_object, &format) || !hc_parse_sizes(shape_object, "shape", shape, &ndim) ||
        !hc_parse_axes(axes_object, axes, &n_axes))
        return NULL;
    const hc_status status = hc_inside_bytes(&format, ndim, shape, n_axes, axes, &rows, &bytes, &error);
    if (status != HC_OK)
        return hc_finish(status, &error, &held);
    return Py_BuildValue("(LL)", (long long)rows, (long long)bytes);
}

PyObject *hc_keep_inside_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *g_object, *format_object, *axes_object, *bits_object, *out_object;
    hc_run run;
    hc_view g, out;
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS];
    int64_t rows, bytes;
    hc_error error;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO", &run_object, &g_object, &format_object, &axes_object, &bits_object,
                          &out_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_format(format_object, &format) ||
        !hc_parse_axes(axes_object, axes, &n_axes) || !hc_parse_view(g_object, "back: g", &g, &held) ||
        !hc_parse_view(out_object, "back: out", &out, &held))
        return hc_give_up(&held);
    hc_status status = hc_inside_bytes(&format, g.ndim, g.shape, n_axes, axes, &rows, &bytes, &error);
    if (status != HC_OK)
        return hc_finish(status, &error, &held);
    Py_buffer bits;
    if (!take_bits(bits_object, rows, bytes, false, &bits))
        return hc_give_up(&held);
    HC_WITHOUT_GIL(hc_keep_inside(&run, &g, &format, n_axes, axes, bits.buf, &out, &error));
    PyBuffer_Release(&bits);
    return hc_finish(status, &error, &held);
}

PyObject *hc_round_by_chance_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *packed_object, *table_object, *out_object;
    hc_run run;
    hc_view x, out, table;
    hc_packed packed;
    hc_levels levels = {.n = 0};
    unsigned long long seed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(Odddd)KO", &run_object, &x_object, &packed_object, &table_object, &levels.fraction,
                          &levels.least, &levels.low, &levels.high, &seed, &out_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(x_object, "fake_quantize: w", &x, &held) ||
        !hc_parse_packed(packed_object, "fake_quantize: q", false, &packed, &held) ||
        !hc_parse_view(out_object, "fake_quantize: out", &out, &held))
        return hc_give_up(&held);
    if (table_object != Py_None) {
        if (!hc_parse_view(table_object, "levels", &table, &held))
            return hc_give_up(&held);
        if (table.dtype != HC_F64 || table.ndim != 1 || table.strides[0] != 8 || table.shape[0] > 256) {
            PyErr_SetString(PyExc_ValueError, "levels: expected at most 256 contiguous float64");
            return hc_give_up(&held);
        }
        levels.n = (int)table.shape[0];
        levels.table = table.data;
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_round_by_chance(&run, &x, &packed, &levels, seed, &out, &error));
    return hc_finish(status, &error, &held);
}
