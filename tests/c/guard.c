/* Guarded memory by mmap and mprotect. */
#include "guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POISON = 0xa5, MAX_BLOCKS = 4096 };

static struct {
    unsigned char *start;
    size_t slack, total;
} blocks[MAX_BLOCKS];
static int n_blocks;

void *guard_alloc(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t usable = (bytes + page) / page * page;
    unsigned char *start = mmap(NULL, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n_blocks == MAX_BLOCKS || start == MAP_FAILED || mprotect(start + usable, page, PROT_NONE) != 0) {
        fprintf(stderr, "guard: no memory\n");
        exit(2);
    }
    memset(start, POISON, usable);
    blocks[n_blocks].start = start;
    blocks[n_blocks].slack = usable - bytes;
    blocks[n_blocks].total = usable + page;
    n_blocks++;
    return start + usable - bytes;
}

bool guard_release(void) {
    bool untouched = true;
    while (n_blocks > 0) {
        n_blocks--;
        for (size_t i = 0; i < blocks[n_blocks].slack; i++)
            untouched = untouched && blocks[n_blocks].start[i] == POISON;
        munmap(blocks[n_blocks].start, blocks[n_blocks].total);
    }
    return untouched;
}

bool guard_works(void) {
    volatile unsigned char *memory = guard_alloc(13);
    memory[12] = 1;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would report what is meant to happen */
        memory[13] = 1;
        _exit(0);
    }
    int status = 0;
    const bool fired = child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status);
    memory[-1] = 1;
    return !guard_release() && fired;
}
