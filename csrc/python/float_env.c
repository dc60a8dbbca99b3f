/* Python functions in the float environment of the C core: NumPy computes in that of the thread it is called from. */
#include "python/methods.h"

#include "hc.h"

PyObject *hc_in_float_env_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *function, *positional, *named;
    if (!PyArg_ParseTuple(args, "OO!O!", &function, &PyTuple_Type, &positional, &PyDict_Type, &named))
        return NULL;
    const hc_float_env saved = hc_float_env_enter();
    PyObject *answer = PyObject_Call(function, positional, named);
    hc_float_env_leave(saved);
    return answer;
}
