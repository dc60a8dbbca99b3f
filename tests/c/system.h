/* What the tests need from the operating system besides csrc/base/platform: forbidden pages, child processes, small
 * stacks, faults. Windows has no fork, and there a fault ends the program.
 */
#ifndef HC_TEST_SYSTEM_H
#define HC_TEST_SYSTEM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

size_t page_size(void);

/* `usable` bytes (a multiple of a page) before a forbidden page; NULL if there is no memory. */
void *reserve_pages(size_t usable);
void release_pages(void *start, size_t usable);

/* Whether a write to this address would end the process. A child process tries it if the system has fork. */
bool write_faults(volatile unsigned char *address);

/* The result of works() in a child of this process; true if the system has no fork. */
bool child_says(bool (*works)(void *context), void *context);

/* The result of body() in a thread with a stack of 64 KiB or the system's minimum; -1 if no thread starts. */
int on_small_stack(int (*body)(void));

/* Makes a fatal signal call `handle`; if that returns, the signal ends the program as usual. */
void handle_faults(void (*handle)(int number, const void *address, bool is_access));

#if defined(_WIN32)
typedef jmp_buf place_buf;
#define remember_place(place) setjmp(place)
#define return_to_place(place) longjmp(place, 1)
#else
typedef sigjmp_buf place_buf;
#define remember_place(place) sigsetjmp(place, 1)
#define return_to_place(place) siglongjmp(place, 1)
#endif

#endif
