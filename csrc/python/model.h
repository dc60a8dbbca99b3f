/* The part of the binding that speaks to csrc/model/: functions for the module's table. */
#ifndef HC_PYTHON_MODEL_H
#define HC_PYTHON_MODEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *hc_model_cost(PyObject *self, PyObject *args);
PyObject *hc_model_enumerate(PyObject *self, PyObject *args);
PyObject *hc_model_walk(PyObject *self, PyObject *args);
PyObject *hc_model_walk_on(PyObject *self, PyObject *args);
PyObject *hc_model_systolic(PyObject *self, PyObject *args);

#endif
