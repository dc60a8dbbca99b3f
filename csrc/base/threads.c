/* The pool: workers sleep on a condition; a job is a counter that all take tickets from. */
#include "base/threads.h"
#include "base/float_env.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
    hc_task *task;
    void *context;
    int64_t n_tasks;
    int n_threads;
    atomic_llong next;
} hc_job;

static struct {
    pthread_mutex_t owner; /* held by the call that uses the pool */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake, done;
    int n_workers;
    uint64_t generation; /* counts jobs, so that a worker sees a new one */
    hc_job *job;
    int running; /* workers inside the job */
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void take_tickets(hc_job *job, int thread) {
    const hc_float_env saved = hc_float_env_enter();
    for (;;) {
        const int64_t ticket = atomic_fetch_add(&job->next, 1);
        if (ticket >= job->n_tasks)
            break;
        job->task(job->context, ticket, thread);
    }
    hc_float_env_leave(saved);
}

static void *work(void *argument) {
    const int thread = (int)(intptr_t)argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.mutex);
    for (;;) {
        while (!pool.job || pool.generation == seen || thread >= pool.job->n_threads) {
            if (pool.job && thread >= pool.job->n_threads)
                seen = pool.generation;
            pthread_cond_wait(&pool.wake, &pool.mutex);
        }
        seen = pool.generation;
        hc_job *job = pool.job;
        pool.running++;
        pthread_mutex_unlock(&pool.mutex);
        take_tickets(job, thread);
        pthread_mutex_lock(&pool.mutex);
        if (--pool.running == 0)
            pthread_cond_signal(&pool.done);
    }
    return NULL;
}

/* The child of a fork has none of the workers and perhaps a locked mutex: it starts over. */
static void restart_in_child(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.n_workers = 0;
    pool.job = NULL;
    pool.running = 0;
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, restart_in_child); }

/* Called with the owner lock held: workers 1 .. wanted - 1 exist afterwards, or as many as the system gives. */
static void grow(int wanted) {
    if (pool.n_workers >= wanted - 1)
        return;
    sigset_t all, before; /* signals belong to the caller's threads: a worker is born deaf to them */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.n_workers < wanted - 1) {
        pthread_t handle;
        if (pthread_create(&handle, NULL, work, (void *)(intptr_t)(pool.n_workers + 1)) != 0)
            break;
        pthread_detach(handle);
        pool.n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void hc_parallel(int n_threads, int64_t n_tasks, hc_task *task, void *context) {
    hc_job job = {.task = task, .context = context, .n_tasks = n_tasks};
    atomic_init(&job.next, 0);
    n_threads = (int)hc_min(hc_min(n_threads, HC_MAX_THREADS), n_tasks);
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* before anyone can hold a lock */
    pthread_once(&once, register_fork_handler);
    if (n_threads <= 1 || pthread_mutex_trylock(&pool.owner) != 0) {
        take_tickets(&job, 0);
        return;
    }
    grow(n_threads);
    job.n_threads = n_threads;
    pthread_mutex_lock(&pool.mutex);
    pool.job = &job;
    pool.generation++;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
    take_tickets(&job, 0);
    pthread_mutex_lock(&pool.mutex);
    pool.job = NULL; /* a worker that has not woken yet finds nothing to do */
    while (pool.running > 0)
        pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.owner);
}
