/* The binding of the layers of a language model. It stops before the first layer with an argument that is not plain or
 * not valid, without side effects in that layer. heterocompute/zoo/llm/run.py then runs the layer step by step, and
 * reports errors. A layer without matrices of a feed-forward part and without experts is its attention alone.
 */
#include "hc_llm.h"
#include "python/call.h"
#include "python/methods.h"

#include <math.h>
#include <string.h>

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

static bool is_floats(PyObject *object, int64_t count) {
    if (!PyArray_CheckExact(object))
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_TYPE(array) == NPY_FLOAT32 && PyArray_ISCARRAY_RO(array) && PyArray_SIZE(array) == count;
}

/* The floats of an item of a tuple, NULL for None; false if it is anything else. */
static bool floats_of(PyObject *tuple, int i, int64_t count, const float **data) {
    PyObject *object = PyTuple_GET_ITEM(tuple, i);
    *data = NULL;
    if (object == Py_None)
        return true;
    if (!is_floats(object, count))
        return false;
    *data = PyArray_DATA((PyArrayObject *)object);
    return true;
}

static bool weights_of(PyObject *weights, PyObject *biases, hc_llm_layer *layer, hc_side side[HC_N_LLM_WEIGHTS],
                       hc_held *held) {
    const int64_t q = layer->heads * layer->head_width, kv = layer->kv_heads * layer->head_width;
    const int64_t width = layer->width, hidden = layer->hidden;
    const int64_t shape[HC_N_LLM_WEIGHTS][2] = {
        [HC_LLM_Q] = {width, q},         [HC_LLM_K] = {width, kv},
        [HC_LLM_V] = {width, kv},        [HC_LLM_QKV] = {width, q + 2 * kv},
        [HC_LLM_OUT] = {q, width},       [HC_LLM_GATE] = {width, hidden},
        [HC_LLM_UP] = {width, hidden},   [HC_LLM_GATE_UP] = {width, 2 * hidden},
        [HC_LLM_DOWN] = {hidden, width},
    };
    bool there[HC_N_LLM_WEIGHTS];
    for (int i = 0; i < HC_N_LLM_WEIGHTS; i++) {
        PyObject *object = PyTuple_GET_ITEM(weights, i);
        there[i] = object != Py_None;
        if (!there[i])
            continue;
        if (!hc_side_of(object, true, true, &side[i], held) || (layer->activations && side[i].is_dense) ||
            !floats_of(biases, i, shape[i][1], &layer->bias[i]))
            return false;
        const int64_t *found = side[i].is_dense ? side[i].view.shape : side[i].packed.shape;
        if (found[0] != shape[i][0] || found[1] != shape[i][1])
            return false;
        layer->weight[i] = side[i].operand;
    }
    const bool has_inner = there[HC_LLM_GATE_UP] || there[HC_LLM_UP];
    return (there[HC_LLM_QKV] || (there[HC_LLM_Q] && there[HC_LLM_K] && there[HC_LLM_V])) && there[HC_LLM_OUT] &&
           has_inner == there[HC_LLM_DOWN] && (has_inner || !(there[HC_LLM_GATE] || layer->parallel));
}

/* Whether the rows of b directly follow those of a in memory, for every component of a row. */
static bool follows(const hc_operand *a, const hc_operand *b) {
    const hc_packed *first = a->packed, *next = b->packed;
    if (!first || !next || first->prepacked || next->prepacked || first->shape[0] != next->shape[0] ||
        memcmp(&first->format, &next->format, sizeof first->format) != 0)
        return false;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const hc_component *here = &first->components.part[i], *there = &next->components.part[i];
        if (here->data ? here->row_stride == 0 || here->row_stride != there->row_stride ||
                             there->data != here->data + first->shape[1] * here->row_stride
                       : there->data != NULL)
            return false;
    }
    return true;
}

/* Joins weights that multiply the same input and are adjacent in memory to one weight: n of them from `first` on, as
 * `joined`. Returns memory of their biases, to be freed, or NULL. */
static float *join(hc_llm_layer *layer, hc_side *side, hc_llm_weight first, int n, hc_llm_weight joined) {
    hc_operand *weight = layer->weight + first;
    if (weight[n].packed || weight[n].dense) /* the model stores them as one weight */
        return NULL;
    int64_t rows = 0;
    for (int i = 0; i < n; i++) {
        if (!layer->bias[first + i] != !layer->bias[first] || !weight[i].packed ||
            (i > 0 && !follows(weight + i - 1, weight + i)))
            return NULL;
        rows += weight[i].packed->shape[1];
    }
    float *biases = NULL;
    if (layer->bias[first]) {
        biases = PyMem_Malloc((size_t)rows * sizeof *biases);
        if (!biases) /* they stay apart */
            return NULL;
        float *to = biases;
        for (int i = 0; i < n; to += weight[i++].packed->shape[1])
            memcpy(to, layer->bias[first + i], (size_t)weight[i].packed->shape[1] * sizeof *to);
        layer->bias[joined] = biases;
    }
    side[joined].packed = *weight[0].packed;
    side[joined].packed.shape[1] = rows;
    memset(weight, 0, (size_t)n * sizeof *weight);
    layer->weight[joined] = (hc_operand){NULL, &side[joined].packed};
    return biases;
}

/* Memory of keys or values, an array (tokens, batch, kv_heads, head_width). */
static bool memory_of(PyObject *object, const hc_llm_layer *layer, const hc_packed **packed, float **floats,
                      hc_held *held) {
    int64_t row;
    if (layer->both_sides)
        return object == Py_None;
    if (!hc_mul_size(layer->batch, layer->kv_heads, &row) || !hc_mul_size(row, layer->head_width, &row))
        return false;
    if (PyArray_CheckExact(object)) {
        PyArrayObject *array = (PyArrayObject *)object;
        *floats = PyArray_DATA(array);
        return is_floats(object, PyArray_SIZE(array)) && PyArray_ISWRITEABLE(array) && hc_hold(held, object) &&
               PyArray_SIZE(array) / row >= layer->held + layer->n;
    }
    *packed = hc_packed_of(object, held);
    const hc_packed *found = *packed;
    return found && found->ndim == 4 && found->shape[0] >= layer->held + layer->n && found->shape[1] == layer->batch &&
           found->shape[2] == layer->kv_heads && found->shape[3] == layer->head_width && found->n_axes == 1 &&
           found->axes[0] == 3;
}

/* The norms of a layer, and their biases. */
static bool norms_of(PyObject *norms, PyObject *biases, hc_llm_layer *layer) {
    for (int i = 0; i < HC_N_LLM_NORMS; i++) {
        int64_t n = layer->width;
        if (i == HC_LLM_Q_NORM || i == HC_LLM_K_NORM) {
            const int64_t heads = i == HC_LLM_Q_NORM ? layer->heads : layer->kv_heads;
            n = layer->head_norm == HC_LLM_HEADS_ALIKE ? layer->head_width : heads * layer->head_width;
        }
        if (!floats_of(norms, i, n, &layer->norm[i]) || !floats_of(biases, i, n, &layer->norm_bias[i]))
            return false;
    }
    return true;
}

/* The floats of an object, NULL for None; false if it is anything else. */
static bool some_floats(PyObject *object, int64_t count, const float **data) {
    if (object != Py_None && !is_floats(object, count))
        return false;
    *data = object == Py_None ? NULL : PyArray_DATA((PyArrayObject *)object);
    return true;
}

/* The numbers (heads, held + n or more) that join the scores, or None. */
static bool key_bias_of(PyObject *object, hc_llm_layer *layer) {
    if (object == Py_None)
        return true;
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(array) != 2 || PyArray_DIM(array, 0) != layer->heads ||
        PyArray_DIM(array, 1) < layer->held + layer->n || !(fabsf(layer->scale) >= 1e-8f) ||
        !is_floats(object, PyArray_SIZE(array)))
        return false;
    layer->key_bias = PyArray_DATA(array);
    layer->key_bias_step = PyArray_DIM(array, 1);
    return true;
}

static bool is_gate(hc_layer_kind kind) {
    return kind == HC_LAYER_SILU || kind == HC_LAYER_GELU || (kind > HC_LAYER_ROPE && kind < HC_N_LAYERS);
}

static bool are_legal(const hc_llm_layer *layer) {
    const int64_t most = 1 << 30, size[] = {layer->batch,    layer->n,          layer->width, layer->heads,
                                            layer->kv_heads, layer->head_width, layer->hidden};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i] < 1 || size[i] > most)
            return false;
    return is_gate(layer->gate) && layer->heads % layer->kv_heads == 0 && layer->half >= 1 &&
           layer->half <= layer->head_width / 2 && layer->held >= 0 && layer->held <= most * most &&
           layer->window >= 0 && (!layer->both_sides || (layer->held == 0 && layer->window == 0)) &&
           layer->turned >= 0 && (layer->turned & (layer->turned - 1)) == 0 &&
           (layer->turned == 0 || layer->head_width % layer->turned == 0);
}

enum { N_STACKS = 4 };

/* Stacks (experts, rows, columns) and their biases: gate, up, gate_up, down. */
static bool stacks_of(PyObject *stacks, PyObject *biases, hc_experts *given, hc_held *held) {
    const int64_t width = given->width, hidden = given->hidden;
    hc_stack *const stack[N_STACKS] = {&given->gate, &given->up, &given->gate_up, &given->down};
    const int64_t shape[N_STACKS][2] = {{hidden, width}, {hidden, width}, {2 * hidden, width}, {width, hidden}};
    bool there[N_STACKS];
    for (int i = 0; i < N_STACKS; i++) {
        PyObject *object = PyTuple_GET_ITEM(stacks, i);
        hc_stack *one = stack[i];
        there[i] = object != Py_None;
        if (!there[i])
            continue;
        one->rows = shape[i][0];
        one->columns = shape[i][1];
        if (!floats_of(biases, i, given->experts * one->rows, &one->bias))
            return false;
        if (PyArray_CheckExact(object)) {
            PyArrayObject *array = (PyArrayObject *)object;
            if (given->activations || PyArray_NDIM(array) != 3 || PyArray_DIM(array, 0) != given->experts ||
                PyArray_DIM(array, 1) != one->rows || PyArray_DIM(array, 2) != one->columns ||
                !is_floats(object, PyArray_SIZE(array)))
                return false;
            one->data = PyArray_DATA(array);
            continue;
        }
        const hc_packed *found = one->packed = hc_packed_of(object, held);
        if (!found || found->ndim != 3 || found->n_axes != 1 || found->axes[0] != 2 ||
            found->shape[0] != given->experts || found->shape[1] != one->rows || found->shape[2] != one->columns)
            return false;
    }
    return there[3] && (there[2] ? !there[0] && !there[1] : there[0] && there[1]);
}

/* The experts of a layer and their router: None, or a tuple. The operand points into the side. */
static bool mixture_of(PyObject *object, const hc_llm_layer *layer, hc_mixture *mixture, hc_side *side, hc_held *held) {
    const int64_t most = 1 << 30;
    PyObject *router, *bias, *stacks, *biases;
    long long experts, hidden, used;
    int gate, interleaved, sums_to_one;
    hc_experts *given = &mixture->experts;
    if (!hc_parse_tuple(object, "llm_layers: the experts of a layer", "(LLLipp)(fff)OOO!O!", &experts, &hidden, &used,
                        &gate, &interleaved, &sums_to_one, &given->alpha, &given->limit, &mixture->factor, &router,
                        &bias, &PyTuple_Type, &stacks, &PyTuple_Type, &biases))
        return false;
    given->experts = experts;
    given->hidden = hidden;
    given->used = used;
    given->width = layer->width;
    given->kind = (hc_layer_kind)gate;
    given->interleaved = interleaved;
    given->activations = layer->activations;
    mixture->sums_to_one = sums_to_one;
    if (!is_gate(given->kind) || experts < 1 || experts > most || hidden < 1 || hidden > most || used < 1 ||
        used > experts || PyTuple_GET_SIZE(stacks) != N_STACKS || PyTuple_GET_SIZE(biases) != N_STACKS ||
        !some_floats(bias, experts, &mixture->bias) || !hc_side_of(router, true, true, side, held))
        return false;
    const int64_t *found = side->is_dense ? side->view.shape : side->packed.shape;
    mixture->router = side->operand;
    return found[0] == layer->width && found[1] == experts && stacks_of(stacks, biases, given, held);
}

/* Runs the layer of a tuple, from x to out. Returns 0 if it ran, 1 if its arguments are not plain or it failed, -1 with
 * an exception. */
static int run_layer(const hc_run *run, PyObject *tuple, const hc_format *activations, PyArrayObject *x,
                     const float *from, float *to) {
    PyObject *norms, *norm_biases, *weights, *biases, *sinks, *key_bias, *cosine, *sine, *q_factor, *k, *v;
    PyObject *experts;
    int pairs, gate, centered, parallel, head_norm, both_sides;
    long long heads, kv_heads, head_width, hidden, half, window, turned, before;
    hc_llm_layer layer = {.x = from, .out = to, .activations = activations};
    if (!hc_parse_tuple(tuple, "llm_layers: a layer", "(LLLLLpippiLLp)(ffff)O!O!O!O!OOOOOOOOL", &heads, &kv_heads,
                        &head_width, &hidden, &half, &pairs, &gate, &centered, &parallel, &head_norm, &window, &turned,
                        &both_sides, &layer.epsilon, &layer.scale, &layer.cap, &layer.residual, &PyTuple_Type, &norms,
                        &PyTuple_Type, &norm_biases, &PyTuple_Type, &weights, &PyTuple_Type, &biases, &sinks, &experts,
                        &key_bias, &cosine, &sine, &q_factor, &k, &v, &before))
        return -1;
    if (PyTuple_GET_SIZE(norms) != HC_N_LLM_NORMS || PyTuple_GET_SIZE(norm_biases) != HC_N_LLM_NORMS ||
        PyTuple_GET_SIZE(weights) != HC_N_LLM_WEIGHTS || PyTuple_GET_SIZE(biases) != HC_N_LLM_WEIGHTS) {
        PyErr_SetString(PyExc_ValueError, "llm_layers: expected 8 norms with biases and 9 weights with biases");
        return -1;
    }
    layer.batch = PyArray_DIM(x, 0);
    layer.n = PyArray_DIM(x, 1);
    layer.width = PyArray_DIM(x, 2);
    layer.heads = heads;
    layer.kv_heads = kv_heads;
    layer.head_width = head_width;
    layer.hidden = hidden;
    layer.half = half;
    layer.window = window;
    layer.held = before;
    layer.pairs = pairs;
    layer.gate = (hc_layer_kind)gate;
    layer.centered = centered;
    layer.parallel = parallel;
    layer.head_norm = (hc_llm_head_norm)head_norm;
    layer.turned = turned;
    layer.both_sides = both_sides;
    hc_held held = {.count = 0};
    hc_side side[HC_N_LLM_WEIGHTS], router;
    hc_mixture mixture = {.factor = 1};
    hc_error error;
    hc_status status = HC_VALUE;
    layer.mixture = experts != Py_None ? &mixture : NULL;
    bool fits = are_legal(&layer) && some_floats(cosine, layer.n * half, &layer.cosine) &&
                some_floats(sine, layer.n * half, &layer.sine) && !layer.cosine == !layer.sine &&
                some_floats(q_factor, layer.n, &layer.q_factor) && some_floats(sinks, heads, &layer.sinks) &&
                key_bias_of(key_bias, &layer) && memory_of(k, &layer, &layer.k, &layer.k_floats, &held) &&
                memory_of(v, &layer, &layer.v, &layer.v_floats, &held) && norms_of(norms, norm_biases, &layer) &&
                weights_of(weights, biases, &layer, side, &held) &&
                (!layer.mixture || (!layer.weight[HC_LLM_DOWN].dense && !layer.weight[HC_LLM_DOWN].packed &&
                                    mixture_of(experts, &layer, &mixture, &router, &held)));
    if (fits && !PyErr_Occurred()) {
        float *biases[] = {join(&layer, side, HC_LLM_Q, 3, HC_LLM_QKV),
                           join(&layer, side, HC_LLM_GATE, 2, HC_LLM_GATE_UP)};
        HC_WITHOUT_GIL(hc_run_llm_layer(run, &layer, &error));
        PyMem_Free(biases[0]);
        PyMem_Free(biases[1]);
        if (status == HC_MEMORY)
            hc_raise(status, &error);
    }
    hc_release(&held);
    return PyErr_Occurred() ? -1 : status != HC_OK;
}

PyObject *hc_llm_layers_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *format, *object, *layers, *out[2] = {NULL, NULL};
    hc_settings settings;
    hc_held none;
    hc_format activations;
    if (!PyArg_ParseTuple(args, "OOOO!", &run_object, &format, &object, &PyList_Type, &layers) ||
        !hc_parse_settings(run_object, &settings, &none) ||
        (format != Py_None && !hc_parse_format(format, &activations)))
        return NULL;
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(x) != 3 || !is_floats(object, PyArray_SIZE(x))) {
        PyErr_SetString(PyExc_ValueError, "llm_layers: expected x as contiguous float32 of three dimensions");
        return NULL;
    }
    const float *from = PyArray_DATA(x);
    Py_ssize_t done = 0;
    int found = 0;
    for (; found == 0 && done < PyList_GET_SIZE(layers); done += found == 0) {
        PyObject **to = &out[done % 2], *layer = PyList_GET_ITEM(layers, done);
        if (!layer) {
            found = -1;
        } else if (!PyTuple_CheckExact(layer)) {
            PyErr_SetString(PyExc_TypeError, "llm_layers: expected layers as tuples");
            found = -1;
        } else if (!*to && !(*to = PyArray_SimpleNew(3, PyArray_DIMS(x), NPY_FLOAT32))) {
            found = -1;
        } else {
            float *data = PyArray_DATA((PyArrayObject *)*to);
            Py_INCREF(layer); /* another thread may change the list */
            found = run_layer(&settings.run, layer, format != Py_None ? &activations : NULL, x, from, data);
            Py_DECREF(layer);
            from = found == 0 ? data : from;
        }
    }
    PyObject *answer = NULL;
    if (found >= 0)
        answer = Py_BuildValue("On", done > 0 ? out[(done - 1) % 2] : object, done);
    Py_XDECREF(out[0]);
    Py_XDECREF(out[1]);
    return answer;
}

PyObject *hc_rotate_heads_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *object;
    hc_settings settings;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OO", &run_object, &object) || !hc_parse_settings(run_object, &settings, &held))
        return hc_give_up(&held);
    PyArrayObject *x = (PyArrayObject *)object;
    const int ndim = PyArray_CheckExact(object) ? PyArray_NDIM(x) : 0;
    const int64_t n = ndim ? PyArray_DIM(x, ndim - 1) : 0;
    if (n < 1 || (n & (n - 1)) != 0 || !is_floats(object, PyArray_SIZE(x)) || !PyArray_ISWRITEABLE(x)) {
        PyErr_SetString(PyExc_ValueError,
                        "rotate_heads: expected contiguous float32 whose last axis is a power of two");
        return hc_give_up(&held);
    }
    hc_error error = {.status = HC_OK}; /* it cannot fail */
    hc_status status;
    HC_WITHOUT_GIL((hc_rotate_heads(&settings.run, PyArray_SIZE(x) / n, n, PyArray_DATA(x)), HC_OK));
    return hc_finish(status, &error, &held);
}

/* The experts of each token, and the memory of the result. */
static bool tokens_of(PyArrayObject *x, PyObject *picked, PyObject *shares, hc_experts *given) {
    given->tokens = PyArray_DIM(x, 0);
    given->width = PyArray_DIM(x, 1);
    given->x = PyArray_DATA(x);
    if (!PyArray_CheckExact(picked) || given->tokens < 1)
        return false;
    PyArrayObject *array = (PyArrayObject *)picked;
    if (PyArray_TYPE(array) != NPY_INT64 || !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) != 2 ||
        PyArray_DIM(array, 0) != given->tokens || !is_floats(shares, PyArray_SIZE(array)))
        return false;
    given->used = PyArray_DIM(array, 1);
    given->picked = PyArray_DATA(array);
    given->shares = PyArray_DATA((PyArrayObject *)shares);
    for (int64_t i = 0; i < given->tokens * given->used; i++)
        if (given->picked[i] < 0 || given->picked[i] >= given->experts)
            return false;
    return true;
}

PyObject *hc_llm_experts_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *format, *object, *picked, *shares, *stacks, *biases;
    long long experts, hidden;
    int gate, interleaved;
    hc_settings settings;
    hc_held held = {.count = 0};
    hc_format activations;
    hc_experts given = {0};
    if (!PyArg_ParseTuple(args, "OOOOO(LLip)(ff)O!O!", &run_object, &format, &object, &picked, &shares, &experts,
                          &hidden, &gate, &interleaved, &given.alpha, &given.limit, &PyTuple_Type, &stacks,
                          &PyTuple_Type, &biases) ||
        !hc_parse_settings(run_object, &settings, &held) ||
        (format != Py_None && !hc_parse_format(format, &activations)))
        return hc_give_up(&held);
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(x) != 2 || !is_floats(object, PyArray_SIZE(x)) ||
        PyTuple_GET_SIZE(stacks) != N_STACKS || PyTuple_GET_SIZE(biases) != N_STACKS) {
        PyErr_SetString(PyExc_ValueError,
                        "llm_experts: expected x as contiguous float32 of two dimensions and 4 stacks");
        return hc_give_up(&held);
    }
    const int64_t most = 1 << 30;
    given.experts = experts;
    given.hidden = hidden;
    given.kind = (hc_layer_kind)gate;
    given.interleaved = interleaved;
    given.activations = format != Py_None ? &activations : NULL;
    PyObject *out = NULL;
    hc_error error;
    hc_status status = HC_VALUE;
    if (is_gate(given.kind) && experts >= 1 && experts <= most && hidden >= 1 && hidden <= most &&
        tokens_of(x, picked, shares, &given) && stacks_of(stacks, biases, &given, &held) &&
        (out = PyArray_SimpleNew(2, PyArray_DIMS(x), NPY_FLOAT32))) {
        given.out = PyArray_DATA((PyArrayObject *)out);
        HC_WITHOUT_GIL(hc_run_experts(&settings.run, &given, &error));
        if (status == HC_MEMORY)
            hc_raise(status, &error);
    }
    hc_release(&held);
    if (PyErr_Occurred() || status != HC_OK)
        Py_CLEAR(out);
    return out || PyErr_Occurred() ? out : Py_NewRef(Py_None);
}
