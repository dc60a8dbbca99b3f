/* Kernels run with round-to-nearest and without flush-to-zero, whatever mode the process has set, so subnormals are
 * kept. Save, set, run, restore. The task runner of base/threads.h does this on every thread.
 */
#ifndef HC_FLOAT_ENV_H
#define HC_FLOAT_ENV_H

#include "base/base.h"

#if HC_X86

#include <xmmintrin.h>
typedef unsigned int hc_float_env;
static inline hc_float_env hc_float_env_enter(void) {
    const unsigned int saved = _mm_getcsr();
    _mm_setcsr(0x1f80); /* all exceptions masked, nearest, no DAZ, no FTZ */
    return saved;
}
static inline void hc_float_env_leave(hc_float_env saved) { _mm_setcsr(saved); }

#elif HC_ARM

typedef uint64_t hc_float_env;
static inline hc_float_env hc_float_env_enter(void) {
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return saved;
}
static inline void hc_float_env_leave(hc_float_env saved) { __asm__ volatile("msr fpcr, %0" : : "r"(saved)); }

#else

typedef int hc_float_env;
static inline hc_float_env hc_float_env_enter(void) { return 0; }
static inline void hc_float_env_leave(hc_float_env saved) { (void)saved; }

#endif
#endif
