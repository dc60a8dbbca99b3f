/* Choosing 2 of 4 for two quads at a time; kernels/choose_nm.h. */
#include "kernels/choose_nm.h"
#include "kernels/kernel.h"

#include <immintrin.h>

hc_choose_nm_fn hc_choose_nm_avx2;

/* Bytes of the kept two of a quad, by its 4 bits. */
#define TWO(a, b) {4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3}
static const _Alignas(16) uint8_t KEPT[16][16] = {
    [3] = TWO(0, 1), [5] = TWO(0, 2), [6] = TWO(1, 2), [9] = TWO(0, 3), [10] = TWO(1, 3), [12] = TWO(2, 3),
};

static inline unsigned by(__m256i other, __m256i a, __m256i lower) {
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(other, _mm256_sub_epi32(a, lower))));
}

static inline unsigned keep_of(__m256i a) {
    const __m256i lower_1 = _mm256_setr_epi32(0, 0, 0, 1, 0, 0, 0, 1);
    const __m256i lower_2 = _mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1);
    const __m256i lower_3 = _mm256_setr_epi32(0, 1, 1, 1, 0, 1, 1, 1);
    return ~hc_beaten(by(_mm256_shuffle_epi32(a, 0x39), a, lower_1), by(_mm256_shuffle_epi32(a, 0x4e), a, lower_2),
                      by(_mm256_shuffle_epi32(a, 0x93), a, lower_3));
}

static inline void store_two(float *values, __m128i quad, unsigned keep) {
    _mm_storel_epi64((__m128i *)(void *)values,
                     _mm_shuffle_epi8(quad, _mm_load_si128((const __m128i *)(const void *)KEPT[keep])));
}

int64_t hc_choose_nm_avx2(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                          uint8_t *metadata) {
    if (n != 2 || m != 4 || scores)
        return HC_DECLINED;
    for (int64_t quad = 0; quad < blocks; quad += 2, values += 4, metadata++) {
        const bool both = quad + 2 <= blocks;
        const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(x + quad * 4));
        const __m128i second = both ? _mm_loadu_si128((const __m128i *)(const void *)(x + quad * 4 + 4)) : first;
        const __m256i a = _mm256_and_si256(_mm256_set_m128i(second, first), _mm256_set1_epi32(0x7fffffff));
        if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(a, _mm256_set1_epi32(HC_LARGEST_MAGNITUDE))))
            return quad * 4 + hc_first_nan(x + quad * 4);
        const unsigned keep = keep_of(a);
        store_two(values, first, keep & 15);
        *metadata = HC_QUAD_CODE[keep & 15];
        if (both) {
            store_two(values + 2, second, keep >> 4 & 15);
            *metadata |= (uint8_t)(HC_QUAD_CODE[keep >> 4 & 15] << 4);
        }
    }
    return HC_DONE;
}
