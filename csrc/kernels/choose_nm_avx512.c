/* Choosing 2 of 4 for four quads at a time; kernels/choose_nm.h. */
#include "kernels/choose_nm.h"
#include "kernels/kernel.h"

#include <immintrin.h>

hc_choose_nm_fn hc_choose_nm_avx512;

/* Bits of the kept values of four quads. */
static inline __mmask16 keep_of(__m512 x) {
    const __m512i a = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    const __m512i lower_1 = _mm512_set4_epi32(1, 0, 0, 0), lower_2 = _mm512_set4_epi32(1, 1, 0, 0);
    const __m512i lower_3 = _mm512_set4_epi32(1, 1, 1, 0);
    const __mmask16 by_1 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x39), _mm512_sub_epi32(a, lower_1));
    const __mmask16 by_2 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x4e), _mm512_sub_epi32(a, lower_2));
    const __mmask16 by_3 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x93), _mm512_sub_epi32(a, lower_3));
    return (__mmask16)~hc_beaten(by_1, by_2, by_3);
}

static inline bool has_nan(__m512 x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }

int64_t hc_choose_nm_avx512(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                            uint8_t *metadata) {
    if (n != 2 || m != 4 || scores)
        return HC_DECLINED;
    int64_t quad = 0;
    for (; quad + 4 <= blocks; quad += 4, values += 8, metadata += 2) {
        const __m512 four = _mm512_loadu_ps(x + quad * 4);
        if (has_nan(four))
            return quad * 4 + hc_first_nan(x + quad * 4);
        const __mmask16 keep = keep_of(four);
        _mm_prefetch((const char *)(x + quad * 4 + 1024), _MM_HINT_T0);
        _mm256_storeu_ps(values, _mm512_castps512_ps256(_mm512_maskz_compress_ps(keep, four)));
        metadata[0] = (uint8_t)(HC_QUAD_CODE[keep & 15] | HC_QUAD_CODE[keep >> 4 & 15] << 4);
        metadata[1] = (uint8_t)(HC_QUAD_CODE[keep >> 8 & 15] | HC_QUAD_CODE[keep >> 12] << 4);
    }
    const int rest = (int)(blocks - quad);
    if (rest > 0) {
        const __m512 some = _mm512_maskz_loadu_ps((__mmask16)((1u << 4 * rest) - 1), x + quad * 4);
        if (has_nan(some))
            return quad * 4 + hc_first_nan(x + quad * 4);
        const __mmask16 keep = keep_of(some);
        _mm256_mask_storeu_ps(values, (__mmask8)((1u << 2 * rest) - 1),
                              _mm512_castps512_ps256(_mm512_maskz_compress_ps(keep, some)));
        metadata[0] = HC_QUAD_CODE[keep & 15];
        if (rest > 1)
            metadata[0] |= (uint8_t)(HC_QUAD_CODE[keep >> 4 & 15] << 4);
        if (rest > 2)
            metadata[1] = HC_QUAD_CODE[keep >> 8 & 15];
    }
    return HC_DONE;
}
