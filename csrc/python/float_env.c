/* Runs Python functions in the float environment of the C core. NumPy computes in the environment of the calling
 * thread. The thread also keeps the caller's own environment, in which functions of the caller are called. */
#include "python/methods.h"

#include "hc.h"

typedef struct {
    bool is_inside;
    hc_float_env callers; /* the caller's environment, inside a call */
} hc_place;

static _Thread_local hc_place place;

static bool parse_call(PyObject *args, PyObject **function, PyObject **positional, PyObject **named) {
    return PyArg_ParseTuple(args, "OO!O!", function, &PyTuple_Type, positional, &PyDict_Type, named);
}

PyObject *hc_in_float_env_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *function, *positional, *named;
    if (!parse_call(args, &function, &positional, &named))
        return NULL;
    const hc_place before = place;
    const hc_float_env saved = hc_float_env_enter();
    place = (hc_place){true, before.is_inside ? before.callers : saved};
    PyObject *answer = PyObject_Call(function, positional, named);
    place = before;
    hc_float_env_leave(saved);
    return answer;
}

PyObject *hc_in_callers_float_env_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *function, *positional, *named;
    if (!parse_call(args, &function, &positional, &named))
        return NULL;
    const hc_place before = place;
    if (!before.is_inside)
        return PyObject_Call(function, positional, named);
    const hc_float_env saved = hc_float_env_enter();
    hc_float_env_leave(before.callers);
    place.is_inside = false;
    PyObject *answer = PyObject_Call(function, positional, named);
    place = before;
    hc_float_env_leave(saved);
    return answer;
}
