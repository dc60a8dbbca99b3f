/* The common part of POSIX systems: pthreads, fork, the clock, memory, dlopen. */
#if !defined(_WIN32)

#include "base/platform/platform.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void hc_mutex_init(hc_mutex *mutex) { pthread_mutex_init(mutex, NULL); }
void hc_mutex_lock(hc_mutex *mutex) { pthread_mutex_lock(mutex); }
bool hc_mutex_try(hc_mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
void hc_mutex_unlock(hc_mutex *mutex) { pthread_mutex_unlock(mutex); }

void hc_condition_init(hc_condition *condition) { pthread_cond_init(condition, NULL); }
void hc_condition_wait(hc_condition *condition, hc_mutex *mutex) { pthread_cond_wait(condition, mutex); }
void hc_condition_wait_for(hc_condition *condition, hc_mutex *mutex, int64_t ns) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    ns += time.tv_nsec;
    time.tv_sec += (time_t)(ns / 1000000000);
    time.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(condition, mutex, &time);
}
void hc_condition_signal(hc_condition *condition) { pthread_cond_signal(condition); }
void hc_condition_broadcast(hc_condition *condition) { pthread_cond_broadcast(condition); }

void hc_call_once(hc_once *once, void (*function)(void)) { pthread_once(once, function); }

static void *begin(void *argument) {
    const hc_thread *const thread = argument;
    thread->body(thread->number);
    return NULL;
}

bool hc_thread_start(hc_thread *thread) {
    sigset_t all, before; /* signals are for the caller's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t handle;
    const bool has_started = pthread_create(&handle, NULL, begin, thread) == 0;
    if (has_started)
        pthread_detach(handle);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return has_started;
}

void hc_after_fork(void (*restart)(void)) { pthread_atfork(NULL, NULL, restart); }

int64_t hc_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void *hc_alloc_aligned(int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX - HC_CACHE_LINE)
        return NULL;
    return aligned_alloc(HC_CACHE_LINE, (size_t)hc_round_up(hc_max(bytes, 1), HC_CACHE_LINE));
}

void hc_free_aligned(void *pointer) { free(pointer); }

void *hc_library_open(const char *path, char *reason, size_t size) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(reason, size, "%s", dlerror());
    return library;
}

void *hc_library_symbol(void *library, const char *name) { return dlsym(library, name); }

#endif
