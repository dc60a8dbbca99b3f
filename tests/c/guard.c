/* Guarded memory. */
#include "guard.h"

#include "system.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEPT: how many one-page blocks are kept for reuse, since a system call costs more than most checks. */
enum { POISON = 0xa5, MAX_BLOCKS = 4096, KEPT = 64 };

static struct {
    unsigned char *start;
    size_t slack, bytes, usable;
} blocks[MAX_BLOCKS];
static int n_blocks;
static unsigned char *kept[KEPT];
static int n_kept;

void *guard_alloc_before(size_t bytes, size_t behind) {
    const size_t page = page_size(), usable = (bytes + behind + page) / page * page;
    unsigned char *start = NULL;
    if (n_blocks < MAX_BLOCKS)
        start = usable == page && n_kept > 0 ? kept[--n_kept] : reserve_pages(usable);
    if (!start) {
        fprintf(stderr, "guard: no memory\n");
        exit(2);
    }
    memset(start, POISON, usable);
    blocks[n_blocks].start = start;
    blocks[n_blocks].slack = usable - bytes - behind;
    blocks[n_blocks].bytes = bytes;
    blocks[n_blocks].usable = usable;
    n_blocks++;
    return start + usable - bytes - behind;
}

void *guard_alloc(size_t bytes) { return guard_alloc_before(bytes, 0); }

static bool is_poisoned(const unsigned char *from, size_t bytes) {
    unsigned char other = 0;
    for (size_t i = 0; i < bytes; i++)
        other |= from[i] ^ POISON;
    return other == 0;
}

bool guard_release(void) {
    bool untouched = true;
    while (n_blocks > 0) {
        n_blocks--;
        unsigned char *start = blocks[n_blocks].start;
        const size_t usable = blocks[n_blocks].usable, end = blocks[n_blocks].slack + blocks[n_blocks].bytes;
        untouched = is_poisoned(start, blocks[n_blocks].slack) && is_poisoned(start + end, usable - end) && untouched;
        if (usable == page_size() && n_kept < KEPT)
            kept[n_kept++] = start;
        else
            release_pages(start, usable);
    }
    return untouched;
}

const void *guard_nearest(const void *address, size_t *bytes) {
    const uintptr_t at = (uintptr_t)address;
    for (int i = 0; i < n_blocks; i++) {
        const uintptr_t start = (uintptr_t)blocks[i].start;
        if (at < start || at >= start + blocks[i].usable + page_size())
            continue;
        *bytes = blocks[i].bytes;
        return blocks[i].start + blocks[i].slack;
    }
    return NULL;
}

bool guard_works(void) {
    volatile unsigned char *memory = guard_alloc(13);
    memory[12] = 1;
    const bool fired = write_faults(memory + 13);
    memory[-1] = 1;
    const bool front = !guard_release();
    memory = guard_alloc_before(13, 5);
    memory[13] = 1;
    const bool behind = !guard_release();
    guard_alloc_before(13, 5);
    return guard_release() && front && behind && fired;
}
