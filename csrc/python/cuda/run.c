/* The binding of CUDA: calls are planned twice, for the size of their workspace and with it, and launched (call.h). */
#include "python/cuda/call.h"

#include "python/call.h"

#include <string.h>

enum { NO_ROW = -1 };

int hc_cuda_parse_view(PyObject *object, hc_view *view) {
    static const char *const NAMES[] = {"float32", "float64", "float16", "bfloat16"};
    unsigned long long address;
    const char *dtype;
    PyObject *shape, *strides;
    int n_strides;
    if (!PyArg_ParseTuple(object, "KsOO", &address, &dtype, &shape, &strides) ||
        !hc_parse_sizes(shape, "shape", view->shape, &view->ndim) ||
        !hc_parse_sizes(strides, "strides", view->strides, &n_strides))
        return 0;
    view->data = (void *)(uintptr_t)address;
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
    if (!PyArg_ParseTuple(object, "OOOO!|K", &format, &shape, &axes, &PyDict_Type, &components, &prepacked))
        return 0;
    packed->prepacked = (void *)(uintptr_t)prepacked;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    if (!hc_parse_described(format, shape, axes, packed, &geometry, layout))
        return 0;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        PyObject *key = PyUnicode_FromString(HC_COMPONENT_NAMES[i]);
        PyObject *address = key ? PyObject_GetItem(components, key) : NULL;
        Py_XDECREF(key);
        if (!address)
            return 0;
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
    call->allocate = PyTuple_GET_ITEM(args, 2) == Py_None ? NULL : PyTuple_GET_ITEM(args, 2);
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

/* With a workspace, or NULL where the plan needs none. */
static hc_status launch_planned(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    const hc_status status = workspace ? hc_cuda_plan_call(call, workspace, plan, error) : HC_OK;
    return status == HC_OK ? hc_cuda_launch(call->device, plan, call->stream, error) : status;
}

static hc_status launch_alone(const hc_cuda_call *call, hc_cuda_plan *plan, hc_error *error) {
    void *workspace = NULL;
    if (plan->workspace_bytes == 0)
        return launch_planned(call, NULL, plan, error);
    hc_status status = hc_cuda_allocate(call->device, plan->workspace_bytes, call->stream, &workspace, error);
    if (status != HC_OK)
        return status;
    status = launch_planned(call, workspace, plan, error);
    hc_cuda_free(call->device, workspace, call->stream);
    return status;
}

/* Launches, and waits for the first row with a value that the format refuses. */
static hc_status launch_checked(const hc_cuda_call *call, hc_cuda_plan *plan, int64_t *row, hc_error *error) {
    if (hc_cuda_is_captured(call->device, call->stream))
        return hc_fail(error, HC_VALUE,
                       "cuda: the stream is captured into a graph, and this call waits for it: call it before");
    hc_status status = launch_alone(call, plan, error);
    if (status == HC_OK)
        status = hc_cuda_wait(call->device, call->stream, error);
    if (status == HC_OK && *plan->illegal)
        *row = (int64_t)UINT32_MAX - *plan->illegal;
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

static PyObject *finish_planned(const hc_cuda_call *call, hc_cuda_plan *plan) {
    hc_error error = {.argument = NULL};
    int64_t row = NO_ROW;
    hc_status status = hc_cuda_plan_call(call, NULL, plan, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    void *workspace = NULL;
    if (call->allocate && plan->workspace_bytes > 0) {
        workspace = (void *)(uintptr_t)ask_for(call->allocate, plan->workspace_bytes);
        if (!workspace)
            return NULL;
    }
    if (call->allocate)
        HC_WITHOUT_GIL(launch_planned(call, workspace, plan, &error));
    else if (call->checks)
        HC_WITHOUT_GIL(launch_checked(call, plan, &row, &error));
    else
        HC_WITHOUT_GIL(launch_alone(call, plan, &error));
    return status == HC_OK ? PyLong_FromLongLong(row) : hc_raise_driver(status, &error);
}

/* Memory for a plan for a device, or, unless it is 0, for any of that architecture; NULL with an exception. */
hc_cuda_plan *hc_cuda_new_plan(int device, int architecture, bool device_order) {
    hc_cuda_plan *plan = hc_alloc_aligned(sizeof *plan);
    if (!plan) {
        PyErr_NoMemory();
        return NULL;
    }
    plan->architecture = architecture ? architecture : hc_cuda_architecture(device);
    plan->multiprocessors = architecture ? 0 : hc_cuda_multiprocessors(device);
    plan->device_order = device_order;
    plan->illegal = NULL;
    return plan;
}

/* The first row with a value that the format refuses, or -1. */
PyObject *hc_cuda_finish_call(const hc_cuda_call *call) {
    hc_cuda_plan *plan = hc_cuda_new_plan(call->device, 0, call->device_order);
    if (!plan)
        return NULL;
    hc_error error;
    PyObject *answer = NULL;
    if (call->checks && !call->allocate && hc_cuda_lend_word(call->device, &plan->illegal, &error) != HC_OK)
        hc_raise_driver(HC_VALUE, &error);
    else
        answer = finish_planned(call, plan);
    hc_cuda_return_word(plan->illegal);
    hc_free_aligned(plan);
    return answer;
}
