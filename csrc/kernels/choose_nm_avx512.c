/* Choosing N of M: 2:4 for four quads at a time, 2:8 and 4:8 for 8 blocks, 1:4, 1:8 and 1:16 for 16; kernels/choose_nm.h. */
#include "kernels/choose_nm.h"
#include "kernels/kernel.h"

hc_choose_nm_fn hc_choose_nm_avx512;

/* Quads. */

/* Bits of the kept values of four quads, by scores as integers. */
static inline __mmask16 keep_of(__m512i a) {
    const __m512i lower_1 = _mm512_set4_epi32(1, 0, 0, 0), lower_2 = _mm512_set4_epi32(1, 1, 0, 0);
    const __m512i lower_3 = _mm512_set4_epi32(1, 1, 1, 0);
    const __mmask16 by_1 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x39), _mm512_sub_epi32(a, lower_1));
    const __mmask16 by_2 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x4e), _mm512_sub_epi32(a, lower_2));
    const __mmask16 by_3 = _mm512_cmpgt_epi32_mask(_mm512_shuffle_epi32(a, 0x93), _mm512_sub_epi32(a, lower_3));
    return (__mmask16)~hc_beaten(by_1, by_2, by_3);
}

/* Floats in an order of integers, both zeros alike. */
static inline __m512i ordered(__m512 score) {
    const __m512i bits = _mm512_castps_si512(_mm512_add_ps(score, _mm512_setzero_ps()));
    return _mm512_xor_si512(bits, _mm512_srli_epi32(_mm512_srai_epi32(bits, 31), 1));
}

/* 1 to 4 quads; false where a score is NaN. */
static inline __attribute__((always_inline)) bool quads(int some, const float *x, const float *scores, float *values,
                                                        uint8_t *metadata) {
    const __mmask16 there = (__mmask16)((1u << 4 * some) - 1);
    const __m512 four = some == 4 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(there, x);
    const __m512 score = scores ? _mm512_maskz_loadu_ps(there, scores) : _mm512_abs_ps(four);
    if (_mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q))
        return false;
    const __mmask16 keep = keep_of(scores ? ordered(score) : _mm512_castps_si512(score));
    const __m256 kept = _mm512_castps512_ps256(_mm512_maskz_compress_ps(keep, four));
    const uint8_t codes[4] = {HC_QUAD_CODE[keep & 15], HC_QUAD_CODE[keep >> 4 & 15], HC_QUAD_CODE[keep >> 8 & 15],
                              HC_QUAD_CODE[keep >> 12]};
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

/* Eight blocks of eight. */

static inline __attribute__((always_inline)) bool some_of_8(int n, int m, const float *x, const float *scores,
                                                            float *values, uint8_t *metadata) {
    (void)m;
    __m512 score[4];
    __m512i turned[4], lower[4];
    uint64_t by[4] = {0};
    hc_fetch_ahead(x, 64);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i other = _mm512_and_si512(_mm512_add_epi32(lane, _mm512_set1_epi32(r + 1)), _mm512_set1_epi32(7));
        turned[r] = _mm512_or_si512(other, _mm512_and_si512(lane, _mm512_set1_epi32(8)));
        lower[r] = _mm512_srli_epi32(_mm512_sub_epi32(turned[r], lane), 31);
        score[r] = scores ? _mm512_loadu_ps(scores + 16 * r) : _mm512_abs_ps(_mm512_loadu_ps(x + 16 * r));
    }
    if (_mm512_cmp_ps_mask(score[0], score[1], _CMP_UNORD_Q) | _mm512_cmp_ps_mask(score[2], score[3], _CMP_UNORD_Q))
        return false;
#pragma GCC unroll 4
    for (int two = 0; two < 4; two++) {
        const __m512i a = scores ? ordered(score[two]) : _mm512_castps_si512(score[two]);
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            const __mmask16 beaten =
                _mm512_cmpgt_epi32_mask(_mm512_permutexvar_epi32(turned[r], a), _mm512_sub_epi32(a, lower[r]));
            by[r] |= (uint64_t)beaten << 16 * two;
        }
    }
    const uint64_t keep = hc_stay(by, n);
    hc_store_octets(keep, n, metadata);
#pragma GCC unroll 4
    for (int two = 0; two < 4; two++, values += 2 * n) {
        const __m512 kept = _mm512_maskz_compress_ps((__mmask16)(keep >> 16 * two), _mm512_loadu_ps(x + 16 * two));
        if (n == 4)
            _mm256_storeu_ps(values, _mm512_castps512_ps256(kept));
        else
            _mm_storeu_ps(values, _mm512_castps512_ps128(kept));
    }
    return true;
}

/* 16 blocks in lanes. */

/* Places first .. first + 3 of blocks, whose quarters lie in a register by fours. */
static inline __attribute__((always_inline)) void turn(__m512 r0, __m512 r1, __m512 r2, __m512 r3, __m512 *place) {
    const __m512 low01 = _mm512_unpacklo_ps(r0, r1), high01 = _mm512_unpackhi_ps(r0, r1);
    const __m512 low23 = _mm512_unpacklo_ps(r2, r3), high23 = _mm512_unpackhi_ps(r2, r3);
    place[0] = _mm512_shuffle_ps(low01, low23, 0x44);
    place[1] = _mm512_shuffle_ps(low01, low23, 0xee);
    place[2] = _mm512_shuffle_ps(high01, high23, 0x44);
    place[3] = _mm512_shuffle_ps(high01, high23, 0xee);
}

/* Four lanes of four places each, places 4 q .. of four blocks of m from x on. */
static inline __attribute__((always_inline)) __m512 quarter(int m, int q, const float *x) {
    if (m == 4)
        return _mm512_loadu_ps(x);
    if (m == 8) {
        const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        return q == 0 ? _mm512_shuffle_f32x4(low, high, 0x88) : _mm512_shuffle_f32x4(low, high, 0xdd);
    }
    const __m512 a = _mm512_castps128_ps512(_mm_loadu_ps(x + 4 * q));
    const __m512 b = _mm512_mask_broadcast_f32x4(a, 0x00f0, _mm_loadu_ps(x + 16 + 4 * q));
    const __m512 c = _mm512_mask_broadcast_f32x4(b, 0x0f00, _mm_loadu_ps(x + 32 + 4 * q));
    return _mm512_mask_broadcast_f32x4(c, 0xf000, _mm_loadu_ps(x + 48 + 4 * q));
}

/* place[i], lane 4 q + j: place 4 * part + i of block 4 j + q. */
static inline __attribute__((always_inline)) void places(int m, int part, const float *x, __m512 *place) {
    turn(quarter(m, part, x), quarter(m, part, x + 4 * m), quarter(m, part, x + 8 * m), quarter(m, part, x + 12 * m),
         place);
}

/* Lanes in the order of blocks. */
static inline __m512i in_order(void) { return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); }

static inline __attribute__((always_inline)) bool first_largest(int n, int m, const float *x, const float *scores,
                                                                float *values, uint8_t *metadata) {
    (void)n;
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
    const int bits = m == 4 ? 2 : m == 8 ? 3 : 4;
    _mm512_storeu_ps(values, _mm512_permutexvar_ps(in_order(), value));
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_permutexvar_epi32(in_order(), position));
    const uint64_t low = hc_packed_positions((uint64_t)_mm_cvtsi128_si64(bytes), bits);
    const uint64_t high = hc_packed_positions((uint64_t)_mm_extract_epi64(bytes, 1), bits);
    const uint64_t codes = low | high << 8 * bits;
    memcpy(metadata, &codes, (size_t)(2 * bits));
    return true;
}

int64_t hc_choose_nm_avx512(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                            uint8_t *metadata) {
#define ALL(choose, at_once, n, m, bits)                                                                               \
    (scores ? hc_choose_all(choose, at_once, n, m, bits, blocks, x, scores, values, metadata)                          \
            : hc_choose_all(choose, at_once, n, m, bits, blocks, x, NULL, values, metadata))
    switch (n * 100 + m) {
    case 204:
        return scores ? all_quads(blocks, x, scores, values, metadata) : all_quads(blocks, x, NULL, values, metadata);
    case 104:
        return ALL(first_largest, 16, 1, 4, 2);
    case 108:
        return ALL(first_largest, 16, 1, 8, 3);
    case 116:
        return ALL(first_largest, 16, 1, 16, 4);
    case 208:
        return ALL(some_of_8, 8, 2, 8, 3);
    case 408:
        return ALL(some_of_8, 8, 4, 8, 3);
    default:
        return HC_DECLINED;
    }
#undef ALL
}
