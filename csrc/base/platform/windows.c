/* Windows: Win32 threads and locks. There is no fork, and AMX tile registers are not requested. */
#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include "base/cpu.h"
#include "base/platform/platform.h"

#include <malloc.h>
#include <process.h>
#include <stdio.h>
#include <windows.h>

_Static_assert(sizeof(hc_mutex) == sizeof(SRWLOCK), "a lock is as large as Windows has it");
_Static_assert(sizeof(hc_condition) == sizeof(CONDITION_VARIABLE), "a condition is as large as Windows has it");
_Static_assert(sizeof(hc_once) == sizeof(INIT_ONCE), "what happens once is as large as Windows has it");

void hc_mutex_init(hc_mutex *mutex) { InitializeSRWLock((SRWLOCK *)mutex); }
void hc_mutex_lock(hc_mutex *mutex) { AcquireSRWLockExclusive((SRWLOCK *)mutex); }
bool hc_mutex_try(hc_mutex *mutex) { return TryAcquireSRWLockExclusive((SRWLOCK *)mutex) != 0; }
void hc_mutex_unlock(hc_mutex *mutex) { ReleaseSRWLockExclusive((SRWLOCK *)mutex); }

void hc_condition_init(hc_condition *condition) { InitializeConditionVariable((CONDITION_VARIABLE *)condition); }
void hc_condition_wait(hc_condition *condition, hc_mutex *mutex) {
    SleepConditionVariableSRW((CONDITION_VARIABLE *)condition, (SRWLOCK *)mutex, INFINITE, 0);
}
void hc_condition_wait_for(hc_condition *condition, hc_mutex *mutex, int64_t ns) {
    const DWORD ms = (DWORD)(ns / 1000000 + 1);
    SleepConditionVariableSRW((CONDITION_VARIABLE *)condition, (SRWLOCK *)mutex, ms, 0);
}
void hc_condition_signal(hc_condition *condition) { WakeConditionVariable((CONDITION_VARIABLE *)condition); }
void hc_condition_broadcast(hc_condition *condition) { WakeAllConditionVariable((CONDITION_VARIABLE *)condition); }

void hc_call_once(hc_once *once, void (*function)(void)) {
    BOOL is_first = FALSE;
    if (!InitOnceBeginInitialize((INIT_ONCE *)once, 0, &is_first, NULL) || !is_first)
        return;
    function();
    InitOnceComplete((INIT_ONCE *)once, 0, NULL);
}

static unsigned __stdcall begin(void *argument) {
    const hc_thread *const thread = argument;
    thread->body(thread->number);
    return 0;
}

bool hc_thread_start(hc_thread *thread) {
    const uintptr_t handle = _beginthreadex(NULL, 0, begin, thread, 0, NULL);
    return handle && CloseHandle((HANDLE)handle);
}

void hc_after_fork(void (*restart)(void)) { (void)restart; }

int64_t hc_now_ns(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceFrequency(&per_second);
    QueryPerformanceCounter(&ticks);
    const int64_t seconds = ticks.QuadPart / per_second.QuadPart, rest = ticks.QuadPart % per_second.QuadPart;
    return seconds * 1000000000 + rest * 1000000000 / per_second.QuadPart;
}

/* The mask is 0 for a process that runs in several groups of 64 processors. */
int hc_platform_processors(void) {
    DWORD_PTR mask = 0, all = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &mask, &all) || mask == 0)
        return (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    int count = 0;
    for (; mask; mask &= mask - 1)
        count++;
    return count;
}

int hc_this_cpu(void) { return -1; }

void hc_leave_cpu(int cpu) { (void)cpu; }

#if HC_ARM

uint32_t hc_arm_isa(void) {
    enum { HAS_DOTPROD = 43, HAS_I8MM = 66 }; /* PF_ARM_V82_DP_..., PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE */
    if (!IsProcessorFeaturePresent(HAS_DOTPROD))
        return HC_ISA_NEON;
    return HC_ISA_NEON | HC_ISA_DOTPROD | (IsProcessorFeaturePresent(HAS_I8MM) ? HC_ISA_I8MM : 0);
}

uint32_t hc_arm_processor(void) { return 0; }

#endif

bool hc_request_amx(void) { return false; }

void *hc_alloc_aligned(int64_t bytes) {
    return bytes < 0 ? NULL : _aligned_malloc((size_t)hc_max(bytes, 1), HC_CACHE_LINE);
}

void hc_free_aligned(void *pointer) { _aligned_free(pointer); }

void *hc_library_open(const char *path, char *reason, size_t size) {
    wchar_t wide[MAX_PATH * 8];
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, sizeof wide / sizeof *wide)) {
        snprintf(reason, size, "the path is too long");
        return NULL;
    }
    const HMODULE library =
        LoadLibraryExW(wide, NULL, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    if (!library)
        snprintf(reason, size, "%s cannot be loaded (error %lu of Windows)", path, GetLastError());
    return (void *)library;
}

void *hc_library_symbol(void *library, const char *name) {
    return (void *)(uintptr_t)GetProcAddress((HMODULE)library, name);
}

#endif
