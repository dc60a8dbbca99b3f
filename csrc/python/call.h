/* How a function of the binding calls the core, and how it ends. */
#ifndef HC_PYTHON_CALL_H
#define HC_PYTHON_CALL_H

#include "python/arguments.h"

/* Runs `call` without the GIL and with the float environment that every kernel expects. */
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

static inline PyObject *hc_give_up(hc_held *held) {
    hc_release(held);
    return NULL;
}

#endif
