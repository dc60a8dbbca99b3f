/* The binding of rounding for training: fake_quantize, the values whose gradient passes, and stochastic rounding. */
#include "python/arguments.h"
#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

#include <string.h>

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

/* On a device, where `inside` is a note of the gradient. */
static PyObject *device_fake_quantize(hc_settings *settings, const hc_view *x, const hc_format *format, int n_axes,
                                      const int *axes, const hc_clip *clip, PyObject *note, const hc_view *out,
                                      hc_held *held) {
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS];
    hc_error error;
    hc_cuda_call call = {.what = FAKE_QUANTIZE, .x = *x, .format = *format, .n_axes = n_axes, .out = *out};
    memcpy(call.axes, axes, sizeof call.axes);
    call.clip.clip = *clip;
    if (!hc_cuda_parse_note(note, &call.clip.note))
        return hc_give_up(held);
    const hc_status status = hc_layout(format, x->ndim, x->shape, n_axes, axes, &geometry, layout, &error);
    return status == HC_OK ? hc_cuda_finish(settings, &call, held) : hc_finish(status, &error, held);
}

PyObject *hc_fake_quantize_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *format_object, *axes_object, *clip_object, *out_object, *inside_object = Py_None;
    hc_settings settings;
    hc_view x, out, factor;
    hc_format format;
    hc_clip clip;
    hc_inside inside;
    int n_axes, axes[HC_MAX_DIMS];
    Py_buffer bits = {0};
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO|O", &run_object, &x_object, &format_object, &axes_object, &clip_object,
                          &out_object, &inside_object) ||
        !hc_parse_call(run_object, &settings, &held) || !hc_parse_format(format_object, &format) ||
        !hc_parse_axes(axes_object, axes, &n_axes) || !hc_parse_clip(clip_object, &clip) ||
        !hc_parse_view(x_object, "fake_quantize: x", &x, &held) ||
        !hc_parse_view(out_object, "fake_quantize: out", &out, &held))
        return hc_give_up(&held);
    if (settings.run.device != HC_HOST)
        return device_fake_quantize(&settings, &x, &format, n_axes, axes, &clip, inside_object, &out, &held);
    if (inside_object != Py_None &&
        !parse_inside(inside_object, &x, &format, n_axes, axes, &inside, &factor, &bits, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_fake_quantize(&settings.run, &x, &format, n_axes, axes, &clip,
                                    inside_object != Py_None ? &inside : NULL, &out, &error));
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
    hc_settings settings;
    hc_view g, out;
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS];
    int64_t rows, bytes;
    hc_error error;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO", &run_object, &g_object, &format_object, &axes_object, &bits_object,
                          &out_object) ||
        !hc_parse_call(run_object, &settings, &held) || !hc_parse_view(g_object, "back: g", &g, &held) ||
        !hc_parse_view(out_object, "back: out", &out, &held))
        return hc_give_up(&held);
    if (settings.run.device != HC_HOST) { /* format and axes do not matter there */
        hc_cuda_call call = {.what = PASS, .x = g, .out = out};
        return hc_cuda_parse_note(bits_object, &call.clip.note) ? hc_cuda_finish(&settings, &call, &held)
                                                                : hc_give_up(&held);
    }
    if (!hc_parse_format(format_object, &format) || !hc_parse_axes(axes_object, axes, &n_axes))
        return hc_give_up(&held);
    hc_status status = hc_inside_bytes(&format, g.ndim, g.shape, n_axes, axes, &rows, &bytes, &error);
    if (status != HC_OK)
        return hc_finish(status, &error, &held);
    Py_buffer bits;
    if (!take_bits(bits_object, rows, bytes, false, &bits))
        return hc_give_up(&held);
    HC_WITHOUT_GIL(hc_keep_inside(&settings.run, &g, &format, n_axes, axes, bits.buf, &out, &error));
    PyBuffer_Release(&bits);
    return hc_finish(status, &error, &held);
}

PyObject *hc_round_by_chance_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *packed_object, *table_object, *out_object, *clip = Py_None, *note = Py_None;
    float infinity = 0;
    hc_settings settings;
    hc_view x, out, table;
    hc_packed packed;
    hc_levels levels = {.n = 0};
    unsigned long long seed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(Odddd)KO|fOO", &run_object, &x_object, &packed_object, &table_object,
                          &levels.fraction, &levels.least, &levels.low, &levels.high, &seed, &out_object, &infinity,
                          &clip, &note) ||
        !hc_parse_call(run_object, &settings, &held) || !hc_parse_view(x_object, "fake_quantize: w", &x, &held) ||
        !hc_parse_packed(packed_object, "fake_quantize: q", false, &packed, &held) ||
        !hc_parse_view(out_object, "fake_quantize: out", &out, &held))
        return hc_give_up(&held);
    if (table_object != Py_None) {
        held.device = HC_HOST; /* the table is read when the call is planned */
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
    if (settings.run.device != HC_HOST) {
        hc_cuda_call call = {.what = CHANCE, .x = x, .packed = packed, .levels = levels, .seed = seed, .out = out};
        call.infinity = infinity;
        return hc_parse_clip(clip, &call.clip.clip) && hc_cuda_parse_note(note, &call.clip.note)
                   ? hc_cuda_finish(&settings, &call, &held)
                   : hc_give_up(&held);
    }
    HC_WITHOUT_GIL(hc_round_by_chance(&settings.run, &x, &packed, &levels, seed, &out, &error));
    return hc_finish(status, &error, &held);
}

/* Fills what both functions of a trained scale begin with: (run of a device, x or g, format, axes, ...). */
static bool parse_scaled(PyObject *run, PyObject *x, PyObject *format, PyObject *axes, hc_settings *settings,
                         hc_cuda_call *call, hc_held *held) {
    hc_error error;
    if (!hc_parse_call(run, settings, held) || !hc_parse_view(x, "fake_quantize: w", &call->x, held) ||
        !hc_parse_format(format, &call->format) || !hc_parse_axes(axes, call->axes, &call->n_axes))
        return false;
    const hc_status status = settings->run.device == HC_HOST
                                 ? hc_fail(&error, HC_UNSUPPORTED, "fake_quantize: expected arrays on a device")
                                 : hc_format_check(&call->format, &error);
    if (status != HC_OK)
        hc_raise(status, &error);
    return status == HC_OK;
}

PyObject *hc_scaled_steps_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run, *x, *format, *axes, *scales, *out;
    unsigned long long slopes;
    hc_settings settings;
    hc_cuda_call call = {.what = STEPS};
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOK", &run, &x, &format, &axes, &scales, &out, &slopes) ||
        !parse_scaled(run, x, format, axes, &settings, &call, &held) ||
        !hc_parse_view(scales, "fake_quantize: scale", &call.scales, &held) ||
        !hc_parse_view(out, "fake_quantize: out", &call.out, &held))
        return hc_give_up(&held);
    call.slope = (float *)(uintptr_t)slopes;
    return hc_cuda_finish(&settings, &call, &held);
}

PyObject *hc_slope_sums_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run, *g, *format, *axes;
    unsigned long long slopes, out;
    hc_settings settings;
    hc_cuda_call call = {.what = SLOPE_SUMS};
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOKK", &run, &g, &format, &axes, &slopes, &out) ||
        !parse_scaled(run, g, format, axes, &settings, &call, &held))
        return hc_give_up(&held);
    call.slope = (float *)(uintptr_t)slopes;
    call.values = (float *)(uintptr_t)out;
    return hc_cuda_finish(&settings, &call, &held);
}
