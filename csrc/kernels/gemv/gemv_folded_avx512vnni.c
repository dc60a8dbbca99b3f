/* gemv_folded: a 32-bit lane holds one word's dot product, |dot| <= 2^14. vpdpwssd multiplies its lower half by the
 * group's scale, its upper half, the sign, by 0, and adds.
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

/* A register of codes and its scales, times that part of n lines of x. */
INLINE void add_register(__m512i sum[], __m512i codes, __m512i flip, uint32_t scales, __m512i shifts,
                         const hc_gemv_folded_args *args, int64_t place, int n_lines) {
    const __m512i nibbles = _mm512_set1_epi8(15), flipped = _mm512_xor_si512(codes, flip);
    const __m512i low = _mm512_and_si512(flipped, nibbles);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(flipped, 4), nibbles);
    const __m512i spread = _mm512_srlv_epi32(_mm512_set1_epi32((int)scales), shifts);
    const __m512i scale = _mm512_and_si512(spread, _mm512_set1_epi32(15));
    const int8_t *x = args->x + 2 * place;
    const int32_t *start = args->start + place / 4;
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        __m512i dot = _mm512_loadu_si512(start + line * (args->x_bytes / 8));
        dot = _mm512_dpbusd_epi32(dot, low, _mm512_loadu_si512(x + line * args->x_bytes));
        dot = _mm512_dpbusd_epi32(dot, high, _mm512_loadu_si512(x + line * args->x_bytes + 64));
        sum[line] = _mm512_dpwssd_epi32(sum[line], dot, scale);
    }
}

INLINE void gemv_folded(const hc_gemv_folded_args *args, int words, int n_lines) {
    enum { SUMS = HC_GEMV_LINES };
    const int scale_bytes = 8 / words;  /* of one register: 16 / words nibbles */
    const int at_once = SUMS / n_lines; /* registers, each with separate sums, since a sum waits for itself */
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i shifts = _mm512_slli_epi32(_mm512_srli_epi32(lanes, words == 2 ? 1 : words == 4 ? 2 : 3), 2);
    const __m512i flip = _mm512_set1_epi8((char)(args->flip * 17));
    const int64_t row_bytes = args->row_bytes, left = row_bytes % 64;
    const uint8_t *scales = args->scales;
    __m512i sum[SUMS];
    int64_t place = 0;
#pragma GCC unroll 4
    for (int i = 0; i < SUMS; i++)
        sum[i] = _mm512_setzero_si512();
    for (; place + 64 * at_once <= row_bytes; place += 64 * at_once, scales += at_once * scale_bytes) {
        __m512i loaded[SUMS];
#pragma GCC unroll 4
        for (int j = 0; j < at_once; j++) {
            loaded[j] = _mm512_loadu_si512(args->codes + place + 64 * j);
            _mm_prefetch(args->codes + place + 64 * j + AHEAD, _MM_HINT_T1);
        }
#pragma GCC unroll 4
        for (int j = 0; j < at_once; j++)
            add_register(sum + j * n_lines, loaded[j], flip, load_scales(scales + j * scale_bytes, scale_bytes), shifts,
                         args, place + 64 * j, n_lines);
    }
    for (int64_t rest = place; rest < row_bytes; rest += 64)
        _mm_prefetch(args->codes + rest + AHEAD, _MM_HINT_T1);
    for (int64_t at = 0; at < row_bytes; at += 512 * words)
        _mm_prefetch(args->scales + (at + AHEAD) / (8 * words), _MM_HINT_T1); /* a line of them */
    for (; place + 64 <= row_bytes; place += 64, scales += scale_bytes)
        add_register(sum, _mm512_loadu_si512(args->codes + place), flip, load_scales(scales, scale_bytes), shifts, args,
                     place, n_lines);
    if (left) {
        const int count = (int)((left + 8 * words - 1) / (8 * words)); /* bytes of two scales each */
        const uint32_t packed =
            (uint32_t)_mm_cvtsi128_si32(_mm_maskz_loadu_epi8((__mmask16)((1 << count) - 1), scales));
        const __m512i last = _mm512_maskz_loadu_epi8((1ull << left) - 1, args->codes + place);
        add_register(sum, last, flip, packed, shifts, args, place, n_lines);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        __m512i total = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int j = line; j < SUMS; j += n_lines) {
            total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum[j])));
            total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sum[j], 1)));
        }
        args->sums[line] = _mm512_reduce_add_epi64(total);
    }
}

INLINE void gemv_folded_words(const hc_gemv_folded_args *args, int words) {
    args->n_lines == 1   ? gemv_folded(args, words, 1)
    : args->n_lines == 2 ? gemv_folded(args, words, 2)
                         : gemv_folded(args, words, 4);
}

void hc_gemv_folded_avx512vnni(const hc_gemv_folded_args *args) {
    args->words == 2   ? gemv_folded_words(args, 2)
    : args->words == 4 ? gemv_folded_words(args, 4)
                       : gemv_folded_words(args, 8);
}
