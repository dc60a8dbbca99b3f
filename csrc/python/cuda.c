/* The binding of CUDA: memory of a device, and operations on arrays there.
 *
 *   view = (address, dtype, shape, strides in bytes)      packed = (format, shape, axes, {component: address}), C order
 *
 * Every function has been told legal sizes by heterocompute/arrays/device.py. Functions with a device and a stream begin with both.
 */
#include "cuda/driver.h"
#include "python/call.h"
#include "python/methods.h"

#include <string.h>

enum { NO_ROW = -1 };

/* Errors of the driver become RuntimeError, except for memory and missing parts. */
static PyObject *raise_driver(hc_status status, const hc_error *error) {
    if (status != HC_VALUE)
        return hc_raise(status, error);
    PyErr_SetString(PyExc_RuntimeError, error->text);
    return NULL;
}

/* Addresses of the planners and modules, for tests that run the kernels on the host. */
PyObject *hc_cuda_addresses_method(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue(
        "{sNsNsNsNsNsNsNsNsNsNsN}", "layer", PyLong_FromVoidPtr((void *)hc_cuda_plan_layer), "attention",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_attention), "check", PyLong_FromVoidPtr((void *)hc_cuda_plan_check), "conv2d",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_conv2d), "quantize", PyLong_FromVoidPtr((void *)hc_cuda_plan_quantize),
        "dequantize", PyLong_FromVoidPtr((void *)hc_cuda_plan_dequantize), "fake_quantize",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_fake_quantize), "matmul",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_matmul), "chance", PyLong_FromVoidPtr((void *)hc_cuda_plan_chance),
        "prune", PyLong_FromVoidPtr((void *)hc_cuda_plan_prune), "module", PyLong_FromVoidPtr((void *)hc_cuda_module));
}

PyObject *hc_cuda_open_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    hc_error error;
    hc_status status = hc_cuda_open(PyBytes_AS_STRING(path), &error);
    Py_DECREF(path);
    if (status != HC_OK)
        return raise_driver(status, &error);
    PyObject *devices = PyList_New(0);
    for (int i = 0; devices && i < hc_cuda_devices(); i++) {
        hc_cuda_device device;
        status = hc_cuda_describe(i, &device, &error);
        PyObject *one = status == HC_OK
                            ? Py_BuildValue("(siiL)", device.name, device.major, device.minor, (long long)device.bytes)
                            : raise_driver(status, &error);
        if (!one || PyList_Append(devices, one) != 0)
            Py_CLEAR(devices);
        Py_XDECREF(one);
    }
    return devices ? Py_BuildValue("(iN)", hc_cuda_driver_version(), devices) : NULL;
}

PyObject *hc_cuda_modules_method(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *found = PyDict_New();
    hc_cuda_image image;
    for (int i = 0; found && hc_cuda_module(i, &image); i++) {
        PyObject *bytes = PyLong_FromLongLong(image.bytes);
        if (!bytes || PyDict_SetItemString(found, image.name, bytes) != 0)
            Py_CLEAR(found);
        Py_XDECREF(bytes);
    }
    return found;
}

PyObject *hc_cuda_allocate_method(PyObject *self, PyObject *args) {
    (void)self;
    int device;
    unsigned long long stream;
    long long bytes;
    if (!PyArg_ParseTuple(args, "iKL", &device, &stream, &bytes))
        return NULL;
    void *address = NULL;
    hc_error error;
    hc_status status;
    Py_BEGIN_ALLOW_THREADS status = hc_cuda_allocate(device, bytes, (void *)(uintptr_t)stream, &address, &error);
    Py_END_ALLOW_THREADS return status == HC_OK ? PyLong_FromUnsignedLongLong((uintptr_t)address)
                                                : raise_driver(status, &error);
}

PyObject *hc_cuda_free_method(PyObject *self, PyObject *args) {
    (void)self;
    int device;
    unsigned long long stream, address;
    if (!PyArg_ParseTuple(args, "iKK", &device, &stream, &address))
        return NULL;
    hc_cuda_free(device, (void *)(uintptr_t)address, (void *)(uintptr_t)stream);
    return Py_NewRef(Py_None);
}

/* cuda_copy(device, stream, address, contiguous buffer, whether to the device) */
PyObject *hc_cuda_copy_method(PyObject *self, PyObject *args) {
    (void)self;
    int device, uploads;
    unsigned long long stream, number;
    PyObject *object;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "iKKOp", &device, &stream, &number, &object, &uploads) ||
        PyObject_GetBuffer(object, &buffer, uploads ? PyBUF_ANY_CONTIGUOUS : PyBUF_ANY_CONTIGUOUS | PyBUF_WRITABLE) !=
            0)
        return NULL;
    hc_error error;
    hc_status status;
    void *address = (void *)(uintptr_t)number, *at = (void *)(uintptr_t)stream;
    Py_BEGIN_ALLOW_THREADS if (uploads) status = hc_cuda_upload(device, address, buffer.buf, buffer.len, at, &error);
    else status = hc_cuda_download(device, buffer.buf, address, buffer.len, at, &error);
    Py_END_ALLOW_THREADS PyBuffer_Release(&buffer);
    return status == HC_OK ? Py_NewRef(Py_None) : raise_driver(status, &error);
}

PyObject *hc_cuda_wait_method(PyObject *self, PyObject *args) {
    (void)self;
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "iK", &device, &stream))
        return NULL;
    hc_error error;
    hc_status status;
    Py_BEGIN_ALLOW_THREADS status = hc_cuda_wait(device, (void *)(uintptr_t)stream, &error);
    Py_END_ALLOW_THREADS return status == HC_OK ? Py_NewRef(Py_None) : raise_driver(status, &error);
}

/* cuda_place(address) -> device, or -1 */
PyObject *hc_cuda_place_method(PyObject *self, PyObject *object) {
    (void)self;
    const unsigned long long address = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred())
        return NULL;
    int device = -1;
    hc_error error;
    return PyLong_FromLong(hc_cuda_place((void *)(uintptr_t)address, &device, &error) == HC_OK ? device : -1);
}

static int parse_view(PyObject *object, hc_view *view) {
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
    PyErr_Format(PyExc_TypeError, "cuda: wanted floats, got %s", dtype);
    return 0;
}

static int parse_packed(PyObject *object, hc_packed *packed) {
    PyObject *format, *shape, *axes, *components;
    *packed = (hc_packed){0};
    if (!PyArg_ParseTuple(object, "OOOO!", &format, &shape, &axes, &PyDict_Type, &components) ||
        !hc_parse_format(format, &packed->format) || !hc_parse_sizes(shape, "shape", packed->shape, &packed->ndim) ||
        !hc_parse_axes(axes, packed->axes, &packed->n_axes))
        return 0;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_error error;
    const hc_status status = hc_layout(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes,
                                       &geometry, layout, &error);
    if (status != HC_OK) {
        hc_raise(status, &error);
        return 0;
    }
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

/* An operation with its arguments, planned twice: for the size of its workspace, and with it. */
typedef struct {
    enum { QUANTIZE, FAKE_QUANTIZE, DEQUANTIZE, MATMUL } what;
    int device;
    void *stream;
    hc_view x, out;
    hc_packed a, packed; /* packed: the answer of quantize, the right side of matmul */
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS];
    bool has_a, has_format, checks; /* checks: the plan begins with a state that says what was refused */
    const float *bias;
} hc_cuda_call;

static hc_status plan_call(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    const hc_operand x = {call->has_a ? NULL : &call->x, call->has_a ? &call->a : NULL};
    switch (call->what) {
    case QUANTIZE:
        return hc_cuda_plan_quantize(&call->x, NULL, &call->packed, workspace, plan, error);
    case FAKE_QUANTIZE:
        return hc_cuda_plan_fake_quantize(&call->x, NULL, &call->format, call->n_axes, call->axes, &call->out,
                                          workspace, plan, error);
    case DEQUANTIZE:
        return hc_cuda_plan_dequantize(&call->packed, &call->out, plan, error);
    default:
        return hc_cuda_plan_matmul(&x, call->has_format ? &call->format : NULL, &call->packed, call->bias, &call->out,
                                   workspace, plan, error);
    }
}

static hc_status launch_planned(const hc_cuda_call *call, hc_cuda_plan *plan, int64_t *row, bool *is_driver,
                                hc_error *error) {
    void *workspace = NULL;
    plan->architecture = hc_cuda_architecture(call->device);
    plan->device_order = false;
    hc_status status = plan_call(call, NULL, plan, error);
    if (status != HC_OK)
        return status;
    *is_driver = true;
    if (plan->workspace_bytes > 0) {
        status = hc_cuda_allocate(call->device, plan->workspace_bytes, call->stream, &workspace, error);
        if (status == HC_OK)
            status = plan_call(call, workspace, plan, error);
    }
    if (status == HC_OK)
        status = hc_cuda_launch(call->device, plan, call->stream, error);
    if (status == HC_OK && call->checks) {
        hc_cuda_state state;
        status = hc_cuda_download(call->device, &state, workspace, sizeof state, call->stream, error);
        if (status == HC_OK && state.illegal)
            *row = (int64_t)UINT32_MAX - state.illegal;
    }
    if (workspace)
        hc_cuda_free(call->device, workspace, call->stream);
    return status;
}

static hc_status launch_call(const hc_cuda_call *call, int64_t *row, bool *is_driver, hc_error *error) {
    hc_cuda_plan *plan = hc_alloc_aligned(sizeof *plan);
    if (!plan)
        return hc_fail(error, HC_MEMORY, "cuda: out of memory");
    const hc_status status = launch_planned(call, plan, row, is_driver, error);
    hc_free_aligned(plan);
    return status;
}

/* The first row with a value that the format refuses, or -1. */
static PyObject *finish_call(const hc_cuda_call *call) {
    hc_error error = {.argument = NULL};
    hc_status status;
    int64_t row = NO_ROW;
    bool is_driver = false;
    HC_WITHOUT_GIL(launch_call(call, &row, &is_driver, &error));
    if (status != HC_OK)
        return is_driver ? raise_driver(status, &error) : hc_raise(status, &error);
    return PyLong_FromLongLong(row);
}

static int parse_start(PyObject *args, Py_ssize_t n, hc_cuda_call *call) {
    memset(call, 0, sizeof *call);
    if (PyTuple_GET_SIZE(args) != n) {
        PyErr_Format(PyExc_TypeError, "wanted %zd arguments, got %zd", n, PyTuple_GET_SIZE(args));
        return 0;
    }
    call->device = (int)PyLong_AsLong(PyTuple_GET_ITEM(args, 0));
    call->stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args, 1));
    return !PyErr_Occurred();
}

PyObject *hc_cuda_quantize_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!parse_start(args, 4, &call) || !parse_view(PyTuple_GET_ITEM(args, 2), &call.x) ||
        !parse_packed(PyTuple_GET_ITEM(args, 3), &call.packed))
        return NULL;
    call.what = QUANTIZE;
    call.checks = true;
    return finish_call(&call);
}

PyObject *hc_cuda_fake_quantize_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS];
    hc_error error;
    if (!parse_start(args, 6, &call) || !parse_view(PyTuple_GET_ITEM(args, 2), &call.x) ||
        !hc_parse_format(PyTuple_GET_ITEM(args, 3), &call.format) ||
        !hc_parse_axes(PyTuple_GET_ITEM(args, 4), call.axes, &call.n_axes) ||
        !parse_view(PyTuple_GET_ITEM(args, 5), &call.out))
        return NULL;
    const hc_status status =
        hc_layout(&call.format, call.x.ndim, call.x.shape, call.n_axes, call.axes, &geometry, layout, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    call.what = FAKE_QUANTIZE;
    call.checks = true;
    return finish_call(&call);
}

PyObject *hc_cuda_dequantize_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    if (!parse_start(args, 4, &call) || !parse_packed(PyTuple_GET_ITEM(args, 2), &call.packed) ||
        !parse_view(PyTuple_GET_ITEM(args, 3), &call.out))
        return NULL;
    call.what = DEQUANTIZE;
    return finish_call(&call);
}

/* cuda_matmul(device, stream, x, whether x is packed, activations or None, w, address of bias or 0, out) */
PyObject *hc_cuda_matmul_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_cuda_call call;
    hc_error error;
    if (!parse_start(args, 8, &call))
        return NULL;
    PyObject *x = PyTuple_GET_ITEM(args, 2), *format = PyTuple_GET_ITEM(args, 4);
    call.has_a = PyObject_IsTrue(PyTuple_GET_ITEM(args, 3)) == 1;
    call.has_format = format != Py_None;
    if ((call.has_a ? !parse_packed(x, &call.a) : !parse_view(x, &call.x)) ||
        (call.has_format && !hc_parse_format(format, &call.format)) ||
        !parse_packed(PyTuple_GET_ITEM(args, 5), &call.packed) || !parse_view(PyTuple_GET_ITEM(args, 7), &call.out))
        return NULL;
    call.bias = (const float *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args, 6));
    if (PyErr_Occurred())
        return NULL;
    const hc_status status = call.has_format ? hc_format_check(&call.format, &error) : HC_OK;
    if (status != HC_OK)
        return hc_raise(status, &error);
    call.what = MATMUL;
    call.checks = call.has_format;
    return finish_call(&call);
}

/* cuda_check(device, address of words, address of answers, whether of warpgroups) */
PyObject *hc_cuda_check_method(PyObject *self, PyObject *args) {
    (void)self;
    int device, of_warpgroups;
    unsigned long long in, out;
    if (!PyArg_ParseTuple(args, "iKKp", &device, &in, &out, &of_warpgroups))
        return NULL;
    hc_error error;
    hc_cuda_plan *plan = hc_alloc_aligned(sizeof *plan);
    if (!plan)
        return PyErr_NoMemory();
    plan->architecture = hc_cuda_architecture(device);
    hc_status status =
        hc_cuda_plan_check((const uint32_t *)(uintptr_t)in, (uint32_t *)(uintptr_t)out, of_warpgroups, plan, &error);
    const bool is_driver = status == HC_OK;
    if (is_driver) {
        Py_BEGIN_ALLOW_THREADS status = hc_cuda_launch(device, plan, NULL, &error);
        Py_END_ALLOW_THREADS
    }
    hc_free_aligned(plan);
    if (status == HC_OK)
        return Py_NewRef(Py_None);
    return is_driver ? raise_driver(status, &error) : hc_raise(status, &error);
}
