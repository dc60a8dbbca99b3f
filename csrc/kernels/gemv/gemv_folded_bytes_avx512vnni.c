/* gemv_folded_bytes: a 32-bit lane holds one word's dot product, which is multiplied by its group's factor and added.
 * Small dots take one vpdpwssd, as in gemv_folded. Sums are widened to int64 before they may overflow.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { SUMS = HC_GEMV_LINES, MORE = 32 /* words: a multiple of 16 */ };

/* The factors of a register of codes. */
INLINE __m512i load_factors(const hc_gemv_folded_bytes_args *args, uint64_t place, int words, __m512i lanes) {
    if (words == 16)
        return _mm512_cvtps_epi32(_mm512_set1_ps(args->factors[place / 64]));
    if (words == MORE)
        return _mm512_cvtps_epi32(_mm512_set1_ps(args->factors[(uint32_t)place / 4 / (uint32_t)args->words]));
    const __m512 few = words == 4 ? _mm512_castps128_ps512(_mm_loadu_ps(args->factors + place / 16))
                                  : _mm512_castps128_ps512(_mm_castsi128_ps(
                                        _mm_loadl_epi64((const __m128i *)(const void *)(args->factors + place / 32))));
    return _mm512_cvtps_epi32(_mm512_permutexvar_ps(lanes, few));
}

/* A register of codes times that part of n lines of x. */
INLINE void add_register(__m512i sum[], __m512i codes, __m512i factors, const hc_gemv_folded_bytes_args *args,
                         uint64_t place, int n_lines, bool is_small) {
    const int8_t *x = args->x + place;
    const int32_t *start = args->start + place / 4;
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_loadu_si512(start + line * (args->x_bytes / 4)), codes,
                                                _mm512_loadu_si512(x + line * args->x_bytes));
        sum[line] = is_small ? _mm512_dpwssd_epi32(sum[line], dot, factors)
                             : _mm512_add_epi32(sum[line], _mm512_mullo_epi32(dot, factors));
    }
}

INLINE void gemv_folded(const hc_gemv_folded_bytes_args *args, int words, bool is_small, int n_lines) {
    const int at_once = SUMS / n_lines; /* registers, each with separate sums */
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i lanes = _mm512_srli_epi32(steps, words == 4 ? 2 : 3);
    const __m512i flip = _mm512_set1_epi8((char)args->flip);
    __m512i total[SUMS];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        total[line] = _mm512_setzero_si512();
    for (int64_t first = 0; first < args->row_bytes; first += 64 * args->most) {
        const int64_t end = hc_min(args->row_bytes, first + 64 * args->most);
        int64_t place = first;
        __m512i sum[SUMS];
#pragma GCC unroll 4
        for (int i = 0; i < SUMS; i++)
            sum[i] = _mm512_setzero_si512();
        for (; place + 64 * at_once <= end; place += 64 * at_once)
#pragma GCC unroll 4
            for (int j = 0; j < at_once; j++)
                add_register(sum + j * n_lines,
                             _mm512_xor_si512(flip, _mm512_loadu_si512(args->codes + place + 64 * j)),
                             load_factors(args, (uint64_t)(place + 64 * j), words, lanes), args,
                             (uint64_t)(place + 64 * j), n_lines, is_small);
        for (; place < end; place += 64) {
            const __mmask64 mask = end - place >= 64 ? ~0ull : (1ull << (end - place)) - 1;
            add_register(sum, _mm512_xor_si512(flip, _mm512_maskz_loadu_epi8(mask, args->codes + place)),
                         load_factors(args, (uint64_t)place, words, lanes), args, (uint64_t)place, n_lines, is_small);
        }
#pragma GCC unroll 4
        for (int i = 0; i < SUMS; i++) {
            const __m512i low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(sum[i]));
            const __m512i high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sum[i], 1));
            total[i % n_lines] = _mm512_add_epi64(total[i % n_lines], _mm512_add_epi64(low, high));
        }
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        args->sums[line] = _mm512_reduce_add_epi64(total[line]);
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(words, is_small)                                                                                          \
    static __attribute__((noinline)) void of_##words##_##is_small(const hc_gemv_folded_bytes_args *args) {             \
        args->n_lines == 1   ? gemv_folded(args, words, is_small, 1)                                                   \
        : args->n_lines == 2 ? gemv_folded(args, words, is_small, 2)                                                   \
                             : gemv_folded(args, words, is_small, 4);                                                  \
    }
CASE(4, 0)
CASE(4, 1)
CASE(8, 0)
CASE(8, 1)
CASE(16, 0)
CASE(16, 1)
CASE(MORE, 0)
CASE(MORE, 1)

void hc_gemv_folded_bytes_avx512vnni(const hc_gemv_folded_bytes_args *args) {
    if (args->is_small)
        args->words == 4    ? of_4_1(args)
        : args->words == 8  ? of_8_1(args)
        : args->words == 16 ? of_16_1(args)
                            : of_MORE_1(args);
    else
        args->words == 4    ? of_4_0(args)
        : args->words == 8  ? of_8_0(args)
        : args->words == 16 ? of_16_0(args)
                            : of_MORE_0(args);
}
