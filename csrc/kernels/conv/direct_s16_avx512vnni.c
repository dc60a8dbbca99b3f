/* A tile of int16 by vpdpwssd: 14 rows by 32 columns, two values of k at a time: hc_direct_s16_avx512vnni. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 14, NR = 32 };
typedef __m512i vector;

/* As in kernels/dots/avx512vnni.h: the intrinsic makes gcc 12 copy accumulators. */
INLINE vector dot(vector sum, vector x, vector b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(b));
    return sum;
}

INLINE vector load(const int16_t *from) { return _mm512_loadu_si512(from); }
INLINE void store(int32_t *to, vector sum) { _mm512_storeu_si512(to, sum); }
INLINE vector broadcast(int32_t pair) { return _mm512_set1_epi32(pair); }

#include "kernels/conv/direct_s16.h"

HC_DIRECT_S16(avx512vnni, HC_CASES_14)
