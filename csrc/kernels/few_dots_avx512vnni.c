/* few_dots: one vpdpbusd a register of codes; 32-bit lanes then hold one word's part of a segment, and neighbours are
 * added until 16 segments fill one register, in order.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* Code bytes; those behind the row's last are not touched. */
INLINE __m512i load_codes(const uint8_t *codes, int64_t left) {
    if (left >= 64)
        return _mm512_loadu_si512(codes);
    return left <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
}

INLINE __m512i dot_register(__m512i sum, __m512i codes, int bits, __m512i flip, const int8_t *x) {
    if (bits == 8)
        return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(codes, flip), _mm512_loadu_si512(x));
    const __m512i nibbles = _mm512_set1_epi8(15), flipped = _mm512_xor_si512(codes, flip);
    const __m512i low = _mm512_and_si512(flipped, nibbles);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(flipped, 4), nibbles);
    sum = _mm512_dpbusd_epi32(sum, low, _mm512_loadu_si512(x));
    return _mm512_dpbusd_epi32(sum, high, _mm512_loadu_si512(x + 64));
}

/* Sums of neighbours, those of a before those of b. */
INLINE __m512i add_pairs(__m512i a, __m512i b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
}

/* 16 segments of `words` words each, words * 64 bytes of codes. */
INLINE __m512i dot_block(const uint8_t *codes, int64_t left, int words, int bits, __m512i flip, const int8_t *x) {
    __m512i sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < words; i++)
        sums[i] = dot_register(_mm512_setzero_si512(), load_codes(codes + 64 * i, left - 64 * i), bits, flip,
                               x + i * (512 / bits));
#pragma GCC unroll 3
    for (int n = words; n > 1; n /= 2)
#pragma GCC unroll 4
        for (int i = 0; i < n / 2; i++)
            sums[i] = add_pairs(sums[2 * i], sums[2 * i + 1]);
    return sums[0];
}

INLINE void few_dots(const hc_few_dots_args *args, int bits, int words) {
    const __m512i flip = _mm512_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    const int64_t block_bytes = 64 * words;
    for (int64_t s = 0, place = 0; s < args->segments; s += 16, place += block_bytes) {
        const int64_t left = args->row_bytes - place;
        for (int i = 0; i < words; i++)
            _mm_prefetch(args->codes + place + AHEAD + 64 * i, _MM_HINT_T1);
        const int8_t *x = args->x + place * 8 / bits;
        const __m512i dots = left >= block_bytes ? dot_block(args->codes + place, INT64_MAX, words, bits, flip, x)
                                                 : dot_block(args->codes + place, left, words, bits, flip, x);
        _mm512_storeu_si512(args->dots + s, dots);
    }
}

/* Segments of whole registers. */
INLINE void few_long_dots(const hc_few_dots_args *args, int bits, int64_t registers) {
    const __m512i flip = _mm512_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    const uint8_t *codes = args->codes;
    const int8_t *x = args->x;
    int64_t left = args->row_bytes;
    for (int64_t s = 0; s < args->segments; s++) {
        __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                          _mm512_setzero_si512()};
        int64_t i = 0;
        for (; i + 4 <= registers && left >= 256; i += 4, codes += 256, x += 2048 / bits, left -= 256)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                _mm_prefetch(codes + AHEAD + 64 * j, _MM_HINT_T1);
                sum[j] = dot_register(sum[j], _mm512_loadu_si512(codes + 64 * j), bits, flip, x + j * (512 / bits));
            }
        for (; i < registers && left > 0; i++, codes += 64, x += 512 / bits, left -= 64)
            sum[0] = dot_register(sum[0], load_codes(codes, left), bits, flip, x);
        const __m512i low = _mm512_add_epi32(sum[0], sum[1]), high = _mm512_add_epi32(sum[2], sum[3]);
        args->dots[s] = _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
    }
}

INLINE void few_dots_bits(const hc_few_dots_args *args, int bits) {
    const int64_t words = args->segment * bits / 32;
    switch (words) {
    case 1:
        few_dots(args, bits, 1);
        break;
    case 2:
        few_dots(args, bits, 2);
        break;
    case 4:
        few_dots(args, bits, 4);
        break;
    case 8:
        few_dots(args, bits, 8);
        break;
    default:
        few_long_dots(args, bits, words / 16);
    }
}

void hc_few_dots_avx512vnni(const hc_few_dots_args *args) {
    if (args->bits == 4)
        few_dots_bits(args, 4);
    else
        few_dots_bits(args, 8);
}
