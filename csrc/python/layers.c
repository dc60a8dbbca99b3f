/* The binding of the layers of transformers, of attention and of pooling: contiguous float32 arrays, whose sizes are
 * checked. */
#include "hc_layers.h"
#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

#include <math.h>

/* The floats of an array, or NULL for None; false with an error unless it is contiguous float32 with `count` values. */
static bool take_floats(PyObject *object, const char *name, int64_t count, float **data, hc_held *held) {
    hc_view view;
    *data = NULL;
    if (object == Py_None)
        return true;
    if (!hc_parse_view(object, name, &view, held))
        return false;
    int64_t size = 4, values = 1;
    bool contiguous = view.dtype == HC_F32;
    for (int i = view.ndim - 1; i >= 0; i--) {
        contiguous = contiguous && (view.shape[i] == 1 || view.strides[i] == size || values == 0);
        values *= view.shape[i];
        size *= view.shape[i];
    }
    if ((!contiguous && count > 0) || view.dtype != HC_F32 || values != count) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld contiguous float32", name, (long long)count);
        return false;
    }
    *data = view.data;
    return true;
}

static bool is_gate(int kind) {
    return kind == HC_LAYER_SILU || kind == HC_LAYER_GELU || (kind > HC_LAYER_ROPE && kind < HC_N_LAYERS);
}

PyObject *hc_layer_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *weight_object, *bias_object, *y_object;
    int kind, pairs;
    long long rows, n, half, repeat, turns;
    int64_t size, weights;
    hc_settings settings;
    hc_layer layer = {0};
    float *x, *weight, *bias, *y;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OiLLOOOOfLLLp", &run_object, &kind, &rows, &n, &x_object, &weight_object, &bias_object,
                          &y_object, &layer.epsilon, &half, &repeat, &turns, &pairs) ||
        !hc_parse_call(run_object, &settings, &held))
        return NULL;
    const bool rope = kind == HC_LAYER_ROPE, gate = is_gate(kind);
    if (kind < 0 || kind >= HC_N_LAYERS || rows < 0 || n < 0 ||
        (rope && (half < 0 || half > n / 2 || repeat < 1 || turns < 1)) || !hc_mul_size(rows, n, &size) ||
        !hc_mul_size(rope ? turns : 0, half, &weights)) {
        PyErr_SetString(PyExc_ValueError, "layer: sizes that do not fit");
        return NULL;
    }
    weights = rope ? weights : gate ? size : n;
    if (!take_floats(x_object, "layer: x", size, &x, &held) ||
        !take_floats(weight_object, "layer: weight", weights, &weight, &held) ||
        !take_floats(bias_object, "layer: bias", rope ? weights : n, &bias, &held) ||
        !take_floats(y_object, "layer: out", size, &y, &held))
        return hc_give_up(&held);
    layer.kind = (hc_layer_kind)kind;
    layer.rows = rows;
    layer.n = n;
    layer.x = x;
    layer.weight = weight;
    layer.bias = bias;
    layer.y = y;
    layer.half = half;
    layer.repeat = repeat;
    layer.turns = turns;
    layer.pairs = pairs;
    if (settings.run.device != HC_HOST) {
        const hc_cuda_call call = {.what = LAYER, .layer = layer};
        return hc_cuda_finish(&settings, &call, &held);
    }
    hc_error error = {.status = HC_OK}; /* layers cannot fail */
    hc_status status;
    HC_WITHOUT_GIL((hc_run_layer(&settings.run, &layer), HC_OK));
    return hc_finish(status, &error, &held);
}

/* Steps in floats of an array (batch, head, token, width) whose last axis is contiguous; false with an error. */
static bool take_heads(PyObject *object, const char *name, hc_view *view, int64_t step[3], hc_held *held) {
    if (!hc_parse_view(object, name, view, held))
        return false;
    bool fits = view->dtype == HC_F32 && view->ndim == 4;
    for (int i = 0; fits && i < 4; i++)
        fits = view->shape[i] <= 1 || (i < 3 ? view->strides[i] % 4 == 0 : view->strides[i] == 4);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s: expected float32 (batch, heads, tokens, width), the last axis contiguous",
                     name);
        return false;
    }
    for (int i = 0; i < 3; i++)
        step[i] = view->strides[i] / 4;
    return true;
}

/* Keys or values of some batches and heads; their (batch * heads, tokens, width) is written to `shape`. */
static bool take_kept(PyObject *object, const char *name, int64_t batch, int64_t heads, hc_kept *kept,
                      hc_packed *packed, int64_t shape[3], hc_held *held) {
    long long step[3], sizes[3];
    hc_view view;
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 3) { /* not (packed, steps, sizes) */
        kept->packed = NULL;
        if (!take_heads(object, name, &view, kept->step, held))
            return false;
        if (view.shape[0] != batch || view.shape[1] != heads) {
            PyErr_Format(PyExc_ValueError, "%s: expected %lld batches of %lld heads", name, (long long)batch,
                         (long long)heads);
            return false;
        }
        kept->data = view.data;
        shape[0] = batch * heads;
        shape[1] = view.shape[2];
        shape[2] = view.shape[3];
        return true;
    }
    PyObject *packed_object;
    if (!hc_parse_tuple(object, name, "O(LLL)(LLL)", &packed_object, &step[0], &step[1], &step[2], &sizes[0], &sizes[1],
                        &sizes[2]) ||
        !hc_parse_packed(packed_object, name, false, packed, held))
        return false;
    for (int i = 0; i < 3; i++) {
        kept->step[i] = step[i];
        shape[i] = sizes[i];
    }
    kept->packed = packed;
    kept->data = NULL;
    return true;
}

PyObject *hc_attention_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *q_object, *k_object, *v_object, *out_object, *sinks_object, *bias_object;
    float *sinks, *bias;
    int causal;
    long long kv_heads, window;
    hc_settings settings;
    hc_attention given = {0};
    hc_packed packed[2];
    hc_view q, out;
    int64_t k_shape[3], v_shape[3];
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOOOLpLffOO", &run_object, &q_object, &k_object, &v_object, &out_object, &kv_heads,
                          &causal, &window, &given.scale, &given.cap, &sinks_object, &bias_object) ||
        !hc_parse_call(run_object, &settings, &held) ||
        !take_heads(q_object, "attention: q", &q, given.q_step, &held) ||
        !take_heads(out_object, "attention: out", &out, given.out_step, &held) ||
        !take_floats(sinks_object, "attention: sinks", q.shape[1], &sinks, &held) ||
        !take_kept(k_object, "attention: k", q.shape[0], kv_heads, &given.k, &packed[0], k_shape, &held) ||
        !take_kept(v_object, "attention: v", q.shape[0], kv_heads, &given.v, &packed[1], v_shape, &held))
        return hc_give_up(&held);
    given.sinks = sinks;
    int64_t rows;
    if (!hc_mul_size(q.shape[1], k_shape[1], &rows) || !take_floats(bias_object, "attention: bias", rows, &bias, &held))
        return hc_give_up(&held);
    given.bias = bias;
    given.bias_step = k_shape[1];
    bool fits = kv_heads > 0 && !(bias && (!(fabsf(given.scale) >= 1e-8f) || settings.run.device != HC_HOST)) &&
                hc_mul_size(q.shape[0], kv_heads, &rows) && k_shape[0] == rows && k_shape[2] == q.shape[3] &&
                window >= 0;
    for (int i = 0; i < 4; i++)
        fits = fits && q.shape[i] == out.shape[i] && (i == 3 || k_shape[i] == v_shape[i]);
    for (int i = 0; i < 3; i++)
        fits = fits && given.k.step[i] >= 0 && given.v.step[i] >= 0;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "attention: shapes that do not fit");
        return hc_give_up(&held);
    }
    given.batch = q.shape[0];
    given.heads = q.shape[1];
    given.kv_heads = kv_heads;
    given.n = q.shape[2];
    given.m = k_shape[1];
    given.width = q.shape[3];
    given.q = q.data;
    given.out = out.data;
    given.causal = causal;
    given.window = window;
    if (settings.run.device != HC_HOST) {
        const hc_cuda_call call = {.what = ATTENTION, .x = q, .attention = given};
        return hc_cuda_finish(&settings, &call, &held);
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_attend_all(&settings.run, &given, &error));
    return hc_finish(status, &error, &held);
}

/* True for contiguous float32 with four dimensions, which needs no copy. */
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
