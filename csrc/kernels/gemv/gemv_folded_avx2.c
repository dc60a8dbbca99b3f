/* gemv_folded: as with AVX-512, the word's dot, |dot| <= 2^14, times the scale by vpmaddwd, whose upper factor is 0. A lane
 * sums every eighth word: of half the longest row 2^13 words of at most 15360 times 15, inside int32.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { SPAN = 1 << 18 }; /* bytes of codes until the lanes are emptied */

/* 32 bytes of codes and their scales, times that part of n lines of x. */
INLINE void add_register(__m256i sum[], const uint8_t *codes, __m256i flip, uint32_t scales, __m256i shifts,
                         const hc_gemv_folded_args *args, int64_t place, int n_lines) {
    const __m256i u = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)codes), flip);
    const __m256i nibbles = _mm256_set1_epi8(15), low = _mm256_and_si256(u, nibbles);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(u, 4), nibbles);
    const __m256i spread = _mm256_srlv_epi32(_mm256_set1_epi32((int)scales), shifts);
    const __m256i scale = _mm256_and_si256(spread, _mm256_set1_epi32(15));
    const int8_t *x = args->x + place / 64 * 128 + place / 32 % 2 * 32;
    const int32_t *start = args->start + place / 4;
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++, x += args->x_bytes, start += args->x_bytes / 8) {
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(low, _mm256_loadu_si256((const __m256i *)x)),
                             _mm256_maddubs_epi16(high, _mm256_loadu_si256((const __m256i *)(x + 64))));
        const __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)),
                                             _mm256_loadu_si256((const __m256i *)start));
        sum[line] = _mm256_add_epi32(sum[line], _mm256_madd_epi16(dot, scale));
    }
}

/* Codes [first, end) of bytes, added to the sums. */
INLINE void add_span(const hc_gemv_folded_args *args, int64_t first, int64_t end, int n_lines) {
    const int words = args->words, log_words = words == 2 ? 1 : words == 4 ? 2 : 3;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i shifts = _mm256_slli_epi32(_mm256_srl_epi32(lanes, _mm_cvtsi32_si128(log_words)), 2);
    const __m256i flip = _mm256_set1_epi8((char)(args->flip * 17));
    __m256i sum[HC_GEMV_LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        sum[line] = _mm256_setzero_si256();
    for (int64_t place = first; place < end; place += 32) {
        const int64_t left = args->row_bytes - place, group = place / 4 / words;
        const uint8_t *codes = args->codes + place;
        uint8_t last[32] = {0};
        if (left < 32) {
            memcpy(last, codes, (size_t)left);
            codes = last;
        }
        uint32_t scales = args->scales[group / 2] >> (group % 2 * 4);
        if (words == 2 && left > 16) /* four groups, which begin on a byte */
            scales |= (uint32_t)args->scales[group / 2 + 1] << 8;
        add_register(sum, codes, flip, scales, shifts, args, place, n_lines);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        const __m256i half = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum[line]));
        const __m256i all = _mm256_add_epi64(half, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sum[line], 1)));
        const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        args->sums[line] += _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
    }
}

INLINE void gemv_folded(const hc_gemv_folded_args *args, int n_lines) {
    for (int line = 0; line < n_lines; line++)
        args->sums[line] = 0;
    for (int64_t first = 0; first < args->row_bytes; first += SPAN)
        add_span(args, first, hc_min(first + SPAN, args->row_bytes), n_lines);
}

void hc_gemv_folded_avx2(const hc_gemv_folded_args *args) {
    args->n_lines == 1 ? gemv_folded(args, 1) : args->n_lines == 2 ? gemv_folded(args, 2) : gemv_folded(args, 4);
}
