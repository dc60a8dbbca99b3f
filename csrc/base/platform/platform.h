/* The interface to the operating system: locks, threads, forks, clock, processors, libraries opened by name. posix.c
 * has the common part of POSIX systems and the aligned memory of base.h. linux.c and macos.c (also for the BSDs) have
 * the rest, windows.c has everything. No other file of the core includes a header of the system.
 */
#ifndef HC_PLATFORM_H
#define HC_PLATFORM_H

#include "base/base.h"

#if defined(_WIN32)
typedef struct {
    void *state; /* SRWLOCK and CONDITION_VARIABLE: one pointer, 0 at first */
} hc_mutex, hc_condition;
typedef struct {
    void *state; /* INIT_ONCE */
} hc_once;
#define HC_MUTEX_INIT {NULL}
#define HC_CONDITION_INIT {NULL}
#define HC_ONCE_INIT {NULL}
#else
#include <pthread.h>
typedef pthread_mutex_t hc_mutex;
typedef pthread_cond_t hc_condition;
typedef pthread_once_t hc_once;
#define HC_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define HC_CONDITION_INIT PTHREAD_COND_INITIALIZER
#define HC_ONCE_INIT PTHREAD_ONCE_INIT
#endif

void hc_mutex_init(hc_mutex *mutex);
void hc_mutex_lock(hc_mutex *mutex);
bool hc_mutex_try(hc_mutex *mutex); /* false if another thread holds it */
void hc_mutex_unlock(hc_mutex *mutex);

void hc_condition_init(hc_condition *condition);
void hc_condition_wait(hc_condition *condition, hc_mutex *mutex);
void hc_condition_wait_for(hc_condition *condition, hc_mutex *mutex, int64_t ns); /* at most about that long */
void hc_condition_signal(hc_condition *condition);
void hc_condition_broadcast(hc_condition *condition);

void hc_call_once(hc_once *once, void (*function)(void));

/* The function of a thread. The memory must outlive the start of the thread. */
typedef struct {
    void (*body)(int number);
    int number;
} hc_thread;

/* Starts a detached thread with all signals blocked; false if the system cannot create it. */
bool hc_thread_start(hc_thread *thread);

/* Calls `restart` in every child that fork creates from now on; does nothing on systems without fork. */
void hc_after_fork(void (*restart)(void));

int64_t hc_now_ns(void); /* a monotonic clock */

/* Processors that this thread may run on: its current affinity, and the quota of its control group at the first call. 0
 * if unknown. */
int hc_platform_processors(void);

/* Linux: processors that the quotas of the control groups allow, rounded up, or 0 for no quota. `groups` is the
 * process's list of groups, `mount` the folder of all groups. */
int hc_quota_processors(const char *groups, const char *mount);

/* The processor of this thread, or -1 if hc_leave_cpu does nothing. */
int hc_this_cpu(void);

/* Linux may wake a worker on the processor of the calling thread and leave both there for milliseconds while other
 * processors are idle. This function excludes the processor from the affinity for a moment, which moves the thread. */
void hc_leave_cpu(int cpu);

/* Instruction sets of an ARM processor (bits of cpu.h) and its kind (hc_cpu_processor); unused on others. */
uint32_t hc_arm_isa(void);
uint32_t hc_arm_processor(void);

/* Linux enables the AMX tile registers only on request, once per process; false if it refuses. */
bool hc_request_amx(void);

/* Opens a library with private symbols; `path` is UTF-8 on Windows. NULL: `reason` has the cause, in `size` bytes. */
void *hc_library_open(const char *path, char *reason, size_t size);
void *hc_library_symbol(void *library, const char *name); /* NULL: the library lacks it */

#endif
