/* What the tests want of an operating system, beyond csrc/base/platform: forbidden pages, child processes, small stacks, faults.
 * Windows has no fork, and a fault ends the program there.
 */
#ifndef HC_TEST_SYSTEM_H
#define HC_TEST_SYSTEM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

size_t page_size(void);

/* `usable` bytes, a multiple of a page, in front of a page that nobody may touch; NULL: no memory. */
void *reserve_pages(size_t usable);
void release_pages(void *start, size_t usable);

/* Whether a write to this address would end the process. A child process tries it where there is one. */
bool write_faults(volatile unsigned char *address);

/* What works() says in a child of this process; true where no child can be had. */
bool child_says(bool (*works)(void *context), void *context);

/* The result of body() in a thread with a stack of 64 KiB or as little as the system has, or -1: no such thread. */
int on_small_stack(int (*body)(void));

/* Calls handle(signal's number, address or NULL) where the process would end, until it returns. */
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
