/* The binding of CUDA: the driver, memory of a device, copies and waits; the planners, for tests. Functions with a device and a
 * stream begin with both. */
#include "python/cuda/call.h"

#include "python/methods.h"

PyObject *hc_cuda_open_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    hc_error error;
    hc_status status = hc_cuda_open(PyBytes_AS_STRING(path), &error);
    Py_DECREF(path);
    if (status != HC_OK)
        return hc_raise_driver(status, &error);
    hc_cuda_offer_route();
    PyObject *devices = PyList_New(0);
    for (int i = 0; devices && i < hc_cuda_devices(); i++) {
        hc_cuda_device device;
        status = hc_cuda_describe(i, &device, &error);
        PyObject *one = status == HC_OK
                            ? Py_BuildValue("(siiL)", device.name, device.major, device.minor, (long long)device.bytes)
                            : hc_raise_driver(status, &error);
        if (!one || PyList_Append(devices, one) != 0)
            Py_CLEAR(devices);
        Py_XDECREF(one);
    }
    PyObject *complete = hc_cuda_brings_kernels() ? Py_True : Py_False;
    return devices ? Py_BuildValue("(iNO)", hc_cuda_driver_version(), devices, complete) : NULL;
}

/* The number of the sources of the kernels that fit this core (cuda/fatbins.py). */
PyObject *hc_cuda_sources_method(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return PyLong_FromUnsignedLong(HC_CUDA_SOURCES);
}

/* A module of kernels: its name and its bytes, of which the driver gets the addresses. */
PyObject *hc_cuda_give_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *name, *image;
    if (!PyArg_ParseTuple(args, "SS", &name, &image))
        return NULL;
    Py_INCREF(name); /* for the life of the process, as the driver's module */
    Py_INCREF(image);
    hc_error error;
    const hc_status status = hc_cuda_give(PyBytes_AsString(name), PyBytes_AsString(image), &error);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise_driver(status, &error);
}

/* Addresses of the planners, for tests that run the kernels on the host. */
PyObject *hc_cuda_addresses_method(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue(
        "{sNsNsNsNsNsNsNsNsNsNsN}", "prepack", PyLong_FromVoidPtr((void *)hc_cuda_plan_prepack), "layer",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_layer), "attention", PyLong_FromVoidPtr((void *)hc_cuda_plan_attention),
        "check", PyLong_FromVoidPtr((void *)hc_cuda_plan_check), "conv2d",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_conv2d), "quantize", PyLong_FromVoidPtr((void *)hc_cuda_plan_quantize),
        "dequantize", PyLong_FromVoidPtr((void *)hc_cuda_plan_dequantize), "fake_quantize",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_fake_quantize), "matmul",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_matmul), "chance", PyLong_FromVoidPtr((void *)hc_cuda_plan_chance),
        "prune", PyLong_FromVoidPtr((void *)hc_cuda_plan_prune));
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
                                                : hc_raise_driver(status, &error);
}

/* Memory of a device that a capsule frees. */
typedef struct {
    int device;
    void *stream, *address;
    PyObject *of_stream; /* its number, which may hold the stream of another library */
} held_memory;
#define HELD_MEMORY "heterocompute.memory"

static void free_held(PyObject *capsule) {
    held_memory *held = PyCapsule_GetPointer(capsule, HELD_MEMORY);
    if (!held)
        return;
    hc_cuda_free(held->device, held->address, held->stream);
    Py_DECREF(held->of_stream);
    hc_free_aligned(held);
}

/* cuda_hold(device, stream, bytes) -> (what frees the memory when it dies, address) */
PyObject *hc_cuda_hold_method(PyObject *self, PyObject *args) {
    (void)self;
    int device;
    PyObject *of_stream;
    long long bytes;
    if (!PyArg_ParseTuple(args, "iOL", &device, &of_stream, &bytes))
        return NULL;
    void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(of_stream);
    if (PyErr_Occurred())
        return NULL;
    held_memory *held = hc_alloc_aligned(sizeof *held);
    if (!held)
        return PyErr_NoMemory();
    *held = (held_memory){device, stream, NULL, of_stream};
    hc_error error;
    hc_status status;
    Py_BEGIN_ALLOW_THREADS status = hc_cuda_allocate(device, bytes, stream, &held->address, &error);
    Py_END_ALLOW_THREADS if (status != HC_OK) {
        hc_free_aligned(held);
        return hc_raise_driver(status, &error);
    }
    PyObject *capsule = PyCapsule_New(held, HELD_MEMORY, free_held);
    if (!capsule) {
        hc_cuda_free(device, held->address, stream);
        hc_free_aligned(held);
        return NULL;
    }
    Py_INCREF(of_stream);
    return Py_BuildValue("(NK)", capsule, (unsigned long long)(uintptr_t)held->address);
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
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise_driver(status, &error);
}

/* cuda_move(device, stream, address, address of what is copied there, bytes) */
PyObject *hc_cuda_move_method(PyObject *self, PyObject *args) {
    (void)self;
    int device;
    unsigned long long stream, to, from;
    long long bytes;
    if (!PyArg_ParseTuple(args, "iKKKL", &device, &stream, &to, &from, &bytes))
        return NULL;
    hc_error error;
    hc_status status;
    Py_BEGIN_ALLOW_THREADS status = hc_cuda_move(device, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes,
                                                 (void *)(uintptr_t)stream, &error);
    Py_END_ALLOW_THREADS return status == HC_OK ? Py_NewRef(Py_None) : hc_raise_driver(status, &error);
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
    Py_END_ALLOW_THREADS return status == HC_OK ? Py_NewRef(Py_None) : hc_raise_driver(status, &error);
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
    *plan = (hc_cuda_plan){.architecture = hc_cuda_architecture(device),
                           .multiprocessors = hc_cuda_multiprocessors(device)};
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
    return is_driver ? hc_raise_driver(status, &error) : hc_raise(status, &error);
}
