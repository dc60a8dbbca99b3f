/* The binding of the experts of a language model's layer. */
#include "python/llm/parts.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

bool hc_llm_stacks_of(PyObject *stacks, PyObject *biases, hc_experts *given, hc_held *held) {
    const int64_t width = given->width, hidden = given->hidden;
    hc_stack *const stack[HC_LLM_STACKS] = {&given->gate, &given->up, &given->gate_up, &given->down};
    const int64_t shape[HC_LLM_STACKS][2] = {{hidden, width}, {hidden, width}, {2 * hidden, width}, {width, hidden}};
    bool there[HC_LLM_STACKS];
    for (int i = 0; i < HC_LLM_STACKS; i++) {
        PyObject *object = PyTuple_GET_ITEM(stacks, i);
        hc_stack *one = stack[i];
        there[i] = object != Py_None;
        if (!there[i])
            continue;
        one->rows = shape[i][0];
        one->columns = shape[i][1];
        if (!hc_llm_floats_of(biases, i, given->experts * one->rows, &one->bias))
            return false;
        if (PyArray_CheckExact(object)) {
            PyArrayObject *array = (PyArrayObject *)object;
            if (given->activations || PyArray_NDIM(array) != 3 || PyArray_DIM(array, 0) != given->experts ||
                PyArray_DIM(array, 1) != one->rows || PyArray_DIM(array, 2) != one->columns ||
                !hc_llm_is_floats(object, PyArray_SIZE(array)))
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

/* Experts that every token uses, or None. Sides 1 to 4 of the mixture belong to them. */
static bool shared_of(PyObject *object, const hc_llm_layer *layer, hc_shared_experts *shared, hc_side *side,
                      hc_held *held) {
    enum { WEIGHTS = 4, BIASES = 3 };
    long long hidden;
    PyObject *weights, *biases;
    if (object == Py_None)
        return true;
    if (!hc_parse_tuple(object, "llm_layers: the shared experts of a layer", "LO!O!", &hidden, &PyTuple_Type, &weights,
                        &PyTuple_Type, &biases))
        return false;
    if (hidden < 1 || hidden > 1 << 30 || PyTuple_GET_SIZE(weights) != WEIGHTS || PyTuple_GET_SIZE(biases) != BIASES)
        return false;
    const int64_t width = layer->width;
    const int64_t shape[WEIGHTS][2] = {{width, hidden}, {width, hidden}, {hidden, width}, {width, 1}};
    hc_operand *const weight[WEIGHTS] = {&shared->gate, &shared->up, &shared->down, &shared->scale};
    const float **const bias[BIASES] = {&shared->gate_bias, &shared->up_bias, &shared->down_bias};
    shared->hidden = hidden;
    for (int i = 0; i < WEIGHTS; i++) {
        PyObject *one = PyTuple_GET_ITEM(weights, i);
        const bool is_scale = i == BIASES;
        if ((one == Py_None && !is_scale) ||
            !hc_llm_weight_of(one, is_scale ? NULL : layer->activations, shape[i][0], shape[i][1], &side[i], weight[i],
                              held) ||
            (!is_scale && !hc_llm_floats_of(biases, i, shape[i][1], bias[i])))
            return false;
    }
    return true;
}

bool hc_llm_mixture_of(PyObject *object, const hc_llm_layer *layer, hc_mixture *mixture,
                       hc_side side[HC_LLM_MIXTURE_SIDES], hc_held *held) {
    const int64_t most = 1 << 30;
    PyObject *router, *bias, *correction, *stacks, *biases, *shared;
    long long experts, hidden, used, groups, groups_used;
    int gate, interleaved, sums_to_one, route, sums_two;
    hc_experts *given = &mixture->experts;
    if (!hc_parse_tuple(object, "llm_layers: the experts of a layer", "(LLLippiLLp)(ffff)OOOO!O!O", &experts, &hidden,
                        &used, &gate, &interleaved, &sums_to_one, &route, &groups, &groups_used, &sums_two,
                        &given->alpha, &given->limit, &mixture->factor, &mixture->noise, &router, &bias, &correction,
                        &PyTuple_Type, &stacks, &PyTuple_Type, &biases, &shared))
        return false;
    given->experts = experts;
    given->hidden = hidden;
    given->used = used;
    given->width = layer->width;
    given->kind = (hc_layer_kind)gate;
    given->interleaved = interleaved;
    given->activations = layer->activations;
    mixture->sums_to_one = sums_to_one;
    mixture->route = (hc_expert_route)route;
    mixture->groups = groups;
    mixture->groups_used = groups_used;
    mixture->sums_two = sums_two;
    if (!hc_llm_is_gate(given->kind) || experts < 1 || experts > most || hidden < 1 || hidden > most || used < 1 ||
        used > experts || route < 0 || route >= HC_N_ROUTES_OF_EXPERTS || (route == HC_ROUTE_MIXER && used != 2) ||
        groups < 1 || experts % groups || groups_used < 1 || groups_used > groups ||
        (sums_two && experts / groups < 2) || PyTuple_GET_SIZE(stacks) != HC_LLM_STACKS ||
        PyTuple_GET_SIZE(biases) != HC_LLM_STACKS)
        return false;
    return router != Py_None &&
           hc_llm_weight_of(router, NULL, layer->width, experts, &side[0], &mixture->router, held) &&
           hc_llm_floats(bias, experts, &mixture->bias) && hc_llm_floats(correction, experts, &mixture->correction) &&
           hc_llm_stacks_of(stacks, biases, given, held) && shared_of(shared, layer, &mixture->shared, side + 1, held);
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
        PyArray_DIM(array, 0) != given->tokens || !hc_llm_is_floats(shares, PyArray_SIZE(array)))
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
    if (!PyArray_CheckExact(object) || PyArray_NDIM(x) != 2 || !hc_llm_is_floats(object, PyArray_SIZE(x)) ||
        PyTuple_GET_SIZE(stacks) != HC_LLM_STACKS || PyTuple_GET_SIZE(biases) != HC_LLM_STACKS) {
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
    if (hc_llm_is_gate(given.kind) && experts >= 1 && experts <= most && hidden >= 1 && hidden <= most &&
        tokens_of(x, picked, shares, &given) && hc_llm_stacks_of(stacks, biases, &given, &held) &&
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
