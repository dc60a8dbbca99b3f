/* The binding of a layer of a language model. The answer is None, and nothing has happened that counts, where an argument is
 * anything but plain or anything is wrong: heterocompute/zoo/llm/run.py then goes step by step, which knows every sentence.
 */
#include "python/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

static bool is_floats(PyObject *object, int64_t count) {
    if (!PyArray_CheckExact(object))
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_TYPE(array) == NPY_FLOAT32 && PyArray_ISCARRAY_RO(array) && PyArray_SIZE(array) == count;
}

/* The floats of a member of a tuple, NULL for None; false where it is anything else. */
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
        if (!hc_side_of(object, true, true, &side[i], held) || (layer->activations && side[i].array) ||
            !floats_of(biases, i, shape[i][1], &layer->bias[i]))
            return false;
        const int64_t *found = side[i].array ? side[i].view.shape : side[i].packed.shape;
        if (found[0] != shape[i][0] || found[1] != shape[i][1])
            return false;
        layer->weight[i] = side[i].operand;
    }
    return (there[HC_LLM_QKV] || (there[HC_LLM_Q] && there[HC_LLM_K] && there[HC_LLM_V])) && there[HC_LLM_OUT] &&
           (there[HC_LLM_GATE_UP] || (there[HC_LLM_GATE] && there[HC_LLM_UP])) && there[HC_LLM_DOWN];
}

/* Memory of keys or values, an array (tokens, batch, kv_heads, head_width). */
static bool memory_of(PyObject *object, const hc_llm_layer *layer, const hc_packed **packed, float **floats,
                      hc_held *held) {
    const int64_t row = layer->batch * layer->kv_heads * layer->head_width;
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

static bool are_legal(const hc_llm_layer *layer) {
    const int64_t most = 1 << 30, size[] = {layer->batch,    layer->n,          layer->width, layer->heads,
                                            layer->kv_heads, layer->head_width, layer->hidden};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i] < 1 || size[i] > most)
            return false;
    return layer->heads % layer->kv_heads == 0 && layer->half >= 1 && 2 * layer->half <= layer->head_width &&
           layer->held >= 0 && layer->window >= 0;
}

PyObject *hc_llm_layer_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *format, *x, *cosine, *sine, *norms, *weights, *biases, *k, *v;
    int pairs, gelu;
    long long heads, kv_heads, head_width, hidden, half, window, before;
    hc_llm_layer layer = {0};
    hc_run run;
    hc_format activations;
    if (!PyArg_ParseTuple(args, "O(LLLLLppL)(fff)O!O!O!OOOOOOL", &run_object, &heads, &kv_heads, &head_width, &hidden,
                          &half, &pairs, &gelu, &window, &layer.epsilon, &layer.scale, &layer.cap, &PyTuple_Type,
                          &norms, &PyTuple_Type, &weights, &PyTuple_Type, &biases, &format, &x, &cosine, &sine, &k, &v,
                          &before) ||
        !hc_parse_settings(run_object, &run) || (format != Py_None && !hc_parse_format(format, &activations)))
        return NULL;
    if (PyTuple_GET_SIZE(norms) != HC_N_LLM_NORMS || PyTuple_GET_SIZE(weights) != HC_N_LLM_WEIGHTS ||
        PyTuple_GET_SIZE(biases) != HC_N_LLM_WEIGHTS || !PyArray_CheckExact(x) ||
        PyArray_NDIM((PyArrayObject *)x) != 3) {
        PyErr_SetString(PyExc_ValueError, "llm_layer: wanted 6 norms, 9 weights and biases, and x of three dimensions");
        return NULL;
    }
    npy_intp *shape = PyArray_DIMS((PyArrayObject *)x);
    layer.batch = shape[0];
    layer.n = shape[1];
    layer.width = shape[2];
    layer.heads = heads;
    layer.kv_heads = kv_heads;
    layer.head_width = head_width;
    layer.hidden = hidden;
    layer.half = half;
    layer.window = window;
    layer.held = before;
    layer.pairs = pairs;
    layer.gelu = gelu;
    layer.activations = format != Py_None ? &activations : NULL;
    hc_held held = {.count = 0};
    hc_side side[HC_N_LLM_WEIGHTS];
    PyObject *out = NULL;
    bool fits =
        are_legal(&layer) && is_floats(x, layer.batch * layer.n * layer.width) && is_floats(cosine, layer.n * half) &&
        is_floats(sine, layer.n * half) && memory_of(k, &layer, &layer.k, &layer.k_floats, &held) &&
        memory_of(v, &layer, &layer.v, &layer.v_floats, &held) && weights_of(weights, biases, &layer, side, &held);
    for (int i = 0; fits && i < HC_N_LLM_NORMS; i++)
        fits = floats_of(norms, i, i == HC_LLM_Q_NORM || i == HC_LLM_K_NORM ? head_width : layer.width, &layer.norm[i]);
    if (fits && (out = PyArray_SimpleNew(3, shape, NPY_FLOAT32))) {
        layer.x = PyArray_DATA((PyArrayObject *)x);
        layer.out = PyArray_DATA((PyArrayObject *)out);
        layer.cosine = PyArray_DATA((PyArrayObject *)cosine);
        layer.sine = PyArray_DATA((PyArrayObject *)sine);
        hc_error error;
        hc_status status;
        HC_WITHOUT_GIL(hc_run_llm_layer(&run, &layer, &error));
        if (status != HC_OK)
            Py_CLEAR(out);
        if (status == HC_MEMORY)
            hc_raise(status, &error);
    }
    hc_release(&held);
    return out || PyErr_Occurred() ? out : Py_NewRef(Py_None);
}
