/* The pool. Workers sleep on a condition. Each thread gets the same share of a job at each call, since its earlier
 * results are in its caches; a thread that has finished helps the others. Waking a sleeping thread takes as long as a
 * small matmul, and milliseconds on virtual processors, and matmuls often follow each other closely. So a waiting
 * thread polls for SPIN_NS first, unless there are more threads than processors. */
#include "base/threads.h"
#include "base/float_env.h"
#include "base/platform/platform.h"
#include "base/watch.h"

#include <stdatomic.h>

enum { SPIN_NS = 100000, LOOKS = 64 };

/* Adjacent tasks of one thread; threads that have finished theirs take some of them. */
typedef struct {
    _Alignas(HC_CACHE_LINE) atomic_llong next;
    int64_t end;
} hc_share;

typedef struct {
    hc_task *task;
    void *context;
    hc_watch *watch;    /* of the caller, or NULL */
    int n_threads, cpu; /* processor of the caller */
    hc_share *share;    /* one per thread */
} hc_job;

static struct {
    hc_mutex owner; /* held by the call that uses the pool */
    hc_mutex mutex; /* guards all below */
    hc_condition wake, done;
    int n_workers;
    hc_thread worker[HC_MAX_THREADS];
    atomic_int n_cpus;        /* processors that the last caller could use */
    atomic_ullong generation; /* counts jobs, so that a worker sees a new one */
    hc_job *job;
    atomic_int running;             /* workers inside the job */
    hc_share share[HC_MAX_THREADS]; /* of the job; not on the caller's stack, which may be small */
} pool = {.owner = HC_MUTEX_INIT, .mutex = HC_MUTEX_INIT, .wake = HC_CONDITION_INIT, .done = HC_CONDITION_INIT};

static void take_tasks(hc_job *job, int thread) {
    const hc_float_env saved = hc_float_env_enter();
    for (int i = 0; i < job->n_threads; i++) {
        hc_share *share = &job->share[(thread + i) % job->n_threads];
        for (int64_t task; (task = atomic_fetch_add(&share->next, 1)) < share->end;)
            if (!hc_stopping())
                job->task(job->context, task, thread);
    }
    hc_float_env_leave(saved);
}

static void rest_a_moment(void) {
#if HC_X86
    __builtin_ia32_pause();
#elif HC_ARM
    __asm__ volatile("yield");
#endif
}

/* The lock is held for a few instructions only, so spinning is faster than sleeping. */
static void lock(void) {
    for (int look = 0; look < LOOKS; look++) {
        if (hc_mutex_try(&pool.mutex))
            return;
        rest_a_moment();
    }
    hc_mutex_lock(&pool.mutex);
}

static bool has_new_job(uint64_t seen) { return atomic_load(&pool.generation) != seen; }

static bool has_ended(uint64_t seen) {
    (void)seen;
    return atomic_load(&pool.running) == 0;
}

/* Polls until the condition holds or SPIN_NS have passed. */
static void spin(bool (*is_so)(uint64_t), uint64_t seen, int n_threads) {
    if (n_threads > pool.n_cpus)
        return;
    for (const int64_t end = hc_now_ns() + SPIN_NS; hc_now_ns() < end;)
        for (int look = 0; look < LOOKS; look++) {
            if (is_so(seen))
                return;
            rest_a_moment();
        }
}

/* Waits for a job for worker `thread` that it has not seen. The lock is held at the call and at the return. */
static hc_job *await_job(int thread, uint64_t *seen) {
    for (;;) {
        while (!pool.job || pool.generation == *seen || thread >= pool.job->n_threads) {
            if (pool.job && thread >= pool.job->n_threads)
                *seen = pool.generation;
            hc_condition_wait(&pool.wake, &pool.mutex);
        }
        if (pool.job->cpu < 0 || hc_this_cpu() != pool.job->cpu)
            break;
        const int cpu = pool.job->cpu; /* moving may take longer than the job */
        *seen = pool.generation;
        hc_mutex_unlock(&pool.mutex);
        hc_leave_cpu(cpu);
        lock();
        if (pool.job && pool.generation == *seen)
            break;
    }
    *seen = pool.generation;
    return pool.job;
}

static void work(int thread) {
    uint64_t seen = 0;
    lock();
    for (;;) {
        hc_job *job = await_job(thread, &seen);
        pool.running++;
        hc_mutex_unlock(&pool.mutex);
        hc_watch_follow(job->watch);
        take_tasks(job, thread);
        hc_watch_follow(NULL);
        const int n_threads = job->n_threads; /* read now: `job` is invalid once the last thread has finished */
        lock();
        if (--pool.running == 0)
            hc_condition_signal(&pool.done);
        hc_mutex_unlock(&pool.mutex);
        spin(has_new_job, seen, n_threads);
        lock();
    }
}

/* The child of a fork has no workers and possibly a locked mutex, so it starts over. */
static void restart_in_child(void) {
    hc_mutex_init(&pool.owner);
    hc_mutex_init(&pool.mutex);
    hc_condition_init(&pool.wake);
    hc_condition_init(&pool.done);
    pool.n_workers = 0;
    pool.job = NULL;
    pool.running = 0;
}

static void register_fork_handler(void) { hc_after_fork(restart_in_child); }

/* Called with the owner lock held. Afterwards workers 1 .. wanted - 1 exist, or as many as the system can create. */
static void grow(int wanted) {
    while (pool.n_workers < wanted - 1) {
        hc_thread *const next = &pool.worker[pool.n_workers];
        *next = (hc_thread){work, pool.n_workers + 1};
        if (!hc_thread_start(next))
            break;
        pool.n_workers++;
    }
}

void hc_parallel(int n_threads, int64_t n_tasks, hc_task *task, void *context) {
    hc_job job;
    hc_share own;
    n_threads = (int)hc_max(1, hc_min(hc_min(n_threads, HC_MAX_THREADS), n_tasks));
    static hc_once once = HC_ONCE_INIT; /* before any thread can hold a lock */
    hc_call_once(&once, register_fork_handler);
    const bool alone = n_threads == 1 || !hc_mutex_try(&pool.owner);
    job.task = task;
    job.context = context;
    job.watch = hc_watch_here();
    job.n_threads = alone ? 1 : n_threads;
    job.share = alone ? &own : pool.share;
    job.cpu = hc_this_cpu();
    for (int i = 0; i < job.n_threads; i++) {
        atomic_init(&job.share[i].next, n_tasks * i / job.n_threads);
        job.share[i].end = n_tasks * (i + 1) / job.n_threads;
    }
    if (alone) {
        take_tasks(&job, 0);
        return;
    }
    atomic_store(&pool.n_cpus, hc_processors());
    grow(n_threads);
    lock();
    pool.job = &job;
    pool.generation++;
    hc_condition_broadcast(&pool.wake);
    hc_mutex_unlock(&pool.mutex);
    take_tasks(&job, 0);
    lock();
    pool.job = NULL; /* a worker that has not woken yet finds no work */
    hc_mutex_unlock(&pool.mutex);
    spin(has_ended, 0, n_threads);
    lock();
    while (pool.running > 0) {
        if (!job.watch) {
            hc_condition_wait(&pool.done, &pool.mutex);
            continue;
        }
        hc_condition_wait_for(&pool.done, &pool.mutex, HC_WATCH_NS);
        hc_mutex_unlock(&pool.mutex); /* a question may take long */
        hc_stopping();
        lock();
    }
    hc_mutex_unlock(&pool.mutex);
    hc_mutex_unlock(&pool.owner);
}
