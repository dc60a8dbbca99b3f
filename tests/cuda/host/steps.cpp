/* What a plan launches, in words. */
#include "run.h"

#include <stdio.h>

extern "C" {
/* The steps, one a line: kernel, blocks, threads of a block and bytes of shared memory. The number of characters. */
int hc_cuda_host_steps(const hc_cuda_plan *plan, char *text, int room) {
    int n = 0;
    for (int i = 0; i < plan->n; i++) {
        const hc_cuda_step *s = &plan->step[i];
        n += snprintf(text + n, (size_t)(room - n), "%s %u %u %u %u %u\n", s->kernel, s->grid[0], s->grid[1], s->grid[2],
                      s->block[0], s->shared_bytes);
    }
    return n;
}
}
