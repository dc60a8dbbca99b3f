/* Primitives of AVX2 and AVX-512: levels by planes of bytes, and codes of 9 to 15 bits as 16 bits each. */
#ifndef HC_SIMD_X86_PLANES_H
#define HC_SIMD_X86_PLANES_H

#include "formats/planes.h"

#include <immintrin.h>

/* Bit 4, 5 and 6 of an index select the block. */
static inline __attribute__((always_inline)) __m256i plane_bytes(const uint8_t *plane, int blocks, __m256i index) {
    __m256i found[8];
#pragma GCC unroll 8
    for (int i = 0; i < blocks; i++)
        found[i] = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)(plane + 16 * i))), index);
#pragma GCC unroll 4
    for (int i = 0; i < blocks / 2; i++)
        found[i] = _mm256_blendv_epi8(found[2 * i], found[2 * i + 1], _mm256_slli_epi16(index, 3));
#pragma GCC unroll 2
    for (int i = 0; i < blocks / 4; i++)
        found[i] = _mm256_blendv_epi8(found[2 * i], found[2 * i + 1], _mm256_slli_epi16(index, 2));
    return blocks == 8 ? _mm256_blendv_epi8(found[0], found[1], _mm256_slli_epi16(index, 1)) : found[0];
}

enum { PLANE_CODES = 32 };

/* The levels of PLANE_CODES codes; false if one is an exception. */
static inline __attribute__((always_inline)) bool plane_levels(const hc_planes *planes, int blocks, int n_planes,
                                                               const uint8_t *codes, float *to) {
    const __m256i stored = _mm256_loadu_si256((const __m256i *)(const void *)codes), none = _mm256_setzero_si256();
    if (planes->n_exceptions > 0) {
        const __m256i first = _mm256_cmpeq_epi8(stored, _mm256_set1_epi8((char)planes->exceptions[0]));
        const __m256i second = _mm256_cmpeq_epi8(stored, _mm256_set1_epi8((char)planes->exceptions[1]));
        if (!_mm256_testz_si256(_mm256_or_si256(first, second), _mm256_or_si256(first, second)))
            return false;
    }
    /* the words of codes 0 to 15 in the order 0, 2 | 1, 3, so that codes are in order after they are widened twice */
    const __m256i code = _mm256_permutevar8x32_epi32(stored, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    const bool is_complement = planes->kind == HC_PLANES_COMPLEMENT, is_whole = planes->kind == HC_PLANES_WHOLE;
    const __m256i top = _mm256_sll_epi16(code, _mm_cvtsi32_si128(8 - planes->bits));
    const __m256i flips =
        _mm256_and_si256(_mm256_cmpgt_epi8(none, top), _mm256_set1_epi8((char)(is_complement ? 255 : 0)));
    const __m256i turned = _mm256_sub_epi8(_mm256_xor_si256(code, flips), flips);
    const __m256i index = _mm256_and_si256(turned, _mm256_set1_epi8((char)(16 * blocks - 1)));
    const __m256i sign = _mm256_and_si256(top, _mm256_set1_epi8((char)(is_whole ? 0 : 128)));
    const __m256i b3 = _mm256_or_si256(plane_bytes(planes->plane[3], blocks, index), sign);
    const __m256i b2 = plane_bytes(planes->plane[2], blocks, index);
    const __m256i b1 = n_planes == 4 ? plane_bytes(planes->plane[1], blocks, index) : none;
    const __m256i b0 = n_planes == 4 ? plane_bytes(planes->plane[0], blocks, index) : none;
    const __m256i low[2] = {_mm256_unpacklo_epi8(b0, b1), _mm256_unpackhi_epi8(b0, b1)};
    const __m256i high[2] = {_mm256_unpacklo_epi8(b2, b3), _mm256_unpackhi_epi8(b2, b3)};
    __m256i *at = (__m256i *)(void *)to;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        _mm256_storeu_si256(at + 2 * i, _mm256_unpacklo_epi16(low[i], high[i]));
        _mm256_storeu_si256(at + 2 * i + 1, _mm256_unpackhi_epi16(low[i], high[i]));
    }
    return true;
}

/* Codes of 9 to 15 bits to 16 bits each, 16 at a time; returns the number of unpacked codes. A code is in three bytes. */
static inline int64_t simd_unpack16(const uint8_t *from, const uint8_t *end, int64_t n, int bits, uint16_t *out) {
    uint8_t at[32];
    int32_t shifts[8];
    for (int i = 0; i < 32; i++) /* an index of 128 gives 0 */
        at[i] = (uint8_t)(i % 4 < 3 ? i / 4 * bits / 8 + i % 4 : 128);
    for (int i = 0; i < 8; i++)
        shifts[i] = i * bits % 8;
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)at);
    const __m256i down = _mm256_loadu_si256((const __m256i *)(const void *)shifts);
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    int64_t i = 0;
    for (; i + 16 <= n && end - from >= bits + 16; i += 16, from += 2 * bits) {
        __m256i half[2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const __m128i stored = _mm_loadu_si128((const __m128i *)(const void *)(from + j * bits));
            const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(stored), bytes);
            half[j] = _mm256_and_si256(_mm256_srlv_epi32(words, down), mask);
        }
        const __m256i both = _mm256_packus_epi32(half[0], half[1]);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    return i;
}

#endif
