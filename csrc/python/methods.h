/* The functions of the module, which methods.def lists. */
#ifndef HC_METHODS_H
#define HC_METHODS_H

#include "python/limited.h"

#define HC_METHOD(name, kind) PyObject *hc_##name##_method(PyObject *self, PyObject *args);
#include "python/methods.def"
#undef HC_METHOD
PyObject *hc_direct_method(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *hc_direct_conv2d_method(PyObject *self, PyObject *const *args, Py_ssize_t n);

#endif
