/* few_scales. */
#include "base/convert.h"
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_few_scales_avx2(const uint8_t *stored, int bits, int64_t n, float *out) {
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), nibbles = _mm256_set1_epi32(15);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value;
        if (bits == 16) {
            value = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(stored + 2 * i)));
        } else if (bits == 8) {
            value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(stored + i))));
        } else {
            int32_t word;
            memcpy(&word, stored + i / 2, sizeof word);
            const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
            value = _mm256_cvtepi32_ps(_mm256_and_si256(codes, nibbles));
        }
        _mm256_storeu_ps(out + i, value);
    }
    for (; i < n; i++)
        out[i] = bits == 16  ? hc_f16_to_f32(hc_load_u16(stored + 2 * i))
                 : bits == 8 ? (float)stored[i]
                             : (float)(stored[i / 2] >> (i % 2 * 4) & 15);
}
