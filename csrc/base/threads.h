/* A small pool of threads. hc_parallel runs task(0) .. task(n_tasks - 1), each once, on at most n_threads threads (the
 * caller is one of them), and returns when all have ended. Thread t begins with the t-th of n_threads equal parts and
 * then helps the others. Which thread runs a task is therefore not fixed, and a task writes only to its own memory. A
 * task may not call hc_parallel. If the caller's watch stops the call (base/watch.h), tasks that have not begun are left
 * out. After fork() the child starts a pool of its own. Several threads may call at once: one
 * gets the pool, the others run alone.
 */
#ifndef HC_THREADS_H
#define HC_THREADS_H

#include "base/cpu.h"

typedef void hc_task(void *context, int64_t task, int thread);

void hc_parallel(int n_threads, int64_t n_tasks, hc_task *task, void *context);

#endif
