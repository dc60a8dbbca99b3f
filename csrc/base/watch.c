/* The watch of each thread. */
#include "base/watch.h"

#include "base/platform/platform.h"

static _Thread_local hc_watch *watched;
static _Thread_local bool follows; /* works for another thread's call */

hc_watch *hc_watch_enter(hc_watch *watch) {
    hc_watch *const before = watched;
    watched = watch;
    return before;
}

void hc_watch_leave(hc_watch *before) { watched = before; }

hc_watch *hc_watch_here(void) { return watched; }

void hc_watch_follow(hc_watch *watch) {
    watched = watch;
    follows = true;
}

bool hc_stopping(void) {
    hc_watch *const watch = watched;
    if (!watch || atomic_load_explicit(&watch->stopped, memory_order_relaxed))
        return watch != NULL;
    if (follows)
        return false;
    const int64_t now = hc_now_ns();
    if (watch->next == 0)
        watch->next = now + HC_WATCH_NS;
    if (now < watch->next)
        return false;
    if (watch->asks(watch))
        atomic_store(&watch->stopped, true);
    watch->next = hc_now_ns() + HC_WATCH_NS;
    return atomic_load(&watch->stopped);
}
