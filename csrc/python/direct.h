/* Operands of plain arguments in one step: float arrays of NumPy's own type, and packed arrays, whose view is kept on them. */
#ifndef HC_PYTHON_DIRECT_H
#define HC_PYTHON_DIRECT_H

#include "python/arguments.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

typedef struct hc_seen hc_seen;
typedef struct {
    hc_view view; /* of two dimensions or more */
    hc_packed packed;
    hc_operand operand;
    const hc_seen *seen;
    PyArrayObject *array;
    bool is_vector;
} hc_side;

/* One side as matmul has it; `turned`: the weights of `linear`, whose transpose is meant. False, without an exception, where
 * the object is anything else: unless memory is short. The operand points into the side. */
bool hc_side_of(PyObject *object, bool is_b, bool turned, hc_side *side, hc_held *held);

/* The packed array of an object of a known type, or NULL as above. */
const hc_packed *hc_packed_of(PyObject *object, hc_held *held);

#endif
