/* gemv_folded: as with AVX-512, vpmaddwd multiplies the word's dot product, |dot| <= 2^14, by the scale, with an upper
 * factor of 0. A lane adds every eighth word: at most 2^13 words (half of the longest row) of at most 15360 times 15,
 * which fits int32.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { SPAN = 1 << 18 }; /* bytes of codes after which the lanes are reduced */
enum { AHEAD = 8192 };   /* bytes of codes prefetched ahead */

/* 32 bytes of codes, each word with its scale in 32 bits, times that part of n lines of x. */
INLINE void add_register(__m256i sum[], const uint8_t *codes, __m256i flip, __m256i scale, const int8_t *x,
                         const int32_t *start, int64_t x_bytes, int n_lines) {
    const __m256i u = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)codes), flip);
    const __m256i nibbles = _mm256_set1_epi8(15), low = _mm256_and_si256(u, nibbles);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(u, 4), nibbles);
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++, x += x_bytes, start += x_bytes / 8) {
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(low, _mm256_loadu_si256((const __m256i *)x)),
                             _mm256_maddubs_epi16(high, _mm256_loadu_si256((const __m256i *)(x + 64))));
        const __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)),
                                             _mm256_loadu_si256((const __m256i *)start));
        sum[line] = _mm256_add_epi32(sum[line], _mm256_madd_epi16(dot, scale));
    }
}

/* The scales of 8 words, from word half * 8 of 16 on, with `words` words per scale; `bytes` begins with the scale of
 * the first word. */
INLINE __m256i spread(const uint8_t *bytes, int words, int half) {
    const __m256i pairs = _mm256_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12),
                  fours = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    __m256i scales;
    if (words == 2) {
        int16_t two;
        memcpy(&two, bytes + 2 * half, sizeof two);
        scales = _mm256_srlv_epi32(_mm256_set1_epi16(two), pairs);
    } else if (words == 4) {
        scales = _mm256_srlv_epi32(_mm256_set1_epi32(bytes[half]), fours);
    } else {
        scales = _mm256_srli_epi32(_mm256_set1_epi32(bytes[0]), 4 * half);
    }
    return _mm256_and_si256(scales, _mm256_set1_epi32(15));
}

/* Adds codes [first, end) of bytes to the sums. */
INLINE void add_span(const hc_gemv_folded_args *args, int64_t first, int64_t end, int words, int n_lines) {
    const __m256i flip = _mm256_set1_epi8((char)(args->flip * 17));
    const int64_t whole = first + (end - first) / 64 * 64, x_bytes = args->x_bytes;
    const uint8_t *codes = args->codes + first, *scales = args->scales + first / (8 * words);
    const int8_t *x = args->x + first * 2;
    const int32_t *start = args->start + first / 4;
    __m256i sum[HC_GEMV_LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        sum[line] = _mm256_setzero_si256();
    for (int64_t at = 0; at < end - first; at += 512 * words)
        _mm_prefetch((const char *)scales + (at + AHEAD) / (8 * words), _MM_HINT_T1); /* a line of them */
    for (int64_t place = first; place < whole; place += 64) {
        _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
        add_register(sum, codes, flip, spread(scales, words, 0), x, start, x_bytes, n_lines);
        add_register(sum, codes + 32, flip, spread(scales, words, 1), x + 32, start + 8, x_bytes, n_lines);
        codes += 64;
        scales += 8 / words;
        x += 128;
        start += 16;
    }
    if (whole < end) {
        _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
        uint8_t last[64] = {0}, theirs[4] = {0};
        memcpy(last, codes, (size_t)(end - whole));
        memcpy(theirs, scales, (size_t)hc_ceil_div(end - whole, 8 * words));
        add_register(sum, last, flip, spread(theirs, words, 0), x, start, x_bytes, n_lines);
        if (end - whole > 32)
            add_register(sum, last + 32, flip, spread(theirs, words, 1), x + 32, start + 8, x_bytes, n_lines);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        const __m256i half = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum[line]));
        const __m256i all = _mm256_add_epi64(half, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sum[line], 1)));
        const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        args->sums[line] += _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
    }
}

INLINE void gemv_folded(const hc_gemv_folded_args *args, int words, int n_lines) {
    for (int line = 0; line < n_lines; line++)
        args->sums[line] = 0;
    for (int64_t first = 0; first < args->row_bytes; first += SPAN)
        add_span(args, first, hc_min(first + SPAN, args->row_bytes), words, n_lines);
}

INLINE void choose(const hc_gemv_folded_args *args, int n_lines) {
    args->words == 2   ? gemv_folded(args, 2, n_lines)
    : args->words == 4 ? gemv_folded(args, 4, n_lines)
                       : gemv_folded(args, 8, n_lines);
}

void hc_gemv_folded_avx2(const hc_gemv_folded_args *args) {
    args->n_lines == 1 ? choose(args, 1) : args->n_lines == 2 ? choose(args, 2) : choose(args, 4);
}
