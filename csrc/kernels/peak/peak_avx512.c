/* hc_peak_fma_avx512, hc_peak_dot_avx512, hc_peak_shuffle_avx512 and hc_peak_read_avx512: kernels/peak/peak_x86.h. */
#include "base/lanes/avx512.h"

typedef __m512i vector;

static inline vector spread(const void *from) { return _mm512_broadcast_i32x4(_mm_loadu_si128(from)); }
static inline __m128i quarter(vector a) { return _mm512_castsi512_si128(a); }
static inline vector every(int32_t a) { return _mm512_set1_epi32(a); }
static inline vector add_words(vector a, vector b) { return _mm512_add_epi32(a, b); }
static inline vector multiply_add(vector a, vector b) { return _mm512_madd_epi16(a, b); }
static inline vector shuffle(vector a, vector index) { return _mm512_shuffle_epi8(a, index); }
static inline vector add_doubles(vector a, vector b) { return _mm512_add_epi64(a, b); }
static inline vector line(const char *from) { return _mm512_load_si512(from); }
static inline uint64_t sum_of(vector a) {
    const __m256i half = _mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    uint64_t two[2]; /* the reductions of immintrin.h add signed numbers, which must not overflow */
    _mm_storeu_si128((__m128i *)two, _mm_add_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    return two[0] + two[1];
}

#include "kernels/peak/peak_x86.h"

HC_PEAK_X86(avx512)
