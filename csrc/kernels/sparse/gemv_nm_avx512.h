/* x of 64 integers of a pattern, 16 * kr columns. Positions become byte indices, with which vpermi2b selects x from two
 * registers at a time. Lanes whose x is not found yet keep their index. */
#ifndef HC_GEMV_NM_AVX512_H
#define HC_GEMV_NM_AVX512_H

#include "kernels/sparse/gemv_24_avx512.h"

/* Few processors have VBMI without VNNI; ops checks both. */
#define VNNI __attribute__((target("avx512vnni")))

/* As in kernels/dots/avx512vnni.h: the intrinsics make gcc 12 copy accumulators. */
VNNI INLINE __m512i dot(__m512i sum, __m512i a_u8, __m512i b_s8) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a_u8), "v"(b_s8));
    return sum;
}
VNNI INLINE __m512i add_scaled(__m512i sum, __m512i dots, __m512i scale) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(dots), "v"(scale));
    return sum;
}

/* 64 positions: constants as in gemv_unpack_avx512vbmi.c, and the base of their index into 128 columns. */
typedef struct {
    __m512i place, shift, mask, base;
} hc_indices;

INLINE hc_indices indices_of(const hc_gemv_nm_integers_args *args, int kr) {
    const uint64_t each = 0x0101010101010101, steps = 0x0706050403020100, bits = (uint64_t)args->position_bits;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i columns = _mm512_and_si512(_mm512_mullo_epi32(words, _mm512_set1_epi32(kr)), _mm512_set1_epi32(127));
    return (hc_indices){
        .place = _mm512_add_epi8(_mm512_mullo_epi64(lanes, _mm512_set1_epi64((int64_t)(each * bits))),
                                 _mm512_set1_epi64((int64_t)steps)),
        .shift = _mm512_set1_epi64((int64_t)(steps * bits)),
        .mask = _mm512_set1_epi8((char)((1 << bits) - 1)),
        .base = _mm512_or_si512(_mm512_mullo_epi32(columns, _mm512_set1_epi32(0x01010101)),
                                _mm512_set1_epi32((int)args->base)),
    };
}

INLINE __m512i index_64(const hc_indices *to, __m512i metadata) {
    const __m512i positions = _mm512_multishift_epi64_epi8(to->shift, _mm512_permutexvar_epi8(to->place, metadata));
    return _mm512_ternarylogic_epi32(positions, to->mask, to->base, 0xea); /* (p & mask) | base */
}

/* Replaces the indices of one row or two by x. */
INLINE void gather(const uint8_t *x, int kr, int rows, __m512i index[2]) {
    const int pairs = kr / 8, each = 64 / pairs;
#pragma GCC unroll 8
    for (int p = 0; p < pairs; p++, x += 128) {
        const __mmask64 now = (each == 64 ? ~0ull : (1ull << each % 64) - 1) << p * each;
        const __m512i low = _mm512_loadu_si512(x), high = _mm512_loadu_si512(x + 64);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            index[r] = _mm512_mask2_permutex2var_epi8(low, index[r], now, high);
    }
}

/* Rows in pairs, with one function per kr and number of vectors. */
#define WALK(walk, args, kr, n_vectors)                                                                                \
    do {                                                                                                               \
        int64_t row = 0;                                                                                               \
        for (; row + 2 <= (args)->rows; row += 2)                                                                      \
            walk(args, row, kr, n_vectors, 2);                                                                         \
        if (row < (args)->rows)                                                                                        \
            walk(args, row, kr, n_vectors, 1);                                                                         \
    } while (0)
#define CHOOSE_VECTORS(walk, args, kr)                                                                                 \
    do {                                                                                                               \
        if ((args)->n_vectors == 1)                                                                                    \
            WALK(walk, args, kr, 1);                                                                                   \
        else if ((args)->n_vectors == 2)                                                                               \
            WALK(walk, args, kr, 2);                                                                                   \
        else                                                                                                           \
            WALK(walk, args, kr, 4);                                                                                   \
    } while (0)
#define CHOOSE(walk, args)                                                                                             \
    do {                                                                                                               \
        if ((args)->kr == 8)                                                                                           \
            CHOOSE_VECTORS(walk, args, 8);                                                                             \
        else if ((args)->kr == 16)                                                                                     \
            CHOOSE_VECTORS(walk, args, 16);                                                                            \
        else if ((args)->kr == 32)                                                                                     \
            CHOOSE_VECTORS(walk, args, 32);                                                                            \
        else                                                                                                           \
            CHOOSE_VECTORS(walk, args, 64);                                                                            \
    } while (0)

#endif
