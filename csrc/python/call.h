/* How a function of the binding calls the core and returns. */
#ifndef HC_PYTHON_CALL_H
#define HC_PYTHON_CALL_H

#include "python/arguments.h"

/* Runs `call` without the GIL and in the float environment that every kernel needs. */
#define HC_WITHOUT_GIL(call)                                                                                           \
    do {                                                                                                               \
        Py_BEGIN_ALLOW_THREADS const hc_float_env saved = hc_float_env_enter();                                        \
        status = (call);                                                                                               \
        hc_float_env_leave(saved);                                                                                     \
        Py_END_ALLOW_THREADS                                                                                           \
    } while (0)

static inline PyObject *hc_finish(hc_status status, const hc_error *error, hc_held *held) {
    hc_release(held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, error);
}

/* Operands from plain arguments in one step (direct.c): float arrays of NumPy's own type, and packed arrays, whose view
 * is kept on the array. */
typedef struct hc_seen hc_seen;
typedef struct {
    hc_view view; /* of two dimensions or more */
    hc_packed packed;
    hc_operand operand;
    const hc_seen *seen;
    struct tagPyArrayObject *array; /* NumPy's name of its arrays */
    bool is_vector;
} hc_side;

/* One side of matmul; `turned`: the weights of `linear`, which are used transposed. Returns false for any other object,
 * without an exception unless memory is exhausted. The operand points into the side. */
bool hc_side_of(PyObject *object, bool is_b, bool turned, hc_side *side, hc_held *held);

/* The packed array of an object of a known type, or NULL as above. */
const hc_packed *hc_packed_of(PyObject *object, hc_held *held);

static inline PyObject *hc_give_up(hc_held *held) {
    hc_release(held);
    return NULL;
}

#endif
