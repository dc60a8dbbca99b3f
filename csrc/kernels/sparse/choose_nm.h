/* Shared by the kernels of choose_nm. */
#ifndef HC_CHOOSE_NM_H
#define HC_CHOOSE_NM_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { HC_AHEAD = 4096 }; /* bytes to prefetch */

static inline int64_t hc_first_nan(const float *x) {
    int64_t i = 0;
    while (x[i] == x[i])
        i++;
    return i;
}

/* Prefetches HC_AHEAD bytes after x, which may be beyond the input. */
static inline void hc_fetch_ahead(const float *x, int floats) {
    for (int i = 0; i < floats; i += 16)
        _mm_prefetch((const char *)((uintptr_t)(x + i) + HC_AHEAD), _MM_HINT_T0);
}

/* Eight positions of one byte each -> `bits` bits each. */
static inline uint64_t hc_packed_positions(uint64_t positions, int bits) {
    return _pext_u64(positions, ((1u << bits) - 1) * UINT64_C(0x0101010101010101));
}

#endif
