/* Errors of the CUDA driver as exceptions. */
#ifndef HC_PYTHON_CUDA_RAISE_H
#define HC_PYTHON_CUDA_RAISE_H

#include "python/arguments.h"

#include "cuda/driver.h"

/* NULL, with a RuntimeError, except for memory and missing parts. */
static inline PyObject *hc_raise_driver(hc_status status, const hc_error *error) {
    if (status != HC_VALUE)
        return hc_raise(status, error);
    PyErr_Format(PyExc_RuntimeError, "%s", error->text);
    return NULL;
}

#endif
