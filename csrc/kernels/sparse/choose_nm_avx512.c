/* Choosing N of M: 2:4 for four quads at a time, 1:4 and 1:8 for 16 blocks. The AVX2 kernel handles all other patterns.
 * 2:4: every value is compared with the three others of its quad at once. Scores are compared as integers. The value at
 * distance r (its lane is (i + r) % 4) beats value i if it is larger, or equal and in a lower lane: a_j > a_i - [j <
 * i]. A value that is beaten by two others is removed. 1:M: one block per lane and one register per position; the first
 * position of the maximum is kept.
 */
#include "kernels/kernel.h"
#include "kernels/sparse/choose_nm.h"
#include "kernels/sparse/place_avx512.h"

/* Quads. */

/* The two positions, 2 bits each, indexed by the 4-bit mask of a quad. */
static const uint8_t QUAD_CODE[16] = {[3] = 0x4, [5] = 0x8, [6] = 0x9, [9] = 0xc, [10] = 0xd, [12] = 0xe};

/* Bit mask of the values that are beaten by two of the three others. */
static inline uint32_t beaten_by_two(uint32_t by_1, uint32_t by_2, uint32_t by_3) {
    return (by_1 & by_2) | (by_1 & by_3) | (by_2 & by_3);
}

/* Bit mask of the nonzeros of four quads, by scores as integers. */
static inline __mmask16 keep_of(__m512i a) {
    const __m512i lower_1 = _mm512_set4_epi32(1, 0, 0, 0), lower_2 = _mm512_set4_epi32(1, 1, 0, 0);
    const __m512i lower_3 = _mm512_set4_epi32(1, 1, 1, 0);
    const __mmask16 by_1 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x39), _mm512_sub_epi32(a, lower_1));
    const __mmask16 by_2 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x4e), _mm512_sub_epi32(a, lower_2));
    const __mmask16 by_3 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x93), _mm512_sub_epi32(a, lower_3));
    return (__mmask16)~beaten_by_two(by_1, by_2, by_3);
}

/* Floats as integers of the same order; both zeros are equal. */
static inline __m512i ordered(__m512 score) {
    const __m512i bits = _mm512_castps_si512(_mm512_add_ps(score, _mm512_setzero_ps()));
    return _mm512_xor_si512(bits, _mm512_srli_epi32(_mm512_srai_epi32(bits, 31), 1));
}

/* 1 to 4 quads; false if a score is NaN. */
static inline __attribute__((always_inline)) bool quads(int some, const float *x, const float *scores, float *values,
                                                        uint8_t *metadata) {
    const __mmask16 there = (__mmask16)((1u << 4 * some) - 1);
    const __m512 four = some == 4 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(there, x);
    const __m512 score = scores ? _mm512_maskz_loadu_ps(there, scores) : _mm512_abs_ps(four);
    if (_mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q))
        return false;
    const __mmask16 keep = keep_of(scores ? ordered(score) : _mm512_castps_si512(score));
    const __m512i compressed = hc_compress_x32(keep, _mm512_castps_si512(four));
    const __m256 kept = _mm256_castsi256_ps(_mm512_castsi512_si256(compressed));
    const uint8_t codes[4] = {QUAD_CODE[keep & 15], QUAD_CODE[keep >> 4 & 15], QUAD_CODE[keep >> 8 & 15],
                              QUAD_CODE[keep >> 12]};
    if (some == 4)
        _mm256_storeu_ps(values, kept);
    else
        _mm256_mask_storeu_ps(values, (__mmask8)((1u << 2 * some) - 1), kept);
    metadata[0] = (uint8_t)(codes[0] | (some > 1 ? codes[1] << 4 : 0));
    if (some > 2)
        metadata[1] = (uint8_t)(codes[2] | (some > 3 ? codes[3] << 4 : 0));
    return true;
}

static inline __attribute__((always_inline)) int64_t all_quads(int64_t blocks, const float *x, const float *scores,
                                                               float *values, uint8_t *metadata) {
    const float *by = scores ? scores : x;
    int64_t quad = 0;
    for (; quad + 4 <= blocks; quad += 4, values += 8, metadata += 2) {
        hc_fetch_ahead(x + quad * 4, 16);
        if (!quads(4, x + quad * 4, scores ? scores + quad * 4 : NULL, values, metadata))
            return quad * 4 + hc_first_nan(by + quad * 4);
    }
    if (quad < blocks &&
        !quads((int)(blocks - quad), x + quad * 4, scores ? scores + quad * 4 : NULL, values, metadata))
        return quad * 4 + hc_first_nan(by + quad * 4);
    return HC_DONE;
}

/* 16 blocks in lanes. */

/* Positions first .. first + 3 of blocks, from a register that has four values of each block. */
static inline __attribute__((always_inline)) void transpose(__m512 r0, __m512 r1, __m512 r2, __m512 r3, __m512 *place) {
    const __m512 low01 = _mm512_unpacklo_ps(r0, r1), high01 = _mm512_unpackhi_ps(r0, r1);
    const __m512 low23 = _mm512_unpacklo_ps(r2, r3), high23 = _mm512_unpackhi_ps(r2, r3);
    place[0] = _mm512_shuffle_ps(low01, low23, 0x44);
    place[1] = _mm512_shuffle_ps(low01, low23, 0xee);
    place[2] = _mm512_shuffle_ps(high01, high23, 0x44);
    place[3] = _mm512_shuffle_ps(high01, high23, 0xee);
}

/* Four neighbouring blocks of m values begin at x. Lanes 4 j .. 4 j + 3: values 4 q .. 4 q + 3 of block j. */
static inline __attribute__((always_inline)) __m512 quarter(int m, int q, const float *x) {
    if (m == 4)
        return _mm512_loadu_ps(x);
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    return q == 0 ? _mm512_shuffle_f32x4(low, high, 0x88) : _mm512_shuffle_f32x4(low, high, 0xdd);
}

/* place[i], lane 4 q + j: value at position 4 * part + i of block 4 j + q. */
static inline __attribute__((always_inline)) void places(int m, int part, const float *x, __m512 *place) {
    transpose(quarter(m, part, x), quarter(m, part, x + 4 * m), quarter(m, part, x + 8 * m),
              quarter(m, part, x + 12 * m), place);
}

/* Permutation of lanes to the order of blocks. */
static inline __m512i in_order(void) { return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); }

/* False if a score is NaN. */
static inline __attribute__((always_inline)) bool first_largest(int m, const float *x, const float *scores,
                                                                float *values, uint8_t *metadata) {
    __m512 best = _mm512_setzero_ps(), value = _mm512_setzero_ps();
    __m512i position = _mm512_setzero_si512();
    __mmask16 nan = 0;
    hc_fetch_ahead(x, 16 * m);
#pragma GCC unroll 4
    for (int part = 0; part < m / 4; part++) {
        __m512 place[4], score[4];
        places(m, part, x, place);
        if (scores)
            places(m, part, scores, score);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512 s = scores ? score[i] : _mm512_abs_ps(place[i]);
            const int at = part * 4 + i;
            const __mmask16 larger = at == 0 ? 0xffff : _mm512_cmp_ps_mask(s, best, _CMP_GT_OQ);
            nan |= _mm512_cmp_ps_mask(s, s, _CMP_UNORD_Q);
            best = _mm512_mask_mov_ps(best, larger, s);
            value = _mm512_mask_mov_ps(value, larger, place[i]);
            position = _mm512_mask_mov_epi32(position, larger, _mm512_set1_epi32(at));
        }
    }
    if (nan)
        return false;
    const int bits = m == 4 ? 2 : 3;
    _mm512_storeu_ps(values, _mm512_permutexvar_ps(in_order(), value));
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_permutexvar_epi32(in_order(), position));
    const uint64_t low = hc_packed_positions((uint64_t)_mm_cvtsi128_si64(bytes), bits);
    const uint64_t high = hc_packed_positions((uint64_t)_mm_extract_epi64(bytes, 1), bits);
    const uint64_t codes = low | high << 8 * bits;
    memcpy(metadata, &codes, (size_t)(2 * bits));
    return true;
}

/* All blocks; the last few go through a private buffer. */
static inline __attribute__((always_inline)) int64_t all_blocks(int m, int bits, int64_t blocks, const float *x,
                                                                const float *scores, float *values, uint8_t *metadata) {
    const float *by = scores ? scores : x;
    int64_t b = 0;
    for (; b + 16 <= blocks; b += 16)
        if (!first_largest(m, x + b * m, scores ? scores + b * m : NULL, values + b, metadata + b * bits / 8))
            return b * m + hc_first_nan(by + b * m);
    const int64_t rest = blocks - b;
    if (rest == 0)
        return HC_DONE;
    float some[16 * 8] = {0}, some_scores[16 * 8] = {0}, kept[16];
    uint8_t codes[16 * 3 / 8];
    memcpy(some, x + b * m, (size_t)(rest * m) * sizeof *some);
    if (scores)
        memcpy(some_scores, scores + b * m, (size_t)(rest * m) * sizeof *some);
    if (!first_largest(m, some, scores ? some_scores : NULL, kept, codes))
        return b * m + hc_first_nan(by + b * m);
    const int64_t code_bits = rest * bits;
    if (code_bits % 8)
        codes[code_bits / 8] &= (uint8_t)((1 << code_bits % 8) - 1);
    memcpy(values + b, kept, (size_t)rest * sizeof *kept);
    memcpy(metadata + b * bits / 8, codes, (size_t)((code_bits + 7) / 8));
    return HC_DONE;
}

int64_t hc_choose_nm_avx512(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                            uint8_t *metadata) {
#define ALL(m, bits)                                                                                                   \
    (scores ? all_blocks(m, bits, blocks, x, scores, values, metadata)                                                 \
            : all_blocks(m, bits, blocks, x, NULL, values, metadata))
    switch (n * 100 + m) {
    case 204:
        return scores ? all_quads(blocks, x, scores, values, metadata) : all_quads(blocks, x, NULL, values, metadata);
    case 104:
        return ALL(4, 2);
    case 108:
        return ALL(8, 3);
    default:
        return HC_DECLINED;
    }
#undef ALL
}
