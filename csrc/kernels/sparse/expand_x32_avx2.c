/* Kept units of 32 bits back in their places, 8 at a time. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_expand_x32_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int *next = kept;
    __m256i *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 8; i++) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            const uint64_t bytes = _pdep_u64(bits, 0x0101010101010101u) * 0xff;
            const uint64_t ranks = _pdep_u64(0x0706050403020100u, bytes);
            const __m256i places = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
            const __m256i rank = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)ranks));
            const __m256i some = _mm256_maskload_epi32(next, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
            _mm256_storeu_si256(to++, _mm256_and_si256(_mm256_permutevar8x32_epi32(some, rank), places));
            next += count;
        }
}
