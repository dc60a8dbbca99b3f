/* Transposing 8 rows by 4 units in registers, then 4 rows, then one. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

static inline __m128i load(const char *from) { return _mm_loadu_si128((const __m128i *)from); }

static inline __m256i load_two(const char *low, const char *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load(low)), load(high), 1);
}

static void eight_rows(const char *from, int64_t row_bytes, int64_t units, char *to, int lanes, uint32_t flip) {
    const __m256i flips = _mm256_set1_epi32((int32_t)flip);
    for (int64_t u = 0; u < units; u += 4, from += 16, to += 16 * (int64_t)lanes) {
        const __m256i r0 = load_two(from, from + 4 * row_bytes);
        const __m256i r1 = load_two(from + row_bytes, from + 5 * row_bytes);
        const __m256i r2 = load_two(from + 2 * row_bytes, from + 6 * row_bytes);
        const __m256i r3 = load_two(from + 3 * row_bytes, from + 7 * row_bytes);
        const __m256i low01 = _mm256_unpacklo_epi32(r0, r1), high01 = _mm256_unpackhi_epi32(r0, r1);
        const __m256i low23 = _mm256_unpacklo_epi32(r2, r3), high23 = _mm256_unpackhi_epi32(r2, r3);
        const __m256i unit[4] = {_mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
                                 _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
        for (int i = 0; i < 4; i++)
            _mm256_storeu_si256((__m256i *)(to + i * (int64_t)lanes * 4), _mm256_xor_si256(unit[i], flips));
    }
}

static void four_rows(const char *from, int64_t row_bytes, int64_t units, char *to, int lanes, uint32_t flip) {
    const __m128i flips = _mm_set1_epi32((int32_t)flip);
    for (int64_t u = 0; u < units; u += 4, from += 16, to += 16 * (int64_t)lanes) {
        const __m128i r0 = load(from), r1 = load(from + row_bytes);
        const __m128i r2 = load(from + 2 * row_bytes), r3 = load(from + 3 * row_bytes);
        const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
        const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
        const __m128i unit[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                                 _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
        for (int i = 0; i < 4; i++)
            _mm_storeu_si128((__m128i *)(to + i * (int64_t)lanes * 4), _mm_xor_si128(unit[i], flips));
    }
}

#include "kernels/gemm/pack_x32.h"

void hc_pack_x32_avx2(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                      uint32_t flip) {
    int row = 0;
    for (; row + 8 <= n_rows; row += 8)
        eight_rows((const char *)rows + row * row_bytes, row_bytes, units / 4 * 4, (char *)panel + row * 4, lanes,
                   flip);
    other_rows(rows, row_bytes, row, n_rows, units, panel, lanes, flip);
}
