/* Exchange of arrays with other libraries without a copy, by DLPack. */
#ifndef HC_DLPACK_H
#define HC_DLPACK_H

#include "python/limited.h"

/* from_dlpack(capsule) -> (ndarray, whether its items are bfloat16); the array keeps the owner of its memory. */
PyObject *hc_from_dlpack(PyObject *self, PyObject *capsule);
/* read_dlpack(capsule), of any device -> (owner, type of device, its number, address, code, bits, shape, strides in
 * items) */
PyObject *hc_read_dlpack(PyObject *self, PyObject *capsule);
/* write_dlpack(owner, number of the CUDA device, address, code, bits, shape, strides in items) -> capsule */
PyObject *hc_write_dlpack(PyObject *self, PyObject *args);

#endif
