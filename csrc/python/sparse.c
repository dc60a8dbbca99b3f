/* The binding of sparsity: parse -> view -> release the GIL -> call -> status. */
#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

#include <string.h>

/* A writable C-contiguous array of this type with at least `size` elements. */
static void *room(PyObject *object, int type, int64_t size, const char *name) {
    if (!PyArray_Check(object) || PyArray_TYPE((PyArrayObject *)object) != type ||
        !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)object) || !PyArray_ISBEHAVED((PyArrayObject *)object) ||
        PyArray_SIZE((PyArrayObject *)object) < size) {
        PyErr_Format(PyExc_ValueError, "prune: %s does not have the dtype and shape of the result", name);
        return NULL;
    }
    return PyArray_DATA((PyArrayObject *)object);
}

PyObject *hc_prune_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *scores_object, *axes_object, *values_object, *metadata_object;
    int n, m, n_axes, axes[HC_MAX_DIMS];
    hc_settings settings;
    hc_view x, scores;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOiiOOO", &run_object, &x_object, &scores_object, &n, &m, &axes_object,
                          &values_object, &metadata_object) ||
        !hc_parse_call(run_object, &settings, &held) || !hc_parse_axes(axes_object, axes, &n_axes) ||
        !hc_parse_view(x_object, "prune: w", &x, &held) ||
        (scores_object != Py_None && !hc_parse_view(scores_object, "prune: scores", &scores, &held))) {
        hc_release(&held);
        return NULL;
    }
    if (settings.run.device != HC_HOST) {
        hc_cuda_call call = {.what = PRUNE, .x = x, .n = n, .m = m, .n_axes = n_axes, .checks = true};
        memcpy(call.axes, axes, sizeof axes);
        call.values = hc_address(values_object);
        call.metadata = hc_address(metadata_object);
        return PyErr_Occurred() ? hc_give_up(&held) : hc_cuda_finish(&settings, &call, &held);
    }
    hc_error error;
    int64_t kept = 0, bytes = 0;
    hc_status status = hc_prune_sizes(&x, n, m, n_axes, axes, &kept, &bytes, &error);
    if (status == HC_OK) {
        float *values = room(values_object, NPY_FLOAT32, kept, "values");
        uint8_t *metadata = values ? room(metadata_object, NPY_UINT8, bytes, "metadata") : NULL;
        if (!metadata) {
            hc_release(&held);
            return NULL;
        }
        HC_WITHOUT_GIL(hc_prune(&settings.run, &x, scores_object != Py_None ? &scores : NULL, n, m, n_axes, axes,
                                values, metadata, &error));
    }
    hc_release(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}
