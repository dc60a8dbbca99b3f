/* The loops of kernels/peak/peak.h on every thread: the limits of the machine, with which benchmarks compare. The work
 * is cut into pieces (steps on registers, or blocks of memory), which threads take one after the other. So a slow
 * thread costs little. Parts of `data` at its ends that are not whole cache lines are not read.
 */
#include "base/threads.h"
#include "hc.h"
#include "kernels/kernel.h"

#include <string.h>

enum {
    PIECES = 16,           /* per thread, of a loop on registers */
    BLOCK_BYTES = 1 << 20, /* large compared with a page, small compared with the bytes that a benchmark reads */
    AHEAD_BYTES = 4096,    /* measured best for matmuls as well (Zen 4, 2026-11) */
};

typedef struct {
    hc_peak_loop_fn *loop;
    int64_t steps;
    uint64_t operations, sum; /* of piece 0: all pieces are equal */
} hc_loop_context;

static void loop_piece(void *argument, int64_t piece, int thread) {
    (void)thread;
    hc_loop_context *const context = argument;
    _Alignas(HC_CACHE_LINE) uint8_t state[HC_PEAK_STATE_BYTES];
    for (int i = 0; i < HC_PEAK_STATE_BYTES; i += 4) {
        const float value = (float)i;
        memcpy(state + i, &value, sizeof value);
    }
    const int64_t operations = context->loop(context->steps, state);
    if (piece != 0)
        return;
    context->operations = (uint64_t)operations;
    for (int i = 0; i < HC_PEAK_STATE_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, state + i, sizeof word);
        context->sum += word;
    }
}

typedef struct {
    hc_peak_read_fn *read;
    const uint8_t *first;
    int64_t size, ahead;
    uint64_t sum[HC_MAX_THREADS][8]; /* a cache line each */
} hc_read_context;

static void read_block(void *argument, int64_t block, int thread) {
    hc_read_context *const context = argument;
    const int64_t begin = block * BLOCK_BYTES, size = hc_min(BLOCK_BYTES, context->size - begin);
    context->sum[thread][0] += context->read(context->first + begin, size, context->ahead);
}

hc_status hc_limit(const hc_run *run, const char *what, const void *data, int64_t amount, hc_limit_result *result,
                   hc_error *error) {
    static const struct {
        const char *what;
        hc_kernel_family family;
        int64_t ahead;
    } LIMITS[] = {{"fma", HC_FAMILY_peak_fma, 0},
                  {"dot", HC_FAMILY_peak_dot, 0},
                  {"shuffle", HC_FAMILY_peak_shuffle, 0},
                  {"read", HC_FAMILY_peak_read, 0},
                  {"read-ahead", HC_FAMILY_peak_read, AHEAD_BYTES}};
    const hc_kernel *kernel = NULL;
    int64_t ahead = 0;
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++)
        if (strcmp(what, LIMITS[i].what) == 0) {
            kernel = hc_kernel_best(LIMITS[i].family, run->isa);
            ahead = LIMITS[i].ahead;
        }
    if (!kernel)
        return hc_fail(error, HC_VALUE, "limit: there is no '%.40s'", what);
    if (amount < 0)
        return hc_fail(error, HC_VALUE, "limit: amount is %lld, expected 0 or more", (long long)amount);
    *result = (hc_limit_result){.isa = kernel->isa};
    if (kernel->family == HC_FAMILY_peak_read) {
        hc_read_context context = {.read = kernel->fn.peak_read, .ahead = ahead};
        const int64_t skipped = (int64_t)(-(uintptr_t)data & (HC_CACHE_LINE - 1));
        context.first = (const uint8_t *)data + skipped;
        context.size = hc_max(amount - skipped, 0) / HC_CACHE_LINE * HC_CACHE_LINE;
        hc_parallel(run->n_threads, hc_ceil_div(context.size, BLOCK_BYTES), read_block, &context);
        for (int i = 0; i < HC_MAX_THREADS; i++)
            result->sum += context.sum[i][0];
        result->work = (double)context.size;
        return HC_OK;
    }
    const int64_t pieces = (int64_t)run->n_threads * PIECES;
    hc_loop_context context = {.loop = kernel->fn.peak_fma /* all loops have its type */,
                               .steps = hc_ceil_div(amount, PIECES)};
    hc_parallel(run->n_threads, pieces, loop_piece, &context);
    result->work = (double)context.operations * (double)context.steps * (double)pieces;
    result->sum = context.sum;
    return HC_OK;
}
