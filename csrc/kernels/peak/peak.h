/* The machine's limits, for benchmarks: loops with one kind of operation, as fast as registers or memory allow. Loops
 * on registers have 12 independent chains (a multiply-add takes 4 or 5 cycles and two may start in each). A chain is 16
 * bytes of `state`, 64-byte aligned; a wide register holds as many copies of them. */
#ifndef HC_PEAK_H
#define HC_PEAK_H

#include "base/base.h"

enum { HC_PEAK_CHAINS = 12, HC_PEAK_STATE_BYTES = 12 * 16 };

/* steps times, for each chain; returns the operations of one step, all lanes counted, 0 for no steps:
 *   peak_fma      4 floats:  x = fmaf(x, -0.5f, 1)                          two operations each
 *   peak_dot      4 int32:   x += 1 * 5 + 2 * -6 + 1 * 5 + 2 * -6           eight operations each, of u8 times s8
 *   peak_shuffle  16 bytes:  x[i] = x[(7 * i + 3) % 16]                     one operation per instruction */
typedef int64_t hc_peak_loop_fn(int64_t steps, void *state);

/* peak_read:  the sum of the 64-bit words, modulo 2^64; bytes 64-byte aligned, size a multiple of 64.
 * ahead: distance of the prefetch in bytes, 0 for none. */
typedef uint64_t hc_peak_read_fn(const void *bytes, int64_t size, int64_t ahead);

/* Makes the compiler assume that x changes in its register. Otherwise it moves an invariant step out of the loop, or
 * (gcc 12) copies all chains in every step. It generates no instruction. */
#define HC_PEAK_OPAQUE(x) __asm__ volatile("" : "+v"(x))

#endif
