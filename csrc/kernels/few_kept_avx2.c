/* Kept codes times few vectors: the bits of 8 columns become the places of their codes, and a blend keeps the sums of
 * the others as they are. */
#include "kernels/kernel.h"

#include <immintrin.h>

hc_few_kept_fn hc_few_kept_avx2;

void hc_few_kept_avx2(int64_t words, const uint64_t *masks, const float *codes, const float *x, int64_t ldx,
                      int n_vectors, float *sums) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t word = 0; word < words; word++, x += 64)
        for (int i = 0; i < 8; i++) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            const uint64_t bytes = _pdep_u64(bits, 0x0101010101010101u) * 0xff;
            const uint64_t ranks = _pdep_u64(0x0706050403020100u, bytes);
            const __m256i kept = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
            const __m256i rank = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)ranks));
            const __m256 some = _mm256_maskload_ps(codes, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
            const __m256 c = _mm256_permutevar8x32_ps(some, rank);
            for (int v = 0; v < n_vectors; v++) {
                float *sum = sums + v * 64 + i * 8;
                const __m256 old = _mm256_loadu_ps(sum), xs = _mm256_maskload_ps(x + v * ldx + i * 8, kept);
                _mm256_storeu_ps(sum, _mm256_blendv_ps(old, _mm256_fmadd_ps(xs, c, old), _mm256_castsi256_ps(kept)));
            }
            codes += count;
        }
}
