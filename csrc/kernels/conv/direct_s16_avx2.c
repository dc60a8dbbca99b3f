/* A tile of int16 by vpmaddwd: 6 rows by 16 columns, two values of k at a time: hc_direct_s16_avx2. */
#include "kernels/dots/avx2.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 16 };
typedef __m256i vector;

INLINE vector load(const int16_t *from) { return _mm256_loadu_si256((const __m256i *)(const void *)from); }
INLINE void store(int32_t *to, vector sum) { _mm256_storeu_si256((__m256i *)(void *)to, sum); }
INLINE vector broadcast(int32_t pair) { return _mm256_set1_epi32(pair); }

#include "kernels/conv/direct_s16.h"

HC_DIRECT_S16(avx2, HC_CASES_6)
