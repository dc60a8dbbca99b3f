/* How a function of the binding calls the core and returns. */
#ifndef HC_PYTHON_CALL_H
#define HC_PYTHON_CALL_H

#include "base/watch.h"
#include "python/arguments.h"

/* A call of the core: without the GIL, in the float environment that every kernel needs, and watched for signals. */
typedef struct {
    hc_watch watch; /* first, so that its address is that of the call */
    hc_watch *before;
    PyThreadState *thread;
    hc_float_env env;
} hc_core_call;

void hc_core_enter(hc_core_call *call);
bool hc_core_leave(hc_core_call *call); /* false: a signal stopped the call, and its exception is set */

/* Runs `call`, whose status is assigned to `status`. */
#define HC_WITHOUT_GIL(call)                                                                                           \
    do {                                                                                                               \
        hc_core_call core_call;                                                                                        \
        hc_core_enter(&core_call);                                                                                     \
        status = (call);                                                                                               \
        if (!hc_core_leave(&core_call))                                                                                \
            status = HC_STOPPED;                                                                                       \
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
    bool is_dense, is_vector;
} hc_side;

/* One side of matmul; `turned`: the weights of `linear`, which are used transposed. Returns false for any other object,
 * without an exception unless memory is exhausted. The operand points into the side. */
bool hc_side_of(PyObject *object, bool is_b, bool turned, hc_side *side, hc_held *held);

/* The same for an operand of more than two dimensions, as it is given. */
bool hc_side_as_given(PyObject *object, hc_side *side, hc_held *held);

/* A bias: a float32 array of one dimension. */
bool hc_bias_of(PyObject *object, hc_view *bias, hc_held *held);

/* The array of a result and its view: a new one, or `out` (not None) if it is plain, has this shape and does not overlap
 * an input. Otherwise NULL, likewise. */
PyObject *hc_answer_of(PyObject *out, int ndim, const int64_t *shape, const hc_side sides[2], PyObject *bias,
                       hc_view *view);

/* Clears an error that the general path will report. Errors of memory and interrupts stay. */
void hc_forget(void);

/* The packed array of an object of a known type, or NULL as above. */
const hc_packed *hc_packed_of(PyObject *object, hc_held *held);

static inline PyObject *hc_give_up(hc_held *held) {
    hc_release(held);
    return NULL;
}

#endif
