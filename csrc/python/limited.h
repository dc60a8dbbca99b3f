/* Python.h with the limited API, so that one extension serves Python 3.11 and all later versions. Builds for Pythons
 * without a GIL use the full API, since they have no limited API. */
#ifndef HC_LIMITED_H
#define HC_LIMITED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#if defined(Py_LIMITED_API)
/* Macros that are not in the limited API, replaced by functions that do the same. */
#define PyBytes_AS_STRING PyBytes_AsString
#define PyList_GET_ITEM PyList_GetItem
#define PyList_GET_SIZE PyList_Size
#define PyList_SET_ITEM PyList_SetItem
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_SET_ITEM PyTuple_SetItem
#define PyUnicode_AsUTF8(text) PyUnicode_AsUTF8AndSize(text, NULL)
#define PyObject_CallMethodNoArgs(object, name) PyObject_CallMethodObjArgs(object, name, NULL)
#endif

#endif
