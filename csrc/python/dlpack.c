/* The part of DLPack's structures that is read here: https://dmlc.github.io/dlpack/latest/c_api.html */
#include "python/arguments.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

typedef struct {
    int32_t device_type, device_id;
} dl_device;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;
typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* elements, or NULL for C order */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *);
} dl_managed;
enum { MOST_DIMS = 64 }; /* of an array of NumPy 2 */
static const char OWNER[] = "heterocompute.dltensor";
enum { DL_CPU = 1, DL_CUDA = 2, DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_FLOAT8_E3M4 = 7, DL_FLOAT8_E8M0FNU = 14, DL_FLOAT4_E2M1FN = 17 }; /* 7 to 14: all kinds of float8 */

/* A deleter may run Python code, so a pending exception is saved meanwhile. */
static void free_owner(PyObject *capsule) {
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *raised = PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
#endif
    dl_managed *managed = PyCapsule_GetPointer(capsule, OWNER);
    if (managed && managed->deleter)
        managed->deleter(managed);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(NULL); /* the capsule is being destroyed */
#if PY_VERSION_HEX >= 0x030c0000
    PyErr_SetRaisedException(raised);
#else
    PyErr_Restore(type, value, traceback);
#endif
}

static int numpy_type(dl_dtype dtype) {
    if (dtype.code == DL_FLOAT4_E2M1FN && dtype.bits == 4 && dtype.lanes == 2) /* one byte has two values */
        return NPY_UINT8;
    if (dtype.lanes != 1)
        return -1;
    const int bits = dtype.bits;
    if (dtype.code >= DL_FLOAT8_E3M4 && dtype.code <= DL_FLOAT8_E8M0FNU)
        return bits == 8 ? NPY_UINT8 : -1;
    switch (dtype.code) {
    case DL_BFLOAT:
        return bits == 16 ? NPY_UINT16 : -1;
    case DL_FLOAT:
        return bits == 16 ? NPY_FLOAT16 : bits == 32 ? NPY_FLOAT32 : bits == 64 ? NPY_FLOAT64 : -1;
    case DL_BOOL:
        return bits == 8 ? NPY_BOOL : -1;
    case DL_INT:
        return bits == 8 ? NPY_INT8 : bits == 16 ? NPY_INT16 : bits == 32 ? NPY_INT32 : bits == 64 ? NPY_INT64 : -1;
    case DL_UINT:
        return bits == 8 ? NPY_UINT8 : bits == 16 ? NPY_UINT16 : bits == 32 ? NPY_UINT32 : bits == 64 ? NPY_UINT64 : -1;
    default:
        return -1;
    }
}

/* (array, code of its kind of numbers); numbers that NumPy does not have are their bits. */
PyObject *hc_from_dlpack_method(PyObject *self, PyObject *capsule) {
    (void)self;
    dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (!managed)
        return NULL;
    const dl_tensor *tensor = &managed->tensor;
    const int type = numpy_type(tensor->dtype);
    if (type < 0)
        return PyErr_Format(PyExc_TypeError, "expected an array of float16, bfloat16, float32 or float64");
    if (tensor->device.device_type != DL_CPU || tensor->ndim < 0 || tensor->ndim > MOST_DIMS)
        return PyErr_Format(PyExc_TypeError, "expected an array of at most %d dimensions in the memory of the CPU",
                            (int)MOST_DIMS);
    const int64_t size = tensor->dtype.bits * tensor->dtype.lanes / 8;
    npy_intp shape[MOST_DIMS], strides[MOST_DIMS];
    int64_t step = size;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        shape[i] = tensor->shape[i];
        strides[i] = tensor->strides ? tensor->strides[i] * size : step;
        step *= tensor->shape[i];
    }
    PyObject *owner = PyCapsule_New(managed, OWNER, free_owner);
    if (!owner)
        return NULL;
    PyCapsule_SetName(capsule, "used_dltensor"); /* the owner frees it from now on */
    char *data = (char *)tensor->data + tensor->byte_offset;
    PyObject *array = PyArray_New(&PyArray_Type, tensor->ndim, shape, type, strides, data, 0, 0, NULL);
    if (!array) {
        Py_DECREF(owner);
        return NULL;
    }
    PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    return Py_BuildValue("(Ni)", array, (int)tensor->dtype.code);
}

/* An owner and its memory: (owner, type of device, its number, address, kind of numbers, bits, shape, strides). */
PyObject *hc_read_dlpack_method(PyObject *self, PyObject *capsule) {
    (void)self;
    dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (!managed)
        return NULL;
    const dl_tensor *tensor = &managed->tensor;
    if (tensor->ndim < 0 || tensor->ndim > MOST_DIMS || tensor->dtype.lanes != 1)
        return PyErr_Format(PyExc_TypeError, "expected an array of at most %d dimensions of plain numbers",
                            (int)MOST_DIMS);
    PyObject *shape = PyTuple_New(tensor->ndim), *strides = PyTuple_New(tensor->ndim);
    int64_t step = 1;
    for (int i = tensor->ndim - 1; shape && strides && i >= 0; i--) {
        PyObject *size = PyLong_FromLongLong(tensor->shape[i]);
        PyObject *stride = PyLong_FromLongLong(tensor->strides ? tensor->strides[i] : step);
        step *= tensor->shape[i];
        if (size)
            PyTuple_SET_ITEM(shape, i, size);
        if (stride)
            PyTuple_SET_ITEM(strides, i, stride);
        if (!size || !stride)
            Py_CLEAR(shape);
    }
    PyObject *owner = shape && strides ? PyCapsule_New(managed, OWNER, free_owner) : NULL;
    if (!owner) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    PyCapsule_SetName(capsule, "used_dltensor"); /* the owner frees it from now on */
    const unsigned long long address = (unsigned long long)(uintptr_t)tensor->data + tensor->byte_offset;
    return Py_BuildValue("(NiiKiiNN)", owner, (int)tensor->device.device_type, (int)tensor->device.device_id, address,
                         (int)tensor->dtype.code, (int)tensor->dtype.bits, shape, strides);
}

/* A tensor that a Python object owns. */
typedef struct {
    dl_managed managed;
    int64_t shape[HC_MAX_DIMS], strides[HC_MAX_DIMS];
} dl_owned;

static void free_owned(dl_managed *managed) {
    if (!Py_IsInitialized()) /* at the end of the process the memory of the device is freed anyway */
        return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->manager);
    PyGILState_Release(state);
    hc_free_aligned(managed);
}

static void free_unused(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor"))
        free_owned(PyCapsule_GetPointer(capsule, "dltensor"));
}

PyObject *hc_write_dlpack_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *owner, *shape, *strides;
    int device, code, bits, ndim, n_strides;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "OiKiiOO", &owner, &device, &address, &code, &bits, &shape, &strides))
        return NULL;
    dl_owned *owned = hc_alloc_aligned(sizeof *owned);
    if (!owned)
        return PyErr_NoMemory();
    if (!hc_parse_sizes(shape, "shape", owned->shape, &ndim) ||
        !hc_parse_sizes(strides, "strides", owned->strides, &n_strides)) {
        hc_free_aligned(owned);
        return NULL;
    }
    owned->managed = (dl_managed){.tensor = {.data = (void *)(uintptr_t)address,
                                             .device = {DL_CUDA, device},
                                             .ndim = ndim,
                                             .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                                             .shape = owned->shape,
                                             .strides = owned->strides},
                                  .manager = Py_NewRef(owner),
                                  .deleter = free_owned};
    PyObject *capsule = PyCapsule_New(&owned->managed, "dltensor", free_unused);
    if (!capsule)
        free_owned(&owned->managed);
    return capsule;
}
