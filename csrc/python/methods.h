/* Methods of the module that stand in files of their own; module.c lists them all. */
#ifndef HC_METHODS_H
#define HC_METHODS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *hc_prune_method(PyObject *self, PyObject *args);
PyObject *hc_permute_method(PyObject *self, PyObject *args);
PyObject *hc_terms_method(PyObject *self, PyObject *args);
PyObject *hc_emulate_codes_method(PyObject *self, PyObject *args);
PyObject *hc_emulate_floats_method(PyObject *self, PyObject *args);

#endif
