/* few_folded: a 32-bit lane holds one word's dot, |dot| <= 2^14; vpdpwssd multiplies its lower half by the group's
 * scale, its upper half, the sign, by 0, and adds.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

INLINE uint32_t load_scales(const uint8_t *from, int bytes) {
    uint32_t word;
    uint16_t half;
    if (bytes == 1)
        return *from;
    if (bytes == 2) {
        memcpy(&half, from, 2);
        return half;
    }
    memcpy(&word, from, 4);
    return word;
}

INLINE __m512i add_register(__m512i sum, __m512i codes, __m512i flip, uint32_t scales, __m512i shifts, const int8_t *x,
                            const int32_t *start) {
    const __m512i nibbles = _mm512_set1_epi8(15), flipped = _mm512_xor_si512(codes, flip);
    const __m512i low = _mm512_and_si512(flipped, nibbles);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(flipped, 4), nibbles);
    __m512i dot = _mm512_dpbusd_epi32(_mm512_loadu_si512(start), low, _mm512_loadu_si512(x));
    dot = _mm512_dpbusd_epi32(dot, high, _mm512_loadu_si512(x + 64));
    const __m512i scale = _mm512_srlv_epi32(_mm512_set1_epi32((int)scales), shifts);
    return _mm512_dpwssd_epi32(sum, dot, _mm512_and_si512(scale, _mm512_set1_epi32(15)));
}

INLINE int64_t few_folded(const hc_few_folded_args *args, int words) {
    const int scale_bytes = 8 / words; /* of one register: 16 / words nibbles */
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i shifts = _mm512_slli_epi32(_mm512_srli_epi32(lanes, words == 2 ? 1 : words == 4 ? 2 : 3), 2);
    const __m512i flip = _mm512_set1_epi8((char)(args->flip * 17));
    const int64_t registers = args->row_bytes / 64, left = args->row_bytes % 64;
    const uint8_t *codes = args->codes, *scales = args->scales;
    const int8_t *x = args->x;
    const int32_t *start = args->start;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    int64_t i = 0;
    for (; i + 4 <= registers; i += 4) {
        __m512i loaded[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            loaded[j] = _mm512_loadu_si512(codes + 64 * j);
            _mm_prefetch(codes + 64 * j + AHEAD, _MM_HINT_T1);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum[j] = add_register(sum[j], loaded[j], flip, load_scales(scales + j * scale_bytes, scale_bytes), shifts,
                                  x + 128 * j, start + 16 * j);
        codes += 256;
        scales += 4 * scale_bytes;
        x += 512;
        start += 64;
    }
    for (; i < registers; i++, codes += 64, scales += scale_bytes, x += 128, start += 16)
        sum[0] =
            add_register(sum[0], _mm512_loadu_si512(codes), flip, load_scales(scales, scale_bytes), shifts, x, start);
    if (left) {
        uint32_t packed = 0;
        memcpy(&packed, scales, (size_t)((left + 8 * words - 1) / (8 * words)));
        const __m512i last = _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
        sum[0] = add_register(sum[0], last, flip, packed, shifts, x, start);
    }
    __m512i total = _mm512_setzero_si512();
    for (int j = 0; j < 4; j++) {
        total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum[j])));
        total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sum[j], 1)));
    }
    return _mm512_reduce_add_epi64(total);
}

int64_t hc_few_folded_avx512vnni(const hc_few_folded_args *args) {
    return args->words == 2 ? few_folded(args, 2) : args->words == 4 ? few_folded(args, 4) : few_folded(args, 8);
}
