/* The binding of CUDA: operations on arrays on a device.
 *
 *   view = (address, dtype, shape, strides in bytes)      packed = (format, shape, axes, {component: address}[, address of cuda_prepack]), C order
 *
 * Every function has been told legal sizes by heterocompute/arrays/device.py. Functions with a device and a stream begin with both.
 */
#include "python/cuda/call.h"

#include "python/call.h"
#include "python/methods.h"

#include <string.h>

/* None, or (address, hc_cuda_note_kind, low, high). */
static int parse_note(PyObject *object, hc_cuda_note *note) {
    unsigned long long address;
    if (object == Py_None)
        return 1;
    if (!hc_parse_tuple(object, "cuda: note", "Kiff", &address, &note->kind, &note->low, &note->high))
        return 0;
    note->to = (void *)(uintptr_t)address;
    return 1;
}

int hc_cuda_parse_rounding(PyObject *args, int n, hc_cuda_call *call) {
    const int more = PyTuple_GET_SIZE(args) == AFTER_START + n + 2 ? 2 : 0;
    return hc_cuda_parse_start(args, n + more, call) &&
           (!more || (hc_parse_clip(argument(args, n), &call->clip.clip) &&
                      parse_note(argument(args, n + 1), &call->clip.note)));
}

/* (..., x, packed[, clip, None]) */
static int parse_quantize(PyObject *args, hc_cuda_call *call) {
    if (!hc_cuda_parse_rounding(args, 2, call) || !hc_cuda_parse_view(argument(args, 0), &call->x) ||
        !hc_cuda_parse_packed(argument(args, 1), &call->packed))
        return 0;
    call->what = QUANTIZE;
    call->checks = true;
    return 1;
}

/* (..., x, format, axes, out[, clip, note]) */
static int parse_fake_quantize(PyObject *args, hc_cuda_call *call) {
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS];
    hc_error error;
    if (!hc_cuda_parse_rounding(args, 4, call) || !hc_cuda_parse_view(argument(args, 0), &call->x) ||
        !hc_parse_format(argument(args, 1), &call->format) ||
        !hc_parse_axes(argument(args, 2), call->axes, &call->n_axes) ||
        !hc_cuda_parse_view(argument(args, 3), &call->out))
        return 0;
    const hc_status status =
        hc_layout(&call->format, call->x.ndim, call->x.shape, call->n_axes, call->axes, &geometry, layout, &error);
    if (status != HC_OK)
        hc_raise(status, &error);
    call->what = FAKE_QUANTIZE;
    return status == HC_OK;
}

/* (..., packed, out[, what the values are that a pattern drops]) */
static int parse_dequantize(PyObject *args, hc_cuda_call *call) {
    const int more = PyTuple_GET_SIZE(args) == AFTER_START + 3;
    if (!hc_cuda_parse_start(args, 2 + more, call) || !hc_cuda_parse_packed(argument(args, 0), &call->packed) ||
        !hc_cuda_parse_view(argument(args, 1), &call->out))
        return 0;
    call->between = more ? (float)PyFloat_AsDouble(argument(args, 2)) : 0;
    call->what = DEQUANTIZE;
    return !PyErr_Occurred();
}

/* (..., packed): `allocate` is asked for the memory that is kept, unless products read the array as it is stored. */
static int parse_prepack(PyObject *args, hc_cuda_call *call) {
    if (!hc_cuda_parse_start(args, 1, call) || !hc_cuda_parse_packed(argument(args, 0), &call->packed))
        return 0;
    call->what = PREPACK;
    return 1;
}

/* (..., x, whether x is packed, activations or None, w, address of bias or 0, out, whether in the device's order of sums) */
static int parse_matmul(PyObject *args, hc_cuda_call *call) {
    hc_error error;
    if (!hc_cuda_parse_start(args, 7, call))
        return 0;
    PyObject *x = argument(args, 0), *format = argument(args, 2);
    call->has_a = PyObject_IsTrue(argument(args, 1)) == 1;
    call->has_format = format != Py_None;
    if ((call->has_a ? !hc_cuda_parse_packed(x, &call->a) : !hc_cuda_parse_view(x, &call->x)) ||
        (call->has_format && !hc_parse_format(format, &call->format)) ||
        !hc_cuda_parse_packed(argument(args, 3), &call->packed) || !hc_cuda_parse_view(argument(args, 5), &call->out))
        return 0;
    call->bias = (const float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 4));
    call->device_order = PyObject_IsTrue(argument(args, 6)) == 1;
    if (PyErr_Occurred())
        return 0;
    const hc_status status = call->has_format ? hc_format_check(&call->format, &error) : HC_OK;
    if (status != HC_OK) {
        hc_raise(status, &error);
        return 0;
    }
    call->what = MATMUL;
    return 1;
}

/* (..., x as (image, channel, h, w), activations or None, w, window, relu, address of bias or 0, out); the window is (stride,
 * padding before, dilation, groups), pairs of (down, across). */
static int parse_conv2d(PyObject *args, hc_cuda_call *call) {
    hc_error error;
    if (!hc_cuda_parse_start(args, 7, call))
        return 0;
    PyObject *format = argument(args, 1), *window = argument(args, 3);
    call->has_format = format != Py_None;
    long long stride[2], pad[2], dilation[2], groups;
    if (!hc_cuda_parse_view(argument(args, 0), &call->x) ||
        (call->has_format && !hc_parse_format(format, &call->format)) ||
        !hc_cuda_parse_packed(argument(args, 2), &call->packed) || !hc_cuda_parse_view(argument(args, 6), &call->out) ||
        !hc_parse_tuple(window, "cuda: window", "(LL)(LL)(LL)L", &stride[0], &stride[1], &pad[0], &pad[1], &dilation[0],
                        &dilation[1], &groups))
        return 0;
    call->window = (hc_window){{stride[0], stride[1]}, {pad[0], pad[1]}, {dilation[0], dilation[1]}, groups};
    call->relu = PyObject_IsTrue(argument(args, 4)) == 1;
    call->bias = (const float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 5));
    if (PyErr_Occurred())
        return 0;
    const hc_status status = call->has_format ? hc_format_check(&call->format, &error) : HC_OK;
    if (status != HC_OK)
        hc_raise(status, &error);
    call->what = CONV2D;
    return status == HC_OK;
}

#define HC_CUDA_METHOD(name)                                                                                           \
    PyObject *hc_cuda_##name##_method(PyObject *self, PyObject *args) {                                                \
        (void)self;                                                                                                    \
        hc_cuda_call call;                                                                                             \
        return parse_##name(args, &call) ? hc_cuda_finish_call(&call) : NULL;                                          \
    }
HC_CUDA_METHOD(quantize)
HC_CUDA_METHOD(fake_quantize)
HC_CUDA_METHOD(dequantize)
HC_CUDA_METHOD(prepack)
HC_CUDA_METHOD(matmul)
HC_CUDA_METHOD(conv2d)
#undef HC_CUDA_METHOD

/* (bytes of the workspace, [(kernel, grid, threads of a block, bytes of shared memory)]) of a plan. */
static PyObject *describe_plan(const hc_cuda_plan *plan) {
    PyObject *steps = PyList_New(0);
    for (int i = 0; steps && i < plan->n; i++) {
        const hc_cuda_step *step = &plan->step[i];
        PyObject *one = Py_BuildValue("(s(III)II)", step->kernel, step->grid[0], step->grid[1], step->grid[2],
                                      step->block[0] * step->block[1] * step->block[2], step->shared_bytes);
        if (!one || PyList_Append(steps, one) != 0)
            Py_CLEAR(steps);
        Py_XDECREF(one);
    }
    return steps ? Py_BuildValue("(LN)", (long long)plan->workspace_bytes, steps) : NULL;
}

/* cuda_steps(name of a method, its arguments[, architecture]), which launches nothing: addresses may be 0. */
PyObject *hc_cuda_steps_method(PyObject *self, PyObject *args) {
    (void)self;
    static const struct {
        const char *name;
        int (*parse)(PyObject *args, hc_cuda_call *call);
    } METHODS[] = {{"quantize", parse_quantize},     {"fake_quantize", parse_fake_quantize},
                   {"dequantize", parse_dequantize}, {"prepack", parse_prepack},
                   {"matmul", parse_matmul},         {"conv2d", parse_conv2d}};
    const char *name;
    PyObject *arguments;
    int architecture = 0;
    if (!PyArg_ParseTuple(args, "sO!|i", &name, &PyTuple_Type, &arguments, &architecture))
        return NULL;
    size_t i = 0;
    while (i < sizeof METHODS / sizeof *METHODS && strcmp(METHODS[i].name, name) != 0)
        i++;
    if (i == sizeof METHODS / sizeof *METHODS)
        return PyErr_Format(PyExc_ValueError, "cuda_steps: there is no method %s", name);
    hc_cuda_call call;
    if (!METHODS[i].parse(arguments, &call))
        return NULL;
    hc_cuda_plan *plan = hc_cuda_new_plan(call.device, architecture, call.device_order);
    if (!plan)
        return NULL;
    hc_error error = {.argument = NULL};
    const hc_status status = hc_cuda_plan_call(&call, NULL, plan, &error);
    PyObject *answer = status == HC_OK ? describe_plan(plan) : hc_raise(status, &error);
    hc_cuda_free_plan(plan);
    return answer;
}

/* cuda_prune(..., x, n, m, axes, address of values, address of metadata) */
PyObject *hc_cuda_prune_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!hc_cuda_parse_start(args, 6, &call) || !hc_cuda_parse_view(argument(args, 0), &call.x) ||
        !hc_parse_axes(argument(args, 3), call.axes, &call.n_axes))
        return NULL;
    call.n = (int)PyLong_AsLong(argument(args, 1));
    call.m = (int)PyLong_AsLong(argument(args, 2));
    call.values = (float *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 4));
    call.metadata = (uint8_t *)(uintptr_t)PyLong_AsUnsignedLongLong(argument(args, 5));
    if (PyErr_Occurred())
        return NULL;
    call.what = PRUNE;
    call.checks = true;
    return hc_cuda_finish_call(&call);
}

/* cuda_layer(..., kind, rows, n, addresses of x, weight, bias and y, epsilon, half, repeat, turns, whether of pairs): as layer of
 * csrc/python/layers.c; an address may be 0 where that has None. */
PyObject *hc_cuda_layer_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    int kind, pairs;
    long long rows, n, half, repeat, turns;
    unsigned long long x, weight, bias, y;
    if (!hc_cuda_parse_start(args, 12, &call))
        return NULL;
    PyObject *rest = PyTuple_GetSlice(args, AFTER_START, AFTER_START + 12);
    const bool fits = rest && PyArg_ParseTuple(rest, "iLLKKKKfLLLp", &kind, &rows, &n, &x, &weight, &bias, &y,
                                               &call.layer.epsilon, &half, &repeat, &turns, &pairs);
    Py_XDECREF(rest);
    if (!fits)
        return NULL;
    if (kind < 0 || kind >= HC_N_LAYERS ||
        (kind == HC_LAYER_ROPE && (half < 0 || 2 * half > n || repeat < 1 || turns < 1)))
        return PyErr_Format(PyExc_ValueError, "layer: sizes that do not fit");
    call.layer.kind = (hc_layer_kind)kind;
    call.layer.rows = rows;
    call.layer.n = n;
    call.layer.x = (const float *)(uintptr_t)x;
    call.layer.weight = (const float *)(uintptr_t)weight;
    call.layer.bias = (const float *)(uintptr_t)bias;
    call.layer.y = (float *)(uintptr_t)y;
    call.layer.half = half;
    call.layer.repeat = repeat;
    call.layer.turns = turns;
    call.layer.pairs = pairs;
    call.what = LAYER;
    return hc_cuda_finish_call(&call);
}

/* The steps in floats of a view (batch, head, token, width) whose last axis is contiguous. */
static int parse_heads(PyObject *object, hc_view *view, int64_t step[3]) {
    if (!hc_cuda_parse_view(object, view))
        return 0;
    bool fits = view->dtype == HC_F32 && view->ndim == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = view->shape[i] <= 1 || (i < 3 ? view->strides[i] % 4 == 0 : view->strides[i] == 4);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "cuda_attention: expected float32 (batch, heads, tokens, width)");
        return 0;
    }
    for (int i = 0; i < 3; i++)
        step[i] = view->strides[i] / 4;
    return 1;
}

/* A view, or (packed, steps in rows, (heads of all batches, tokens, width)); then that shape. */
static int parse_kept(PyObject *object, hc_kept *kept, hc_packed *packed, int64_t shape[3]) {
    hc_view view;
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 3) {
        if (!parse_heads(object, &view, kept->step))
            return 0;
        kept->data = view.data;
        shape[0] = view.shape[0] * view.shape[1];
        shape[1] = view.shape[2];
        shape[2] = view.shape[3];
        return 1;
    }
    PyObject *packed_object;
    long long step[3], sizes[3];
    if (!hc_parse_tuple(object, "cuda: heads", "O(LLL)(LLL)", &packed_object, &step[0], &step[1], &step[2], &sizes[0],
                        &sizes[1], &sizes[2]) ||
        !hc_cuda_parse_packed(packed_object, packed))
        return 0;
    for (int i = 0; i < 3; i++) {
        kept->step[i] = step[i];
        shape[i] = sizes[i];
    }
    kept->packed = packed;
    return 1;
}

/* cuda_attention(..., q, k, v, out, kv_heads, causal, window, scale, cap): as attention of csrc/python/layers.c */
PyObject *hc_cuda_attention_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    hc_attention *given = &call.attention;
    hc_view out;
    int64_t shape[2][3];
    if (!hc_cuda_parse_start(args, 9, &call) || !parse_heads(argument(args, 0), &call.x, given->q_step) ||
        !PyTuple_Check(argument(args, 1)) || !parse_kept(argument(args, 1), &given->k, &call.kept[0], shape[0]) ||
        !PyTuple_Check(argument(args, 2)) || !parse_kept(argument(args, 2), &given->v, &call.kept[1], shape[1]) ||
        !parse_heads(argument(args, 3), &out, given->out_step))
        return NULL;
    given->kv_heads = PyLong_AsLongLong(argument(args, 4));
    given->causal = PyObject_IsTrue(argument(args, 5)) == 1;
    given->window = PyLong_AsLongLong(argument(args, 6));
    given->scale = (float)PyFloat_AsDouble(argument(args, 7));
    given->cap = (float)PyFloat_AsDouble(argument(args, 8));
    if (PyErr_Occurred())
        return NULL;
    const int64_t *sizes = call.x.shape;
    bool fits = given->kv_heads > 0 && given->window >= 0 && shape[0][0] == sizes[0] * given->kv_heads &&
                shape[0][2] == sizes[3];
    for (int i = 0; i < 4; i++)
        fits = fits && sizes[i] == out.shape[i] && (i == 3 || shape[0][i] == shape[1][i]);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "attention: shapes that do not fit");
    given->batch = sizes[0];
    given->heads = sizes[1];
    given->n = sizes[2];
    given->width = sizes[3];
    given->m = shape[0][1];
    given->q = call.x.data;
    given->out = out.data;
    call.what = ATTENTION;
    return hc_cuda_finish_call(&call);
}

/* cuda_check(device, address of words, address of answers, whether of warpgroups) */
PyObject *hc_cuda_check_method(PyObject *self, PyObject *args) {
    (void)self;
    int device, of_warpgroups;
    unsigned long long in, out;
    if (!PyArg_ParseTuple(args, "iKKp", &device, &in, &out, &of_warpgroups))
        return NULL;
    hc_error error;
    hc_cuda_plan *plan = hc_cuda_new_plan(device, 0, false);
    if (!plan)
        return NULL;
    hc_status status =
        hc_cuda_plan_check((const uint32_t *)(uintptr_t)in, (uint32_t *)(uintptr_t)out, of_warpgroups, plan, &error);
    const bool is_driver = status == HC_OK;
    if (is_driver) {
        Py_BEGIN_ALLOW_THREADS status = hc_cuda_launch(device, plan, NULL, &error);
        Py_END_ALLOW_THREADS
    }
    hc_cuda_free_plan(plan);
    if (status == HC_OK)
        return Py_NewRef(Py_None);
    return is_driver ? hc_raise_driver(status, &error) : hc_raise(status, &error);
}
