/* The binding of CUDA: calls are planned twice, for the size of their workspace and with it, and launched (call.h). */
#include "python/cuda/call.h"

#include "python/call.h"

#include <stdatomic.h>
#include <string.h>

enum { NO_ROW = -1, OWN_MOST = 4 << 20 /* bytes of a workspace, where the caller has an allocator */ };

int hc_cuda_parse_view(PyObject *object, hc_view *view) {
    static const char *const NAMES[] = {"float32", "float64", "float16", "bfloat16"};
    unsigned long long address;
    const char *dtype;
    PyObject *shape, *strides;
    int n_strides;
    if (!hc_parse_tuple(object, "cuda: view", "KsOO", &address, &dtype, &shape, &strides) ||
        !hc_parse_sizes(shape, "shape", view->shape, &view->ndim) ||
        !hc_parse_sizes(strides, "strides", view->strides, &n_strides))
        return 0;
    view->data = (void *)(uintptr_t)address;
    if (n_strides != view->ndim) {
        PyErr_Format(PyExc_ValueError, "cuda: %d strides for %d dimensions", n_strides, view->ndim);
        return 0;
    }
    view->device = HC_HOST; /* kernels do not look at it */
    for (int i = 0; i < (int)(sizeof NAMES / sizeof *NAMES); i++)
        if (strcmp(NAMES[i], dtype) == 0) {
            view->dtype = (hc_dtype)i;
            return 1;
        }
    PyErr_Format(PyExc_TypeError, "cuda: expected floats, got %s", dtype);
    return 0;
}

int hc_cuda_parse_packed(PyObject *object, hc_packed *packed) {
    PyObject *format, *shape, *axes, *components;
    unsigned long long prepacked = 0;
    *packed = (hc_packed){0};
    if (!hc_parse_tuple(object, "cuda: packed", "OOOO!|K", &format, &shape, &axes, &PyDict_Type, &components,
                        &prepacked))
        return 0;
    packed->prepacked = (void *)(uintptr_t)prepacked;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    if (!hc_parse_described(format, shape, axes, packed, &geometry, layout))
        return 0;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        static PyObject *keys[HC_N_COMPONENTS];
        if (!keys[i])
            keys[i] = PyUnicode_InternFromString(HC_COMPONENT_NAMES[i]);
        PyObject *address = keys[i] ? PyObject_GetItem(components, keys[i]) : NULL;
        if (!address) {
            if (PyErr_ExceptionMatches(PyExc_KeyError))
                PyErr_Format(PyExc_ValueError, "cuda: packed has no %s", HC_COMPONENT_NAMES[i]);
            return 0;
        }
        packed->components.part[i].data = (uint8_t *)(uintptr_t)PyLong_AsUnsignedLongLong(address);
        packed->components.part[i].row_stride = layout[i].per_row ? hc_component_bytes(&layout[i]) : 0;
        Py_DECREF(address);
        if (PyErr_Occurred())
            return 0;
    }
    return 1;
}

int hc_cuda_parse_start(PyObject *args, Py_ssize_t n, hc_cuda_call *call) {
    memset(call, 0, sizeof *call);
    if (PyTuple_GET_SIZE(args) != AFTER_START + n) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", AFTER_START + n, PyTuple_GET_SIZE(args));
        return 0;
    }
    call->device = (int)PyLong_AsLong(PyTuple_GET_ITEM(args, 0));
    call->stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args, 1));
    PyObject *allocate = PyTuple_GET_ITEM(args, 2);
    call->waits = allocate == Py_None;
    call->allocate = PyCallable_Check(allocate) ? allocate : NULL;
    return !PyErr_Occurred();
}

hc_status hc_cuda_plan_call(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    const hc_operand x = {call->has_a ? NULL : &call->x, call->has_a ? &call->a : NULL};
    switch (call->what) {
    case QUANTIZE:
        return hc_cuda_plan_quantize(&call->x, &call->clip, &call->packed, workspace, plan, error);
    case FAKE_QUANTIZE:
        return hc_cuda_plan_fake_quantize(&call->x, &call->clip, &call->format, call->n_axes, call->axes, &call->out,
                                          workspace, plan, error);
    case DEQUANTIZE:
        return hc_cuda_plan_dequantize(&call->packed, call->between, &call->out, workspace, plan, error);
    case CHANCE:
        return hc_cuda_plan_chance(&call->x, &call->clip, &call->packed, &call->levels, call->infinity, call->seed,
                                   &call->out, workspace, plan, error);
    case PASS:
        return hc_cuda_plan_pass(&call->x, call->clip.note.to, (hc_cuda_note_kind)call->clip.note.kind, call->out.data,
                                 plan, error);
    case STEPS:
        return hc_cuda_plan_steps(&call->x, &call->format, call->n_axes, call->axes, &call->scales, call->out.data,
                                  call->slope, plan, error);
    case SLOPE_SUMS:
        return hc_cuda_plan_slope_sums(&call->x, &call->format, call->n_axes, call->axes, call->slope, call->values,
                                       plan, error);
    case PREPACK:
        return hc_cuda_plan_prepack(&call->packed, workspace, plan, error);
    case CONV2D:
        return hc_cuda_plan_conv2d(&call->x, call->has_format ? &call->format : NULL, &call->packed, &call->window,
                                   call->relu, call->bias, &call->out, workspace, plan, error);
    case LAYER:
        return hc_cuda_plan_layer(&call->layer, plan, error);
    case ATTENTION:
        return hc_cuda_plan_attention(&call->attention, workspace, plan, error);
    case PRUNE:
        return hc_cuda_plan_prune(&call->x, call->n, call->m, call->n_axes, call->axes, call->values, call->metadata,
                                  plan, error);
    default:
        return hc_cuda_plan_matmul(&x, call->has_format ? &call->format : NULL, &call->packed, call->bias, &call->out,
                                   workspace, plan, error);
    }
}

/* Bytes of the workspace of earlier calls, by a hash of what it depends on: a guess, which is checked. 0: there was none, or
 * it needs no workspace. With a guess a call is planned once. */
static _Atomic int64_t guesses[256];

static _Atomic int64_t *guess_of(const hc_cuda_call *call) {
    const hc_view *x = &call->x;
    uint64_t hash = (uint64_t)call->what + 131 * (uint64_t)(uintptr_t)call->packed.components.part[HC_CODES].data +
                    31 * (uint64_t)call->has_format + 7 * (uint64_t)call->format.family;
    for (int i = 0; i < x->ndim; i++)
        hash = hash * 0x9e3779b97f4a7c15u + (uint64_t)x->shape[i];
    return &guesses[(hash ^ hash >> 32) % 256];
}

typedef struct {
    bool asks;       /* nothing ran: the caller's memory is needed */
    bool fits;       /* the workspace was large enough */
    bool is_planned; /* an error is the driver's */
    int64_t row;     /* the first with a value that the format refuses */
} run_state;

static hc_status plan_in(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, run_state *state,
                         hc_error *error) {
    const hc_status status = hc_cuda_plan_call(call, workspace, plan, error);
    state->is_planned = status == HC_OK;
    return status;
}

/* Plans and launches with a workspace of our own of so many bytes. */
static hc_status run_in(const hc_cuda_call *call, int64_t bytes, hc_cuda_plan *plan, run_state *state,
                        hc_error *error) {
    void *workspace = NULL;
    state->is_planned = state->fits = true;
    hc_status status = hc_cuda_allocate(call->device, bytes, call->stream, &workspace, error);
    if (status != HC_OK)
        return status;
    status = plan_in(call, workspace, plan, state, error);
    state->fits = status != HC_OK || plan->workspace_bytes <= bytes;
    if (status == HC_OK && state->fits)
        status = hc_cuda_launch(call->device, plan, call->stream, error);
    hc_cuda_free(call->device, workspace, call->stream);
    return status;
}

/* The caller's memory must be used: in a graph, and for much. */
static bool must_ask(const hc_cuda_call *call, int64_t bytes) {
    return call->allocate && (bytes > OWN_MOST || hc_cuda_is_captured(call->device, call->stream));
}

static hc_status run_entered(const hc_cuda_call *call, hc_cuda_plan *plan, run_state *state, hc_error *error) {
    _Atomic int64_t *guess = guess_of(call);
    const int64_t guessed = *guess;
    hc_status status = HC_OK;
    if (guessed && !must_ask(call, guessed)) {
        status = run_in(call, guessed, plan, state, error);
        if (status != HC_MEMORY && state->fits) {
            *guess = status == HC_OK ? plan->workspace_bytes : 0;
            return status;
        }
    }
    status = plan_in(call, NULL, plan, state, error);
    *guess = status == HC_OK ? plan->workspace_bytes : 0;
    if (status != HC_OK)
        return status;
    if (plan->workspace_bytes == 0)
        return hc_cuda_launch(call->device, plan, call->stream, error);
    state->asks = must_ask(call, plan->workspace_bytes);
    return state->asks ? HC_OK : run_in(call, plan->workspace_bytes, plan, state, error);
}

/* Plans and launches, unless the caller's memory must be used. */
static hc_status run_alone(const hc_cuda_call *call, hc_cuda_plan *plan, run_state *state, hc_error *error) {
    hc_status status = hc_cuda_enter(call->device, error);
    if (status != HC_OK)
        return status;
    status = run_entered(call, plan, state, error);
    hc_cuda_leave();
    return status;
}

/* The same, and waits for the first row with a value that the format refuses. */
static hc_status run_checked(const hc_cuda_call *call, hc_cuda_plan *plan, run_state *state, hc_error *error) {
    if (hc_cuda_is_captured(call->device, call->stream))
        return hc_fail(error, HC_VALUE,
                       "cuda: the stream is captured into a graph, and this call waits for it: call it before");
    hc_status status = hc_cuda_lend_word(call->device, &plan->illegal, error);
    if (status == HC_OK)
        status = run_alone(call, plan, state, error);
    if (status == HC_OK)
        status = hc_cuda_wait(call->device, call->stream, error);
    if (status == HC_OK && *plan->illegal)
        state->row = (int64_t)UINT32_MAX - *plan->illegal;
    hc_cuda_return_word(plan->illegal);
    return status;
}

/* An address that `allocate` returns for so many bytes; 0 with an exception. */
static unsigned long long ask_for(PyObject *allocate, int64_t bytes) {
    PyObject *answer = PyObject_CallFunction(allocate, "L", (long long)bytes);
    const unsigned long long address = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(answer);
    if (address == 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_MemoryError, "cuda: out of memory");
    return PyErr_Occurred() ? 0 : address;
}

/* With memory of the caller; false with an exception. */
static bool run_with(PyObject *allocate, const hc_cuda_call *call, hc_cuda_plan *plan) {
    hc_error error = {.argument = NULL};
    void *workspace = NULL;
    hc_status status = hc_cuda_plan_call(call, NULL, plan, &error);
    if (status == HC_OK && plan->workspace_bytes > 0) {
        workspace = (void *)(uintptr_t)ask_for(allocate, plan->workspace_bytes);
        if (!workspace)
            return false;
        status = hc_cuda_plan_call(call, workspace, plan, &error);
    }
    if (status != HC_OK) {
        hc_raise(status, &error);
        return false;
    }
    HC_WITHOUT_GIL(hc_cuda_launch(call->device, plan, call->stream, &error));
    if (status != HC_OK)
        hc_raise_driver(status, &error);
    return status == HC_OK;
}

static PyObject *finish_planned(const hc_cuda_call *call, hc_cuda_plan *plan) {
    hc_error error = {.argument = NULL};
    run_state state = {.asks = call->what == PREPACK /* whose memory is kept */, .is_planned = true, .row = NO_ROW};
    hc_status status = HC_OK;
    if (call->checks && call->waits)
        HC_WITHOUT_GIL(run_checked(call, plan, &state, &error));
    else if (!state.asks)
        HC_WITHOUT_GIL(run_alone(call, plan, &state, &error));
    if (status != HC_OK)
        return state.is_planned ? hc_raise_driver(status, &error) : hc_raise(status, &error);
    return state.asks && !run_with(call->allocate, call, plan) ? NULL : PyLong_FromLongLong(state.row);
}

static _Atomic(hc_cuda_plan *) spare; /* of an earlier call: a plan is large */

/* Memory for a plan for a device, or, unless it is 0, for any of that architecture; NULL with an exception. */
hc_cuda_plan *hc_cuda_new_plan(int device, int architecture, bool device_order) {
    hc_cuda_plan *plan = atomic_exchange(&spare, NULL);
    plan = plan ? plan : hc_alloc_aligned(sizeof *plan);
    if (!plan) {
        PyErr_NoMemory();
        return NULL;
    }
    plan->architecture = architecture ? architecture : hc_cuda_architecture(device);
    plan->multiprocessors = architecture ? 0 : hc_cuda_multiprocessors(device);
    plan->device_order = device_order;
    plan->path = NULL;
    plan->illegal = NULL;
    return plan;
}

void hc_cuda_free_plan(hc_cuda_plan *plan) { hc_free_aligned(atomic_exchange(&spare, plan)); }

/* The first row with a value that the format refuses, or -1. */
PyObject *hc_cuda_finish_call(const hc_cuda_call *call) {
    hc_cuda_plan *plan = hc_cuda_new_plan(call->device, 0, call->device_order);
    if (!plan)
        return NULL;
    PyObject *answer = finish_planned(call, plan);
    hc_cuda_free_plan(plan);
    return answer;
}
