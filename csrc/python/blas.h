/* A BLAS found at run time: nothing is linked. */
#ifndef HC_BLAS_H
#define HC_BLAS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *hc_blas_open(PyObject *self, PyObject *args);
PyObject *hc_blas_sgemm(PyObject *self, PyObject *args);

#endif
