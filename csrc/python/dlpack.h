/* Arrays of other libraries through DLPack, bfloat16 included (numpy.from_dlpack refuses it). */
#ifndef HC_DLPACK_H
#define HC_DLPACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* from_dlpack(capsule) -> (array, is_bfloat16); bfloat16 comes as uint16. No copy; the array is read-only. */
PyObject *hc_from_dlpack(PyObject *self, PyObject *capsule);

#endif
