/* Rows of integers with a pattern, 16 codes at a time, widened to words. vpshufb selects their x, with zero bytes
 * above. With 8 columns a 128-bit lane holds the columns of its 8 codes; with more, one register holds 16 columns of
 * one step, and another register those of the next step. x is biased by 128, which is subtracted at the end.
 */
#ifndef HC_GEMV_NM_AVX2_H
#define HC_GEMV_NM_AVX2_H

#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { LAST = 192 };   /* longer than 128 codes and 16 bytes of positions */
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

INLINE __m128i load_16(const uint8_t *from) { return _mm_loadu_si128((const __m128i *)from); }

INLINE long long load_8(const uint8_t *from) {
    long long word;
    memcpy(&word, from, sizeof word);
    return word;
}

INLINE __m256i two_16(const uint8_t *low, const uint8_t *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(low)), load_16(high), 1);
}

INLINE __m256i gather(const uint8_t *x, __m256i places, int kr) {
    if (kr == 8)
        return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)x), places);
    __m256i even = _mm256_setzero_si256(), odd = even;
#pragma GCC unroll 4
    /* indices into these 16 columns; all others get their highest bit set */
    for (int q = 0; q < kr; q += 16, x += 16) {
        const __m256i among =
            _mm256_adds_epu8(_mm256_sub_epi8(places, _mm256_set1_epi8((char)q)), _mm256_set1_epi8(kr == 16 ? 0 : 0x70));
        even = _mm256_or_si256(even, _mm256_shuffle_epi8(two_16(x, x + 2 * kr), among));
        odd = _mm256_or_si256(odd, _mm256_shuffle_epi8(two_16(x + kr, x + 3 * kr), among));
    }
    return _mm256_blend_epi32(even, odd, 0xcc);
}

INLINE __m256i load_codes(const uint8_t *codes, bool folded, __m128i values) {
    if (!folded)
        return _mm256_cvtepi8_epi16(load_16(codes));
    const __m128i wide = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(load_8(codes)));
    const __m128i nibbles = _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(values, nibbles));
}

INLINE int64_t sum_lanes(__m256i lanes) {
    int32_t each[8];
    int64_t sum = 0;
    memcpy(each, &lanes, sizeof each);
    for (int i = 0; i < 8; i++)
        sum += each[i];
    return sum;
}

/* folded: 16 codes share a scale. vpmaddwd multiplies the lower half of each sum of two by it; the upper half is a
 * sign. */
INLINE void one_row(const hc_gemv_nm_integers_args *args, int64_t row, int kr, int n_vectors, bool folded) {
    const int bits = args->position_bits, code_bytes = folded ? 8 : 16, step = args->words ? 8 / args->words : 0;
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const __m128i second = _mm_set1_epi64x(kr == 8 ? 0x0808080800000000 : 0);
    const __m128i bases = _mm_or_si128(_mm_set1_epi32((int)args->base), second);
    const __m256i base = _mm256_or_si256(_mm256_cvtepu8_epi16(bases), _mm256_set1_epi16(-0x8000));
    const __m128i nibbles = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i flipped = _mm_xor_si128(nibbles, _mm_set1_epi8((char)args->flip));
    const __m128i values = _mm_sub_epi8(flipped, _mm_set1_epi8((char)args->zero));
    const uint8_t *codes = args->codes + row * args->codes_stride, *x = args->x;
    const uint8_t *metadata = args->metadata + row * args->metadata_stride;
    const uint8_t *scales = folded ? args->scales + row * args->scales_stride : NULL;
    int64_t left = args->code_bytes, metadata_left = args->metadata_bytes;
    uint8_t last_codes[LAST] = {0}, last_metadata[LAST] = {0};
    bool is_last = false;
    __m256i sum[4], offset = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++)
        sum[v] = _mm256_setzero_si256();
    for (int64_t quarters = 0; left > 0; quarters += step) { /* of a group of 64 */
        if (!is_last && (left < 16 || metadata_left < 16)) { /* loads would read past the row's end */
            HC_ASSERT(left <= LAST - 16);
            memcpy(last_codes, codes, (size_t)left);
            memcpy(last_metadata, metadata, (size_t)hc_max(metadata_left, 0));
            codes = last_codes;
            metadata = last_metadata;
            is_last = true;
        }
        const long long low = (long long)_pdep_u64((uint64_t)load_8(metadata), mask);
        const long long high = (long long)_pdep_u64((uint64_t)load_8(metadata + bits), mask);
        const __m256i places = _mm256_or_si256(_mm256_cvtepu8_epi16(_mm_set_epi64x(high, low)), base);
        const __m256i c = load_codes(codes, folded, values);
        __m256i scale = _mm256_setzero_si256(), dots = _mm256_madd_epi16(c, _mm256_set1_epi16(128));
        _mm_prefetch(codes + AHEAD, _MM_HINT_T1);
        if (folded) {
            const int64_t group = quarters >> 2;
            scale = _mm256_set1_epi32(scales[group >> 1] >> (group & 1) * 4 & 15);
            dots = _mm256_madd_epi16(dots, scale);
        }
        offset = _mm256_add_epi32(offset, dots);
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) {
            dots = _mm256_madd_epi16(gather(x + v * args->ldx, places, kr), c);
            sum[v] = _mm256_add_epi32(sum[v], folded ? _mm256_madd_epi16(dots, scale) : dots);
        }
        left -= code_bytes;
        metadata_left -= 2 * bits;
        codes += code_bytes;
        metadata += 2 * bits;
        x += 4 * kr;
    }
    for (int v = 0; v < n_vectors; v++)
        args->sums[row * args->ld_sums + v] = sum_lanes(_mm256_sub_epi32(sum[v], offset));
}

INLINE void all_rows(const hc_gemv_nm_integers_args *args, int kr, int n_vectors, bool folded) {
    for (int64_t row = 0; row < args->rows; row++)
        one_row(args, row, kr, n_vectors, folded);
}

INLINE void choose_vectors(const hc_gemv_nm_integers_args *args, int kr, bool folded) {
    args->n_vectors == 1   ? all_rows(args, kr, 1, folded)
    : args->n_vectors == 2 ? all_rows(args, kr, 2, folded)
                           : all_rows(args, kr, 4, folded);
}

INLINE void choose(const hc_gemv_nm_integers_args *args, bool folded) {
    args->kr == 8    ? choose_vectors(args, 8, folded)
    : args->kr == 16 ? choose_vectors(args, 16, folded)
    : args->kr == 32 ? choose_vectors(args, 32, folded)
                     : choose_vectors(args, 64, folded);
}

#endif
