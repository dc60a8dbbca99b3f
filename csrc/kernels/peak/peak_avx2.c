/* hc_peak_fma_avx2, hc_peak_dot_avx2, hc_peak_shuffle_avx2 and hc_peak_read_avx2: kernels/peak/peak_x86.h. */
#include "base/lanes/avx2.h"

typedef __m256i vector;

static inline vector spread(const void *from) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(from)); }
static inline __m128i quarter(vector a) { return _mm256_castsi256_si128(a); }
static inline vector every(int32_t a) { return _mm256_set1_epi32(a); }
static inline vector add_words(vector a, vector b) { return _mm256_add_epi32(a, b); }
static inline vector multiply_add(vector a, vector b) { return _mm256_madd_epi16(a, b); }
static inline vector shuffle(vector a, vector index) { return _mm256_shuffle_epi8(a, index); }
static inline vector add_doubles(vector a, vector b) { return _mm256_add_epi64(a, b); }
static inline vector line(const char *from) {
    return _mm256_add_epi64(_mm256_load_si256((const __m256i *)from), _mm256_load_si256((const __m256i *)from + 1));
}
static inline uint64_t sum_of(vector a) {
    uint64_t word[4];
    _mm256_storeu_si256((__m256i *)word, a);
    return (word[0] + word[1]) + (word[2] + word[3]);
}

#include "kernels/peak/peak_x86.h"

HC_PEAK_X86(avx2)
