/* Early ends. The caller of the core may watch a call: about every HC_WATCH_NS the thread that made the call asks it
 * whether to stop, as Python does for Ctrl-C. Then tasks that have not begun are left out (base/threads.h), and long
 * loops end early. Results are unspecified values, and the call returns to its caller, who knows.
 *
 * A loop that may run for more than 0.1 s calls hc_stopping() about every 10 us to 10 ms and ends if it is true. What
 * follows must not use a result of skipped work as a size or an index.
 */
#ifndef HC_WATCH_H
#define HC_WATCH_H

#include "base/base.h"

#include <stdatomic.h>

enum { HC_WATCH_NS = 50000000 };

typedef struct hc_watch hc_watch;
struct hc_watch {
    bool (*asks)(hc_watch *watch); /* called on the caller's thread only */
    atomic_bool stopped;
    int64_t next; /* time of the next question; 0: the first look sets it */
};

/* This thread's calls are watched from now on; returns the watch before, for hc_watch_leave. */
hc_watch *hc_watch_enter(hc_watch *watch);
void hc_watch_leave(hc_watch *before);

/* Whether work for this thread's call should end early. */
bool hc_stopping(void);

/* For a pool: the watch of this thread's call, and a thread that works for the call of another without asking. */
hc_watch *hc_watch_here(void);
void hc_watch_follow(hc_watch *watch);

#endif
