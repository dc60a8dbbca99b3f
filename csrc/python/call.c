/* Calls of the core that Python's signals can stop. */
#include "python/call.h"

/* Lets Python handle signals. On threads other than the main thread it handles none. */
static bool signal_raises(hc_watch *watch) {
    hc_core_call *const call = (hc_core_call *)watch;
    hc_float_env_leave(call->env);
    PyEval_RestoreThread(call->thread);
    hc_watch_leave(call->before); /* a handler may call the core */
    const bool raises = PyErr_CheckSignals() < 0;
    hc_watch_enter(watch);
    call->thread = PyEval_SaveThread();
    call->env = hc_float_env_enter();
    return raises;
}

void hc_core_enter(hc_core_call *call) {
    call->watch.asks = signal_raises;
    atomic_init(&call->watch.stopped, false);
    call->watch.next = 0;
    call->thread = PyEval_SaveThread();
    call->env = hc_float_env_enter();
    call->before = hc_watch_enter(&call->watch);
}

bool hc_core_leave(hc_core_call *call) {
    hc_watch_leave(call->before);
    hc_float_env_leave(call->env);
    PyEval_RestoreThread(call->thread);
    return !atomic_load(&call->watch.stopped);
}
