/* Levels of codes by planes of bytes (formats/planes.h), and codes of 9 to 15 bits to 16 bits each. */
#ifndef HC_SIMD_PLANES_H
#define HC_SIMD_PLANES_H

#include "formats/planes.h"
#include "formats/simd/simd.h"

#define HC_INLINE static inline __attribute__((always_inline))

/* Levels of n codes by loads, two to a store. */
HC_INLINE void load_levels(const uint8_t *codes, int64_t n, const float *level, float *to) {
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, codes + i, sizeof word);
#pragma GCC unroll 4
        for (int64_t j = 0; j < 8; j += 2, word >>= 16) {
            const uint64_t pair =
                (uint64_t)hc_f32_bits(level[word & 255]) | (uint64_t)hc_f32_bits(level[word >> 8 & 255]) << 32;
            memcpy(to + i + j, &pair, sizeof pair);
        }
    }
}

#if defined(HC_SIMD_neon)

/* Entries of up to 64 bytes by an instruction; an index beyond them leaves what is there. */
HC_INLINE uint8x16_t plane_bytes(const uint8_t *plane, int blocks, uint8x16_t index) {
    if (blocks == 1)
        return vqtbl1q_u8(vld1q_u8(plane), index);
    if (blocks == 2)
        return vqtbl2q_u8((uint8x16x2_t){{vld1q_u8(plane), vld1q_u8(plane + 16)}}, index);
    const uint8x16_t low = vqtbl4q_u8(vld1q_u8_x4(plane), index);
    return blocks == 4 ? low : vqtbx4q_u8(low, vld1q_u8_x4(plane + 64), vsubq_u8(index, vdupq_n_u8(64)));
}

enum { PLANE_CODES = 16 };

/* The levels of PLANE_CODES codes; false if one is an exception. */
HC_INLINE bool plane_levels(const hc_planes *planes, int blocks, int n_planes, const uint8_t *codes, float *to) {
    const uint8x16_t code = vld1q_u8(codes), up = vdupq_n_u8((uint8_t)(8 - planes->bits));
    if (planes->n_exceptions > 0) {
        const uint8x16_t is_one = vorrq_u8(vceqq_u8(code, vdupq_n_u8(planes->exceptions[0])),
                                           vceqq_u8(code, vdupq_n_u8(planes->exceptions[1])));
        if (vmaxvq_u8(is_one))
            return false;
    }
    const uint8x16_t top = vshlq_u8(code, vreinterpretq_s8_u8(up));
    const uint8x16_t is_below = vcltzq_s8(vreinterpretq_s8_u8(top));
    const bool is_complement = planes->kind == HC_PLANES_COMPLEMENT, is_whole = planes->kind == HC_PLANES_WHOLE;
    const uint8x16_t flips = vandq_u8(is_below, vdupq_n_u8(is_complement ? 255 : 0));
    const uint8x16_t turned = vsubq_u8(veorq_u8(code, flips), flips);
    const uint8x16_t index = vandq_u8(turned, vdupq_n_u8((uint8_t)(16 * blocks - 1)));
    const uint8x16_t sign = vandq_u8(is_below, vdupq_n_u8(is_whole ? 0 : 128)), none = vdupq_n_u8(0);
    const uint8x16_t b3 = vorrq_u8(plane_bytes(planes->plane[3], blocks, index), sign);
    const uint8x16_t b2 = plane_bytes(planes->plane[2], blocks, index);
    const uint8x16_t b1 = n_planes == 4 ? plane_bytes(planes->plane[1], blocks, index) : none;
    const uint8x16_t b0 = n_planes == 4 ? plane_bytes(planes->plane[0], blocks, index) : none;
    const uint8x16x4_t all = {{b0, b1, b2, b3}};
    vst4q_u8((uint8_t *)to, all);
    return true;
}

/* Codes of 9 to 15 bits to 16 bits each, 8 at a time; returns the number of unpacked codes. Reads 16 bytes of 8 codes. */
static inline int64_t simd_unpack16(const uint8_t *from, const uint8_t *end, int64_t n, int bits, uint16_t *out) {
    uint8_t at[32];
    int32_t shifts[8];
    for (int i = 0; i < 32; i++) /* an index of 255 gives 0 */
        at[i] = (uint8_t)(i % 4 < 3 ? i / 4 * bits / 8 + i % 4 : 255);
    for (int i = 0; i < 8; i++)
        shifts[i] = -(i * bits % 8);
    const uint16x8_t mask = vdupq_n_u16((uint16_t)((1u << bits) - 1));
    int64_t i = 0;
    for (; i + 8 <= n && end - from >= 16; i += 8, from += bits) {
        const uint8x16_t bytes = vld1q_u8(from);
        const uint32x4_t low = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, vld1q_u8(at)));
        const uint32x4_t high = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, vld1q_u8(at + 16)));
        const uint16x4_t first = vmovn_u32(vshlq_u32(low, vld1q_s32(shifts)));
        const uint16x8_t both = vmovn_high_u32(first, vshlq_u32(high, vld1q_s32(shifts + 4)));
        vst1q_u16(out + i, vandq_u16(both, mask));
    }
    return i;
}

#else

/* Bit 4, 5 and 6 of an index select the block. */
HC_INLINE __m256i plane_bytes(const uint8_t *plane, int blocks, __m256i index) {
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
HC_INLINE bool plane_levels(const hc_planes *planes, int blocks, int n_planes, const uint8_t *codes, float *to) {
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

/* Of LOADED + PLANE_CODES * times codes, the last LOADED are loaded meanwhile: both use different units of a core. */
HC_INLINE int64_t mixed_levels(const hc_planes *planes, int blocks, int n_planes, int times, int64_t loaded,
                               const uint8_t *codes, int64_t n, const float *level, float *to) {
    const int64_t step = times * PLANE_CODES + loaded;
    int64_t i = 0;
    for (; i + step <= n; i += step) {
#pragma GCC unroll 2
        for (int64_t j = 0; j < times * PLANE_CODES; j += PLANE_CODES)
            if (__builtin_expect(!plane_levels(planes, blocks, n_planes, codes + i + j, to + i + j), 0))
                load_levels(codes + i + j, PLANE_CODES, level, to + i + j);
        load_levels(codes + i + step - loaded, loaded, level, to + i + step - loaded);
    }
    return i;
}

#define HC_PLANES(name, blocks, n_planes, times, loaded)                                                               \
    static __attribute__((noinline)) int64_t name(const hc_planes *planes, const uint8_t *codes, int64_t n,            \
                                                  const float *level, float *to) {                                     \
        return mixed_levels(planes, blocks, n_planes, times, loaded, codes, n, level, to);                             \
    }
HC_PLANES(levels_1_2, 1, 2, 1, 0)
HC_PLANES(levels_1_4, 1, 4, 1, 0)
HC_PLANES(levels_2_2, 2, 2, 1, 0)
HC_PLANES(levels_2_4, 2, 4, 1, 0)
HC_PLANES(levels_4_2, 4, 2, 1, 0)
HC_PLANES(levels_4_4, 4, 4, 1, 0)
HC_PLANES(levels_8_2, 8, 2, 2, 32)
HC_PLANES(levels_8_4, 8, 4, 1, 32)

/* to[i] = level[codes[i]], for planes with blocks. */
static inline void simd_planes(const hc_planes *planes, const uint8_t *codes, int64_t n, const float *level,
                               float *to) {
    int64_t i = planes->blocks == 1   ? (planes->n_planes == 2 ? levels_1_2 : levels_1_4)(planes, codes, n, level, to)
                : planes->blocks == 2 ? (planes->n_planes == 2 ? levels_2_2 : levels_2_4)(planes, codes, n, level, to)
                : planes->blocks == 4 ? (planes->n_planes == 2 ? levels_4_2 : levels_4_4)(planes, codes, n, level, to)
                                      : (planes->n_planes == 2 ? levels_8_2 : levels_8_4)(planes, codes, n, level, to);
    for (; i < n; i++)
        to[i] = level[codes[i]];
}

#endif
