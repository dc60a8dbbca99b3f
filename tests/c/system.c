#include "system.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(_WIN32)

#include <windows.h>

size_t page_size(void) { return 4096; }

void *reserve_pages(size_t usable) {
    char *const start = VirtualAlloc(NULL, usable + page_size(), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    DWORD before;
    return start && VirtualProtect(start + usable, page_size(), PAGE_NOACCESS, &before) ? start : NULL;
}

void release_pages(void *start, size_t usable) {
    (void)usable;
    VirtualFree(start, 0, MEM_RELEASE);
}

bool write_faults(volatile unsigned char *address) {
    MEMORY_BASIC_INFORMATION found;
    return VirtualQuery((const void *)address, &found, sizeof found) && found.Protect == PAGE_NOACCESS;
}

bool child_says(bool (*works)(void *context), void *context) { return (void)works, (void)context, true; }

typedef struct {
    int (*body)(void);
    int code;
} stack_call;

static DWORD WINAPI begin(void *argument) {
    stack_call *const call = argument;
    call->code = call->body();
    return 0;
}

int on_small_stack(int (*body)(void)) {
    stack_call call = {body, -1};
    const HANDLE thread = CreateThread(NULL, 64 << 10, begin, &call, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (!thread)
        return -1;
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
    return call.code;
}

void handle_faults(void (*handle)(int number, const void *address, bool is_access)) { (void)handle; }

#else

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

size_t page_size(void) {
    static size_t page;
    return page ? page : (page = (size_t)sysconf(_SC_PAGESIZE));
}

void *reserve_pages(size_t usable) {
    char *const start = mmap(NULL, usable + page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start != MAP_FAILED && mprotect(start + usable, page_size(), PROT_NONE) == 0 ? start : NULL;
}

void release_pages(void *start, size_t usable) { munmap(start, usable + page_size()); }

enum { FAULTED = 77 };

static void on_fault(int number) {
    (void)number;
    _exit(FAULTED);
}

static int status_of_child(bool (*works)(void *context), void *context) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(!works(context));
    int status = 1;
    const bool has_ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    return has_ended ? WEXITSTATUS(status) : -1;
}

static bool write_byte(void *address) {
    signal(SIGSEGV, on_fault); /* otherwise a sanitizer or emulator would report this intended fault */
    signal(SIGBUS, on_fault);
    *(volatile unsigned char *)address = 1;
    return true;
}

bool write_faults(volatile unsigned char *address) { return status_of_child(write_byte, (void *)address) == FAULTED; }

bool child_says(bool (*works)(void *context), void *context) { return status_of_child(works, context) == 0; }

typedef struct {
    int (*body)(void);
    int code;
} stack_call;

static void *begin(void *argument) {
    stack_call *const call = argument;
    call->code = call->body();
    return NULL;
}

int on_small_stack(int (*body)(void)) {
    const long least = sysconf(_SC_THREAD_STACK_MIN); /* glibc: 16 KiB on x86-64, 128 KiB on aarch64 */
    stack_call call = {body, -1};
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, (size_t)(least > 64 << 10 ? least : 64 << 10)) != 0 ||
        pthread_create(&thread, &attributes, begin, &call) != 0)
        return -1;
    pthread_join(thread, NULL);
    return call.code;
}

static void (*handler)(int number, const void *address, bool is_access);

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    handler(number, info->si_addr, number == SIGSEGV || number == SIGBUS);
    signal(number, SIG_DFL);
    raise(number);
}

void handle_faults(void (*handle)(int number, const void *address, bool is_access)) {
    static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    handler = handle;
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    action.sa_sigaction = on_signal;
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        sigaction(SIGNALS[i], &action, NULL);
}

#endif
