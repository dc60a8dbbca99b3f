/* A library for LD_PRELOAD that guards the memory of aligned_alloc, the source of all scratch memory of the core. A
 * block ends at most 63 bytes before a forbidden page and starts poisoned; freed memory is forbidden too.
 *
 *   | size | poison ... | the bytes asked for | forbidden page |        one block; addresses are never reused
 *
 * cc -shared -fPIC -o guarded_heap.so tests/c/preload/guarded_heap.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVED ((size_t)1 << 43) /* address space only; live blocks alone use memory */
enum { PAGE = 4096, POISON = 0xff /* a NaN as a float */ };

static unsigned char *region;
static atomic_size_t used;

__attribute__((constructor)) static void reserve(void) {
    region = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED || sysconf(_SC_PAGESIZE) != PAGE)
        abort();
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    const size_t block = (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE; /* one page for the size, one forbidden */
    const size_t at = atomic_fetch_add(&used, block);
    if (bytes > RESERVED || at + block > RESERVED || alignment > PAGE) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned char *start = region + at, *end = start + block - PAGE;
    if (mprotect(start, block - PAGE, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    memset(start, POISON, block - PAGE);
    memcpy(start, &block, sizeof block);
    return (unsigned char *)((uintptr_t)(end - bytes) / alignment * alignment);
}

void free(void *pointer) {
    static void (*next)(void *);
    if ((unsigned char *)pointer < region || (unsigned char *)pointer >= region + RESERVED) {
        if (!next)
            *(void **)&next = dlsym(RTLD_NEXT, "free");
        next(pointer);
        return;
    }
    /* The block's size is stored one page before the first page of the pointer's data. */
    unsigned char *start = (unsigned char *)((uintptr_t)pointer / PAGE * PAGE) - PAGE;
    size_t block;
    memcpy(&block, start, sizeof block);
    if (mmap(start, block, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
}
