/* Opens a library with cblas_sgemm. Its symbols are private, so several BLAS can be in one process. */
#include "python/arguments.h"
#include "python/methods.h"

#include "base/platform/platform.h"

PyObject *hc_blas_open_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *path;
    const char *gemm_name, *gemv_name, *threads_name, *get_threads_name, *config_name, *core_name;
    if (PyTuple_GET_SIZE(args) == 1 && PyTuple_GET_ITEM(args, 0) == Py_None) {
        hc_blas_use(NULL);
        return Py_BuildValue("ss", "", "");
    }
    if (!PyArg_ParseTuple(args, "O&ssssss", PyUnicode_FSConverter, &path, &gemm_name, &gemv_name, &threads_name,
                          &get_threads_name, &config_name, &core_name))
        return NULL;
    char reason[512];
    void *const library = hc_library_open(PyBytes_AS_STRING(path), reason, sizeof reason);
    Py_DECREF(path);
    if (!library)
        return PyErr_Format(PyExc_OSError, "blas: %s", reason);
    hc_blas blas;
    char *(*config)(void), *(*core)(void);
    *(void **)&blas.sgemm = hc_library_symbol(library, gemm_name);
    *(void **)&blas.sgemv = hc_library_symbol(library, gemv_name);
    if (!blas.sgemm || !blas.sgemv)
        return PyErr_Format(PyExc_OSError, "blas: the library has no function %s", blas.sgemm ? gemv_name : gemm_name);
    *(void **)&blas.set_threads = hc_library_symbol(library, threads_name);
    *(void **)&blas.get_threads = hc_library_symbol(library, get_threads_name);
    *(void **)&config = hc_library_symbol(library, config_name);
    *(void **)&core = hc_library_symbol(library, core_name);
    blas.core = core ? core() : NULL;
    hc_blas_use(&blas);
    return Py_BuildValue("ss", config ? config() : "", blas.core ? blas.core : "");
}

PyObject *hc_blas_speed_method(PyObject *self, PyObject *args) {
    (void)self;
    unsigned int isa;
    return PyArg_ParseTuple(args, "I", &isa) ? PyLong_FromLong((long)hc_blas_speed_of(isa)) : NULL;
}

PyObject *hc_routes_method(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *names = PyList_New(0);
    const char *text;
    for (int i = 0; names && (text = hc_route_name(i)) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(text);
        if (!name || PyList_Append(names, name) != 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}
