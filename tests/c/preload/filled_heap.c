/* A library for LD_PRELOAD that fills fresh memory with 0xff bytes: a NaN as a float, -1 as an integer. A result that
 * depends on memory that nothing wrote becomes wrong at once. calloc keeps its zeros. glibc only.
 *
 *   | 0xff ... of the block's whole usable size |            malloc, aligned_alloc, memalign, posix_memalign
 *   | old bytes ... | 0xff ... of the growth     |           realloc
 *
 * cc -shared -fPIC -o filled_heap.so tests/c/preload/filled_heap.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);

enum { FILL = 0xff };

static void *filled(void *pointer) {
    if (pointer)
        memset(pointer, FILL, malloc_usable_size(pointer));
    return pointer;
}

void *malloc(size_t bytes) { return filled(__libc_malloc(bytes)); }

void *memalign(size_t alignment, size_t bytes) { return filled(__libc_memalign(alignment, bytes)); }

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **pointer, size_t alignment, size_t bytes) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
        return EINVAL;
    void *found = memalign(alignment, bytes);
    if (!found)
        return ENOMEM;
    *pointer = found;
    return 0;
}

void *realloc(void *pointer, size_t bytes) {
    const size_t before = pointer ? malloc_usable_size(pointer) : 0;
    unsigned char *found = __libc_realloc(pointer, bytes);
    const size_t after = found ? malloc_usable_size(found) : 0;
    if (after > before)
        memset(found + before, FILL, after - before);
    return found;
}
