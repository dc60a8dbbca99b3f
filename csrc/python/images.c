/* The binding of gradients of filters and of pooling: parse -> view -> release the GIL -> call -> status. */
#include "python/call.h"
#include "python/methods.h"

PyObject *hc_conv2d_gradient_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *dy_object, *x_object, *dw_object;
    long long s0, s1, p0, p1, d0, d1, groups;
    hc_run run;
    hc_view dy, x, dw;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO(LL)(LL)(LL)LO", &run_object, &dy_object, &x_object, &s0, &s1, &p0, &p1, &d0, &d1,
                          &groups, &dw_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(dy_object, "conv2d_gradient: dy", &dy, &held) ||
        !hc_parse_view(x_object, "conv2d_gradient: x", &x, &held) ||
        !hc_parse_view(dw_object, "conv2d_gradient: dw", &dw, &held))
        return hc_give_up(&held);
    const hc_window window = {.stride = {s0, s1}, .pad_before = {p0, p1}, .dilation = {d0, d1}, .groups = groups};
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_conv2d_gradient(&run, &dy, &x, &window, &dw, &error));
    return hc_finish(status, &error, &held);
}

/* Whether a view is contiguous float32 with four dimensions. */
static bool is_plain(const hc_view *view) {
    int64_t size = sizeof(float);
    bool plain = view->dtype == HC_F32 && view->ndim == 4 && (uintptr_t)view->data % sizeof(float) == 0;
    for (int i = view->ndim - 1; i >= 0 && plain; size *= view->shape[i--])
        plain = view->shape[i] == 1 || view->strides[i] == size;
    return plain;
}

PyObject *hc_pool2d_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *out_object;
    long long r, s, s0, s1, p0, p1;
    int means;
    hc_run run;
    hc_view x, out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOp(LL)(LL)(LL)O", &run_object, &x_object, &means, &r, &s, &s0, &s1, &p0, &p1,
                          &out_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(x_object, "pool2d: x", &x, &held) ||
        !hc_parse_view(out_object, "pool2d: out", &out, &held))
        return hc_give_up(&held);
    if (!is_plain(&x) || !is_plain(&out) || x.shape[0] != out.shape[0] || x.shape[1] != out.shape[1] || r < 1 ||
        s < 1 || s0 < 1 || s1 < 1 || p0 < 0 || p1 < 0) {
        PyErr_SetString(PyExc_ValueError, "pool2d: expected contiguous float32 (N, C, H, W), and windows");
        return hc_give_up(&held);
    }
    const hc_pool pool = {.planes = x.shape[0] * x.shape[1],
                          .height = x.shape[2],
                          .width = x.shape[3],
                          .out_height = out.shape[2],
                          .out_width = out.shape[3],
                          .size = {r, s},
                          .stride = {s0, s1},
                          .pad_before = {p0, p1},
                          .x = x.data,
                          .out = out.data,
                          .means = means};
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_pool2d(&run, &pool, &error));
    return hc_finish(status, &error, &held);
}
