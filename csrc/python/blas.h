/* A BLAS found at run time: nothing is linked. */
#ifndef HC_PYTHON_BLAS_H
#define HC_PYTHON_BLAS_H

#include "python/arguments.h"

PyObject *hc_blas_open_method(PyObject *self, PyObject *args);
PyObject *hc_blas_speed_method(PyObject *self, PyObject *args);
PyObject *hc_routes_method(PyObject *self, PyObject *args);

#endif
