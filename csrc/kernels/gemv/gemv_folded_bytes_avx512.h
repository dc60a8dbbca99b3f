/* gemv_folded_bytes and gemv_folded_packed: a 32-bit lane holds one word's dot product, which is multiplied by its group's
 * factor and added. Small dots take one vpdpwssd, as in gemv_folded. Sums are widened to int64 before they may overflow.
 * Four rows are multiplied at a time, so that x is loaded once for those rows and enough sums are in flight.
 *
 * The including file defines hc_code_loader, IS_PACKED, and `load_flipped`, which loads a register of codes.
 */
#ifndef HC_GEMV_FOLDED_BYTES_AVX512_H
#define HC_GEMV_FOLDED_BYTES_AVX512_H

#include "kernels/gemv/gemv_scaled_avx512.h"

/* ABREAST: rows at a time */
enum { ABREAST = 4, MOST_SUMS = ABREAST * HC_GEMV_LINES, MORE = 32 /* words: a multiple of 16 */ };

/* The factors of the register `reg` of codes; `group` is its group if a group has one register or more. */
INLINE __m512i load_factors(const int32_t *factors, int64_t reg, int64_t group, int words, __m512i lanes) {
    if (words >= 16)
        return _mm512_set1_epi32(factors[group]);
    const __m128i few = words == 4 ? _mm_loadu_si128((const __m128i *)(const void *)(factors + 4 * reg))
                                   : _mm_loadl_epi64((const __m128i *)(const void *)(factors + 2 * reg));
    return _mm512_permutexvar_epi32(lanes, _mm512_castsi128_si512(few));
}

/* Register `reg` of four rows times that part of the lines of x; the rows have `left` bytes from there on. */
INLINE void add_register(const hc_gemv_folded_bytes_args *args, const hc_code_loader *loader,
                         const uint8_t *const *codes, const int32_t *const *factors, int64_t reg, int64_t group,
                         int64_t left, __m512i lanes, int words, bool is_small, int n_lines, __m512i *sum) {
    const __m512i flip = _mm512_set1_epi8((char)args->flip);
    __m512i of_row[ABREAST], factor[ABREAST];
#pragma GCC unroll 4
    for (int row = 0; row < ABREAST; row++) {
        of_row[row] = load_flipped(loader, codes[row] + reg * loader->bytes, left, flip);
        factor[row] = load_factors(factors[row], reg, group, words, lanes);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++) {
        const __m512i x = _mm512_loadu_si512(args->x + line * args->x_bytes + 64 * reg);
        const __m512i start = _mm512_loadu_si512(args->start + line * (args->x_bytes / 4) + 16 * reg);
#pragma GCC unroll 4
        for (int row = 0; row < ABREAST; row++) {
            __m512i *to = sum + line * ABREAST + row;
            const __m512i product = dot(start, of_row[row], x);
            if (is_small)
                *to = dot_pairs(*to, product, factor[row]);
            else
                *to = _mm512_add_epi32(*to, _mm512_mullo_epi32(product, factor[row]));
        }
    }
}

/* The sums of the lanes of four registers of int64. */
INLINE __m256i add_lanes(const __m512i *total) {
    const __m512i a =
        _mm512_add_epi64(_mm512_unpacklo_epi64(total[0], total[1]), _mm512_unpackhi_epi64(total[0], total[1]));
    const __m512i b =
        _mm512_add_epi64(_mm512_unpacklo_epi64(total[2], total[3]), _mm512_unpackhi_epi64(total[2], total[3]));
    const __m256i low = _mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m256i high = _mm256_add_epi64(_mm512_castsi512_si256(b), _mm512_extracti64x4_epi64(b, 1));
    return _mm256_add_epi64(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Four rows from `first` on; of rows after the last one, the last one is multiplied. */
INLINE void some_rows(const hc_gemv_folded_bytes_args *args, const hc_code_loader *loader, int first, int words,
                      bool is_small, int n_lines) {
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i lanes = _mm512_srli_epi32(steps, words == 4 ? 2 : 3);
    const int64_t registers = args->row_bytes / loader->bytes, left = args->row_bytes % loader->bytes;
    const int64_t apart = (AHEAD_BYTES / (ROWS * args->code_stride) + 1) * ROWS * args->code_stride;
    const uint8_t *codes[ABREAST];
    const int32_t *factors[ABREAST];
    __m512i total[MOST_SUMS];
#pragma GCC unroll 4
    for (int row = 0; row < ABREAST; row++) {
        const int at = (int)hc_min(first + row, args->n_rows - 1);
        codes[row] = args->codes + at * args->code_stride;
        factors[row] = args->factors + at * args->ld_factors;
    }
#pragma GCC unroll 16
    for (int i = 0; i < ABREAST * n_lines; i++)
        total[i] = _mm512_setzero_si512();
    const int64_t of_group = words == 16 ? 1 : args->words / 16;
    int64_t group = 0, until = of_group; /* registers of the group that are left */
    for (int64_t from = 0; from < registers + (left > 0); from += args->most) {
        const int64_t end = hc_min(registers, from + args->most);
        __m512i sum[MOST_SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < ABREAST * n_lines; i++)
            sum[i] = _mm512_setzero_si512();
        for (int64_t reg = from; reg < end; reg++) {
#pragma GCC unroll 4
            for (int row = 0; row < ABREAST; row++)
                _mm_prefetch((const char *)((uintptr_t)codes[row] + (uintptr_t)(apart + reg * loader->bytes)),
                             _MM_HINT_T1);
            add_register(args, loader, codes, factors, reg, words == 16 ? reg : group,
                         IS_PACKED ? args->row_bytes - reg * loader->bytes : 64, lanes, words, is_small, n_lines, sum);
            if (words == MORE && --until == 0)
                until = of_group, group++;
        }
        if (left && registers < from + args->most)
            add_register(args, loader, codes, factors, registers, words == 16 ? registers : group, left, lanes, words,
                         is_small, n_lines, sum);
#pragma GCC unroll 16
        for (int i = 0; i < ABREAST * n_lines; i++) {
            const __m512i even = _mm512_srai_epi64(_mm512_slli_epi64(sum[i], 32), 32);
            total[i] = _mm512_add_epi64(total[i], _mm512_add_epi64(even, _mm512_srai_epi64(sum[i], 32)));
        }
    }
    for (int line = 0; line < n_lines; line++)
        _mm256_storeu_si256((__m256i *)(void *)(args->sums + line * ROWS + first), add_lanes(total + line * ABREAST));
}

INLINE void folded_rows(const hc_gemv_folded_bytes_args *args, const hc_code_loader *loader, int words, bool is_small,
                        int n_lines) {
    for (int first = 0; first < args->n_rows; first += ABREAST)
        some_rows(args, loader, first, words, is_small, n_lines);
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(words, is_small)                                                                                          \
    static __attribute__((noinline)) void of_##words##_##is_small(const hc_gemv_folded_bytes_args *args,               \
                                                                  const hc_code_loader *loader) {                      \
        args->n_lines == 1   ? folded_rows(args, loader, words, is_small, 1)                                           \
        : args->n_lines == 2 ? folded_rows(args, loader, words, is_small, 2)                                           \
                             : folded_rows(args, loader, words, is_small, 4);                                          \
    }
#define CASES(is_small)                                                                                                \
    CASE(4, is_small)                                                                                                  \
    CASE(8, is_small)                                                                                                  \
    CASE(16, is_small)                                                                                                 \
    CASE(MORE, is_small)                                                                                               \
    static void folded_##is_small(const hc_gemv_folded_bytes_args *args, const hc_code_loader *loader) {               \
        args->words == 4    ? of_4_##is_small(args, loader)                                                            \
        : args->words == 8  ? of_8_##is_small(args, loader)                                                            \
        : args->words == 16 ? of_16_##is_small(args, loader)                                                           \
                            : of_MORE_##is_small(args, loader);                                                        \
    }

#endif
