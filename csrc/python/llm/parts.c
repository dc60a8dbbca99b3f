/* The binding of the parts of a language model's layer: floats, weights, and attention over latents. */
#include "python/llm/parts.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

bool hc_llm_is_floats(PyObject *object, int64_t count) {
    if (!PyArray_CheckExact(object))
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_TYPE(array) == NPY_FLOAT32 && PyArray_ISCARRAY_RO(array) && PyArray_SIZE(array) == count;
}

bool hc_llm_floats(PyObject *object, int64_t count, const float **data) {
    if (object != Py_None && !hc_llm_is_floats(object, count))
        return false;
    *data = object == Py_None ? NULL : PyArray_DATA((PyArrayObject *)object);
    return true;
}

bool hc_llm_floats_of(PyObject *tuple, int i, int64_t count, const float **data) {
    return hc_llm_floats(PyTuple_GET_ITEM(tuple, i), count, data);
}

bool hc_llm_is_gate(hc_layer_kind kind) {
    return kind == HC_LAYER_SILU || kind == HC_LAYER_GELU || (kind > HC_LAYER_ROPE && kind < HC_N_LAYERS);
}

bool hc_llm_weight_of(PyObject *object, const hc_format *activations, int64_t columns, int64_t rows, hc_side *side,
                      hc_operand *operand, hc_held *held) {
    if (object == Py_None)
        return true;
    if (!hc_side_of(object, true, true, side, held) || (activations && side->is_dense))
        return false;
    const int64_t *found = side->is_dense ? side->view.shape : side->packed.shape;
    *operand = side->operand;
    return found[0] == columns && found[1] == rows;
}

bool hc_llm_latents_of(PyObject *object, const hc_llm_layer *layer, hc_latents *latents,
                       hc_side side[HC_LLM_LATENT_SIDES], hc_held *held) {
    enum { NORMS = 2, WEIGHTS = HC_LLM_LATENT_SIDES, MAPS = 2, SIZES = 5 };
    const int64_t most = 1 << 30;
    PyObject *norms, *weights, *biases, *maps;
    long long query, keys, plain, rotary, value;
    if (!hc_parse_tuple(object, "llm_layers: the latents of a layer", "(LLLLL)fO!O!O!O!", &query, &keys, &plain,
                        &rotary, &value, &latents->epsilon, &PyTuple_Type, &norms, &PyTuple_Type, &weights,
                        &PyTuple_Type, &biases, &PyTuple_Type, &maps))
        return false;
    const long long size[SIZES] = {query + 1, keys, plain, rotary, value};
    for (int i = 0; i < SIZES; i++)
        if (size[i] < 1 || size[i] > most)
            return false;
    if (PyTuple_GET_SIZE(norms) != NORMS || PyTuple_GET_SIZE(weights) != WEIGHTS ||
        PyTuple_GET_SIZE(biases) != WEIGHTS || PyTuple_GET_SIZE(maps) != MAPS || layer->kv_heads != 1 ||
        layer->head_width != (keys + rotary + 1) / 2 || layer->half > rotary / 2 || !layer->cosine)
        return false;
    latents->query = query;
    latents->keys = keys;
    latents->plain = plain;
    latents->rotary = rotary;
    latents->value = value;
    const int64_t heads = layer->heads, width = layer->width, all = heads * (plain + rotary);
    const int64_t shape[WEIGHTS][2] = {{width, query}, {query ? query : width, all}, {width, keys + rotary}};
    hc_operand *const weight[WEIGHTS] = {&latents->q_a, &latents->q_b, &latents->kv_a};
    const float **const bias[WEIGHTS] = {&latents->q_a_bias, &latents->q_b_bias, &latents->kv_a_bias};
    for (int i = 0; i < WEIGHTS; i++)
        if ((PyTuple_GET_ITEM(weights, i) != Py_None) != (i > 0 || query > 0) ||
            !hc_llm_weight_of(PyTuple_GET_ITEM(weights, i), layer->activations, shape[i][0], shape[i][1], &side[i],
                              weight[i], held) ||
            !hc_llm_floats_of(biases, i, shape[i][1], bias[i]))
            return false;
    int64_t mapped[MAPS]; /* values of each map */
    return hc_llm_floats_of(norms, 0, query, &latents->q_norm) && !latents->q_norm == !query &&
           hc_llm_floats_of(norms, 1, keys, &latents->c_norm) && latents->c_norm &&
           hc_mul_size(heads * plain, keys, &mapped[0]) && hc_mul_size(heads * value, keys, &mapped[1]) &&
           hc_llm_floats_of(maps, 0, mapped[0], &latents->key_map) && latents->key_map &&
           hc_llm_floats_of(maps, 1, mapped[1], &latents->value_map) && latents->value_map;
}
