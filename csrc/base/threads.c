/* The pool: workers sleep on a condition. Of a job each thread has a share, the same one each time, since what it wrote lies
 * in its caches; who has ended helps the others. Waking a sleeper takes as long as a small product, and where processors are
 * virtual milliseconds, and products come one after the other. So who waits looks for SPIN_NS first, unless there are more
 * threads than processors. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu, cpu_set_t */
#endif
#include "base/threads.h"
#include "base/float_env.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_NS = 100000, LOOKS = 64 };

/* Tasks side by side, for one thread; the others take from it when theirs are done. */
typedef struct {
    _Alignas(HC_CACHE_LINE) atomic_llong next;
    int64_t end;
} hc_share;

typedef struct {
    hc_task *task;
    void *context;
    int n_threads, cpu; /* where the caller runs */
    hc_share *share;    /* one a thread */
} hc_job;

static struct {
    pthread_mutex_t owner; /* held by the call that uses the pool */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake, done;
    int n_workers;
    atomic_int n_cpus;        /* that the last caller might run on */
    atomic_ullong generation; /* counts jobs, so that a worker sees a new one */
    hc_job *job;
    atomic_int running;             /* workers inside the job */
    hc_share share[HC_MAX_THREADS]; /* of the job; the owner's, since its stack may be small */
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void take_tasks(hc_job *job, int thread) {
    const hc_float_env saved = hc_float_env_enter();
    for (int i = 0; i < job->n_threads; i++) {
        hc_share *share = &job->share[(thread + i) % job->n_threads];
        for (int64_t task; (task = atomic_fetch_add(&share->next, 1)) < share->end;)
            job->task(job->context, task, thread);
    }
    hc_float_env_leave(saved);
}

static void rest_a_moment(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The lock is held for some instructions: who sleeps for it sleeps too long. */
static void lock(void) {
    for (int look = 0; look < LOOKS; look++) {
        if (pthread_mutex_trylock(&pool.mutex) == 0)
            return;
        rest_a_moment();
    }
    pthread_mutex_lock(&pool.mutex);
}

static bool has_new_job(uint64_t seen) { return atomic_load(&pool.generation) != seen; }

static bool has_ended(uint64_t seen) {
    (void)seen;
    return atomic_load(&pool.running) == 0;
}

#if defined(__linux__)
static int this_cpu(void) { return sched_getcpu(); }

/* Linux may wake a worker on the processor of the caller who wakes it, and leave both there for milliseconds while others
 * are idle. To be allowed all others for a moment moves it. */
static void leave_cpu(int cpu) {
    cpu_set_t all, others;
    if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
}
#else
static int this_cpu(void) { return -1; }

static void leave_cpu(int cpu) { (void)cpu; }
#endif

/* Look until it is so, or SPIN_NS have gone by. */
static void spin(bool (*is_so)(uint64_t), uint64_t seen, int n_threads) {
    if (n_threads > pool.n_cpus)
        return;
    for (const int64_t end = now_ns() + SPIN_NS; now_ns() < end;)
        for (int look = 0; look < LOOKS; look++) {
            if (is_so(seen))
                return;
            rest_a_moment();
        }
}

/* Waits for a job that is for worker `thread` and that it has not seen; with the lock held, and it is when it returns. */
static hc_job *await_job(int thread, uint64_t *seen) {
    for (;;) {
        while (!pool.job || pool.generation == *seen || thread >= pool.job->n_threads) {
            if (pool.job && thread >= pool.job->n_threads)
                *seen = pool.generation;
            pthread_cond_wait(&pool.wake, &pool.mutex);
        }
        if (pool.job->cpu < 0 || this_cpu() != pool.job->cpu)
            break;
        const int cpu = pool.job->cpu; /* to move may take longer than the job */
        *seen = pool.generation;
        pthread_mutex_unlock(&pool.mutex);
        leave_cpu(cpu);
        lock();
        if (pool.job && pool.generation == *seen)
            break;
    }
    *seen = pool.generation;
    return pool.job;
}

static void *work(void *argument) {
    const int thread = (int)(intptr_t)argument;
    uint64_t seen = 0;
    lock();
    for (;;) {
        hc_job *job = await_job(thread, &seen);
        pool.running++;
        pthread_mutex_unlock(&pool.mutex);
        take_tasks(job, thread);
        const int n_threads = job->n_threads; /* the job ends with the last of them */
        lock();
        if (--pool.running == 0)
            pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.mutex);
        spin(has_new_job, seen, n_threads);
        lock();
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
    hc_job job;
    hc_share own;
    n_threads = (int)hc_max(1, hc_min(hc_min(n_threads, HC_MAX_THREADS), n_tasks));
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* before anyone can hold a lock */
    pthread_once(&once, register_fork_handler);
    const bool alone = n_threads == 1 || pthread_mutex_trylock(&pool.owner) != 0;
    job.task = task;
    job.context = context;
    job.n_threads = alone ? 1 : n_threads;
    job.share = alone ? &own : pool.share;
    job.cpu = this_cpu();
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
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
    take_tasks(&job, 0);
    lock();
    pool.job = NULL; /* a worker that has not woken yet finds nothing to do */
    pthread_mutex_unlock(&pool.mutex);
    spin(has_ended, 0, n_threads);
    lock();
    while (pool.running > 0)
        pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.owner);
}
