/* The binding of CUDA: stochastic rounding, gradients that pass, trained scales. */
#include "python/cuda/call.h"

#include "python/call.h"
#include "python/methods.h"

/* cuda_round_by_chance(..., x, packed, (levels or None, fraction, least, low, high), infinity, seed, out[, clip,
 * note]): packed is where x is quantized to, for its scales. */
PyObject *hc_cuda_chance_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    PyObject *table;
    hc_view levels;
    hc_held held = {.count = 0};
    if (!hc_cuda_parse_rounding(args, 6, &call) || !hc_cuda_parse_view(argument(args, 0), &call.x) ||
        !hc_cuda_parse_packed(argument(args, 1), &call.packed) || !hc_cuda_parse_view(argument(args, 5), &call.out) ||
        !PyTuple_Check(argument(args, 2)) ||
        !PyArg_ParseTuple(argument(args, 2), "Odddd", &table, &call.levels.fraction, &call.levels.least,
                          &call.levels.low, &call.levels.high))
        return NULL;
    call.infinity = (float)PyFloat_AsDouble(argument(args, 3));
    call.seed = PyLong_AsUnsignedLongLong(argument(args, 4));
    if (PyErr_Occurred())
        return NULL;
    if (table != Py_None) {
        if (!hc_parse_view(table, "levels", &levels, &held))
            return hc_give_up(&held);
        if (levels.dtype != HC_F64 || levels.ndim != 1 || levels.strides[0] != 8 || levels.shape[0] > 256) {
            PyErr_SetString(PyExc_ValueError, "levels: expected at most 256 contiguous float64");
            return hc_give_up(&held);
        }
        call.levels.n = (int)levels.shape[0];
        call.levels.table = levels.data;
    }
    call.what = CHANCE;
    PyObject *answer = hc_cuda_finish_call(&call);
    hc_give_up(&held);
    return answer;
}

/* cuda_pass(..., g, address of the note, hc_cuda_note_kind, out) */
PyObject *hc_cuda_pass_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!hc_cuda_parse_start(args, 4, &call) || !hc_cuda_parse_view(argument(args, 0), &call.x) ||
        !hc_cuda_parse_view(argument(args, 3), &call.out))
        return NULL;
    call.clip.note.to = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 1));
    call.clip.note.kind = (int32_t)PyLong_AsLong(argument(args, 2));
    call.what = PASS;
    return PyErr_Occurred() ? NULL : hc_cuda_finish_call(&call);
}

/* (..., x or g, format, axes) */
static int parse_steps(PyObject *args, int n, hc_cuda_call *call) {
    hc_error error;
    if (!hc_cuda_parse_start(args, n, call) || !hc_cuda_parse_view(argument(args, 0), &call->x) ||
        !hc_parse_format(argument(args, 1), &call->format) ||
        !hc_parse_axes(argument(args, 2), call->axes, &call->n_axes))
        return 0;
    const hc_status status = hc_format_check(&call->format, &error);
    if (status != HC_OK)
        hc_raise(status, &error);
    return status == HC_OK;
}

/* cuda_scaled_steps(..., x, format, axes, scales, out, address of slopes) */
PyObject *hc_cuda_scaled_steps_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!parse_steps(args, 6, &call) || !hc_cuda_parse_view(argument(args, 3), &call.scales) ||
        !hc_cuda_parse_view(argument(args, 4), &call.out))
        return NULL;
    call.slope = (float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 5));
    call.what = STEPS;
    return PyErr_Occurred() ? NULL : hc_cuda_finish_call(&call);
}

/* cuda_slope_sums(..., g, format, axes, address of slopes, address of out) */
PyObject *hc_cuda_slope_sums_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!parse_steps(args, 5, &call))
        return NULL;
    call.slope = (float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 3));
    call.values = (float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 4));
    call.what = SLOPE_SUMS;
    return PyErr_Occurred() ? NULL : hc_cuda_finish_call(&call);
}
