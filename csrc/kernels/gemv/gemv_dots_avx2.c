/* gemv_dots: 32-bit lanes hold one word's part of a segment; neighbours are added until 8 segments fill a register.
 * Nibbles stay below vpmaddubsw's saturation (4 * 15 * 128 in 16 bits); bytes are widened.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Dots of the 8 words at codes; x: of the 64-byte block that they lie in, `half` of it. */
INLINE __m256i dot_register(const uint8_t *codes, int bits, __m256i flip, const int8_t *x, int half) {
    const __m256i u = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)codes), flip);
    const __m256i first = _mm256_loadu_si256((const __m256i *)(x + 32 * half));
    if (bits == 8) {
        const __m256i even = _mm256_and_si256(u, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(u, 8);
        const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(first, 8), 8), x_odd = _mm256_srai_epi16(first, 8);
        return _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd));
    }
    const __m256i nibbles = _mm256_set1_epi8(15), second = _mm256_loadu_si256((const __m256i *)(x + 64 + 32 * half));
    const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(u, nibbles), first);
    const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(u, 4), nibbles), second);
    return _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
}

INLINE __m256i add_pairs(__m256i a, __m256i b) { return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8); }

/* `registers` consecutive ones, of which the row has `left` bytes. */
INLINE void dot_registers(const uint8_t *codes, int64_t left, int registers, int bits, __m256i flip, const int8_t *x,
                          int64_t place, __m256i *sums) {
    uint8_t copy[32 * 8];
    if (left < 32 * registers) {
        memset(copy, 0, sizeof copy);
        if (left > 0)
            memcpy(copy, codes, (size_t)left);
        codes = copy;
    }
#pragma GCC unroll 8
    for (int i = 0; i < registers; i++) {
        const int64_t at = place + 32 * i;
        sums[i] = dot_register(codes + 32 * i, bits, flip, x + at / 64 * (512 / bits), at / 32 % 2);
    }
}

INLINE void gemv_dots(const hc_gemv_dots_args *args, int bits, int words, const int8_t *x, int32_t *dots) {
    const __m256i flip = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    for (int64_t s = 0, place = 0; s < args->segments; s += 8, place += 32 * words) {
        __m256i sums[8];
        dot_registers(args->codes + place, args->row_bytes - place, words, bits, flip, x, place, sums);
        for (int n = words; n > 1; n /= 2)
            for (int i = 0; i < n / 2; i++)
                sums[i] = add_pairs(sums[2 * i], sums[2 * i + 1]);
        _mm256_storeu_si256((__m256i *)(dots + s), sums[0]);
    }
}

INLINE void long_dots(const hc_gemv_dots_args *args, int bits, int64_t pairs, const int8_t *x, int32_t *dots) {
    const __m256i flip = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    int64_t place = 0;
    for (int64_t s = 0; s < args->segments; s++) {
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, parts[2];
        for (int64_t i = 0; i < pairs && place < args->row_bytes; i++, place += 64) {
            dot_registers(args->codes + place, args->row_bytes - place, 2, bits, flip, x, place, parts);
            sum[0] = _mm256_add_epi32(sum[0], parts[0]);
            sum[1] = _mm256_add_epi32(sum[1], parts[1]);
        }
        const __m256i all = _mm256_add_epi32(sum[0], sum[1]);
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        dots[s] = _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
    }
}

INLINE void gemv_dots_bits(const hc_gemv_dots_args *args, int bits) {
    const int64_t words = args->segment * bits / 32;
    const int8_t *x = args->x;
    int32_t *dots = args->dots;
    for (int line = 0; line < args->n_lines; line++, x += args->x_bytes, dots += args->ld)
        switch (words) {
        case 1:
            gemv_dots(args, bits, 1, x, dots);
            break;
        case 2:
            gemv_dots(args, bits, 2, x, dots);
            break;
        case 4:
            gemv_dots(args, bits, 4, x, dots);
            break;
        case 8:
            gemv_dots(args, bits, 8, x, dots);
            break;
        default:
            long_dots(args, bits, words / 16, x, dots);
        }
}

void hc_gemv_dots_avx2(const hc_gemv_dots_args *args) {
    if (args->bits == 4)
        gemv_dots_bits(args, 4);
    else
        gemv_dots_bits(args, 8);
}
