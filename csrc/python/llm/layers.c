/* The binding of the layers of a language model. It stops before the first layer with an argument that is not plain or
 * not valid, without side effects in that layer. heterocompute/zoo/llm/run.py then runs the layer step by step, and
 * reports errors. A layer without matrices of a feed-forward part and without experts is its attention alone.
 */
#include "python/llm/parts.h"
#include "python/methods.h"

#include <math.h>
#include <string.h>

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

static bool weights_of(PyObject *weights, PyObject *biases, hc_llm_layer *layer, hc_side side[HC_N_LLM_WEIGHTS],
                       hc_held *held) {
    const hc_latents *latents = layer->latents;
    const int64_t q = layer->heads * layer->head_width, kv = layer->kv_heads * layer->head_width;
    const int64_t width = layer->width, hidden = layer->hidden, out = latents ? layer->heads * latents->value : q;
    const int64_t shape[HC_N_LLM_WEIGHTS][2] = {
        [HC_LLM_Q] = {width, q},         [HC_LLM_K] = {width, kv},
        [HC_LLM_V] = {width, kv},        [HC_LLM_QKV] = {width, q + 2 * kv},
        [HC_LLM_OUT] = {out, width},     [HC_LLM_GATE] = {width, hidden},
        [HC_LLM_UP] = {width, hidden},   [HC_LLM_GATE_UP] = {width, 2 * hidden},
        [HC_LLM_DOWN] = {hidden, width},
    };
    bool there[HC_N_LLM_WEIGHTS];
    for (int i = 0; i < HC_N_LLM_WEIGHTS; i++) {
        PyObject *object = PyTuple_GET_ITEM(weights, i);
        there[i] = object != Py_None;
        if (!there[i])
            continue;
        if (!hc_llm_weight_of(object, layer->activations, shape[i][0], shape[i][1], &side[i], &layer->weight[i],
                              held) ||
            !hc_llm_floats_of(biases, i, shape[i][1], &layer->bias[i]))
            return false;
    }
    const bool has_inner = there[HC_LLM_GATE_UP] || there[HC_LLM_UP];
    const bool has_qkv = there[HC_LLM_QKV] || (there[HC_LLM_Q] && there[HC_LLM_K] && there[HC_LLM_V]);
    return (latents || has_qkv) && there[HC_LLM_OUT] && has_inner == there[HC_LLM_DOWN] &&
           (has_inner || !(there[HC_LLM_GATE] || layer->parallel));
}

/* True if the rows of b directly follow those of a in memory, for every component of a row. */
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
        return hc_llm_is_floats(object, PyArray_SIZE(array)) && PyArray_ISWRITEABLE(array) && hc_hold(held, object) &&
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
        if (!hc_llm_floats_of(norms, i, n, &layer->norm[i]) || !hc_llm_floats_of(biases, i, n, &layer->norm_bias[i]))
            return false;
    }
    return true;
}

/* The numbers (heads, held + n or more) that join the scores, or None. */
static bool key_bias_of(PyObject *object, hc_llm_layer *layer) {
    if (object == Py_None)
        return true;
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(array) != 2 || PyArray_DIM(array, 0) != layer->heads ||
        PyArray_DIM(array, 1) < layer->held + layer->n || !(fabsf(layer->scale) >= 1e-8f) ||
        !hc_llm_is_floats(object, PyArray_SIZE(array)))
        return false;
    layer->key_bias = PyArray_DATA(array);
    layer->key_bias_step = PyArray_DIM(array, 1);
    return true;
}

static bool are_legal(const hc_llm_layer *layer) {
    const int64_t most = 1 << 30, size[] = {layer->batch,    layer->n,          layer->width, layer->heads,
                                            layer->kv_heads, layer->head_width, layer->hidden};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i] < 1 || size[i] > most)
            return false;
    return hc_llm_is_gate(layer->gate) && layer->heads % layer->kv_heads == 0 && layer->half >= 1 &&
           layer->half <= most && (layer->latents || layer->half <= layer->head_width / 2) && layer->held >= 0 &&
           layer->held <= most * most && layer->window >= 0 &&
           (!layer->both_sides || (layer->held == 0 && layer->window == 0 && !layer->latents)) && layer->turned >= 0 &&
           (layer->turned & (layer->turned - 1)) == 0 && (layer->turned == 0 || layer->head_width % layer->turned == 0);
}

/* Runs the layer of a tuple, from x to out. Returns 0 if it ran, 1 if its arguments are not plain or it failed, -1 with
 * an exception. */
static int run_layer(const hc_run *run, PyObject *tuple, const hc_format *activations, PyArrayObject *x,
                     const float *from, float *to) {
    PyObject *norms, *norm_biases, *weights, *biases, *sinks, *key_bias, *cosine, *sine, *q_factor, *k, *v;
    PyObject *experts, *latents;
    int pairs, gate, centered, parallel, head_norm, both_sides;
    long long heads, kv_heads, head_width, hidden, half, window, turned, before;
    hc_llm_layer layer = {.x = from, .out = to, .activations = activations};
    if (!hc_parse_tuple(tuple, "llm_layers: a layer", "(LLLLLpippiLLp)(ffff)O!O!O!O!OOOOOOOOOL", &heads, &kv_heads,
                        &head_width, &hidden, &half, &pairs, &gate, &centered, &parallel, &head_norm, &window, &turned,
                        &both_sides, &layer.epsilon, &layer.scale, &layer.cap, &layer.residual, &PyTuple_Type, &norms,
                        &PyTuple_Type, &norm_biases, &PyTuple_Type, &weights, &PyTuple_Type, &biases, &sinks, &experts,
                        &latents, &key_bias, &cosine, &sine, &q_factor, &k, &v, &before))
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
    hc_side side[HC_N_LLM_WEIGHTS], mixture_side[HC_LLM_MIXTURE_SIDES], latent_side[HC_LLM_LATENT_SIDES];
    hc_mixture mixture = {.factor = 1};
    hc_latents own = {.query = 0};
    hc_error error;
    hc_status status = HC_VALUE;
    layer.mixture = experts != Py_None ? &mixture : NULL;
    layer.latents = latents != Py_None ? &own : NULL;
    bool fits = are_legal(&layer) && hc_llm_floats(cosine, layer.n * half, &layer.cosine) &&
                hc_llm_floats(sine, layer.n * half, &layer.sine) && !layer.cosine == !layer.sine &&
                hc_llm_floats(q_factor, layer.n, &layer.q_factor) && hc_llm_floats(sinks, heads, &layer.sinks) &&
                key_bias_of(key_bias, &layer) && memory_of(k, &layer, &layer.k, &layer.k_floats, &held) &&
                memory_of(v, &layer, &layer.v, &layer.v_floats, &held) && norms_of(norms, norm_biases, &layer) &&
                (!layer.latents || hc_llm_latents_of(latents, &layer, &own, latent_side, &held)) &&
                weights_of(weights, biases, &layer, side, &held) &&
                (!layer.mixture || (!layer.weight[HC_LLM_DOWN].dense && !layer.weight[HC_LLM_DOWN].packed &&
                                    hc_llm_mixture_of(experts, &layer, &mixture, mixture_side, &held)));
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
    if (!PyArray_CheckExact(object) || PyArray_NDIM(x) != 3 || !hc_llm_is_floats(object, PyArray_SIZE(x))) {
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
    if (n < 1 || (n & (n - 1)) != 0 || !hc_llm_is_floats(object, PyArray_SIZE(x)) || !PyArray_ISWRITEABLE(x)) {
        PyErr_SetString(PyExc_ValueError,
                        "rotate_heads: expected contiguous float32 whose last axis is a power of two");
        return hc_give_up(&held);
    }
    hc_error error = {.status = HC_OK}; /* it cannot fail */
    hc_status status;
    HC_WITHOUT_GIL((hc_rotate_heads(&settings.run, PyArray_SIZE(x) / n, n, PyArray_DATA(x)), HC_OK));
    return hc_finish(status, &error, &held);
}
