/* The nonzeros of eight blocks, with one block per lane and one register per position. M <= 8: if sorting eight does
 * not decide, every two positions are compared. Otherwise the n-th largest key is found from sorted groups of eight
 * (for two sorted lists it is the largest of the minima min(a[i - 1], b[n - i - 1])). Larger keys are kept, and of
 * equal keys those with the lowest positions. The marks of eight blocks are m bytes with 8 columns each. 12 bytes after
 * the scores are read, but not used.
 */
#ifndef HC_CHOOSE_MARKS_AVX2_H
#define HC_CHOOSE_MARKS_AVX2_H

#include "base/packed.h"
#include "kernels/sparse/choose_nm.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats as integers of the same order; both zeros are equal. */
INLINE __m256i hc_ordered(__m256 score) {
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(score, _mm256_setzero_ps()));
    return _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
}

INLINE __m256 hc_magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

INLINE __m256i hc_keys(bool given, __m256 score) {
    return given ? hc_ordered(score) : _mm256_castps_si256(hc_magnitude(score));
}

INLINE __m256 hc_halves(const float *low, const float *high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/* place[i], lane b: value at position 4 * part + i of block b. */
INLINE void hc_places(int m, int part, const float *x, __m256 *place) {
    x += 4 * part;
    const __m256 r0 = hc_halves(x, x + 4 * m), r1 = hc_halves(x + m, x + 5 * m);
    const __m256 r2 = hc_halves(x + 2 * m, x + 6 * m), r3 = hc_halves(x + 3 * m, x + 7 * m);
    const __m256 low01 = _mm256_unpacklo_ps(r0, r1), high01 = _mm256_unpackhi_ps(r0, r1);
    const __m256 low23 = _mm256_unpacklo_ps(r2, r3), high23 = _mm256_unpackhi_ps(r2, r3);
    place[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    place[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    place[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    place[3] = _mm256_shuffle_ps(high01, high23, 0xee);
}

/* The larger ones to a. */
INLINE void hc_order(__m256i *a, __m256i *b) {
    const __m256i larger = _mm256_max_epi32(*a, *b);
    *b = _mm256_min_epi32(*a, *b);
    *a = larger;
}

INLINE void hc_sort_8(__m256i *k) {
    hc_order(k, k + 2), hc_order(k + 1, k + 3), hc_order(k + 4, k + 6), hc_order(k + 5, k + 7);
    hc_order(k, k + 4), hc_order(k + 1, k + 5), hc_order(k + 2, k + 6), hc_order(k + 3, k + 7);
    hc_order(k, k + 1), hc_order(k + 2, k + 3), hc_order(k + 4, k + 5), hc_order(k + 6, k + 7);
    hc_order(k + 2, k + 4), hc_order(k + 3, k + 5);
    hc_order(k + 1, k + 4), hc_order(k + 3, k + 6);
    hc_order(k + 1, k + 2), hc_order(k + 3, k + 4), hc_order(k + 5, k + 6);
}

/* Merges two sorted lists of eight to a sorted list of sixteen. */
INLINE void hc_merge_16(__m256i *k) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        hc_order(k + i, k + 15 - i);
#pragma GCC unroll 3
    for (int apart = 4; apart > 0; apart /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            if (!(i & apart))
                hc_order(k + i, k + i + apart);
}

/* The n-th largest of two sorted lists of `each`. */
INLINE __m256i hc_nth_of_two(int n, int each, const __m256i *a, const __m256i *b) {
    __m256i found = _mm256_set1_epi32(INT32_MIN);
    for (int i = n > each ? n - each : 0; i <= (n < each ? n : each); i++) {
        const __m256i least = i == 0 ? b[n - 1] : i == n ? a[n - 1] : _mm256_min_epi32(a[i - 1], b[n - i - 1]);
        found = _mm256_max_epi32(found, least);
    }
    return found;
}

/* The n-th largest of `wide` keys, 16 or 32. */
INLINE __m256i hc_nth_largest(int n, int wide, const __m256i *keys) {
    __m256i k[32];
#pragma GCC unroll 32
    for (int i = 0; i < wide; i++)
        k[i] = keys[i];
#pragma GCC unroll 4
    for (int i = 0; i + 8 <= wide; i += 8)
        hc_sort_8(k + i);
    if (wide == 16)
        return hc_nth_of_two(n, 8, k, k + 8);
    hc_merge_16(k);
    hc_merge_16(k + 16);
    return hc_nth_of_two(n, 16, k, k + 16);
}

/* Scores of positions [4 * part, 4 * part + 4). NaNs below position m are joined to *nan, two positions at once. */
INLINE void hc_scores_of(int m, int part, const float *of, __m256 score[4], __m256 *nan) {
    hc_places(m, part, of, score);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        if (i % 2 == 0 && 4 * part + i < m)
            *nan = _mm256_or_ps(*nan, _mm256_cmp_ps(score[i], score[4 * part + i == m - 1 ? i : i + 1], _CMP_UNORD_Q));
}

/* The same as keys; positions from m on have the lowest key. */
INLINE void hc_keys_of(int m, int part, const float *of, bool given, __m256i key[4], __m256 *nan) {
    __m256 score[4];
    if (4 * part < m)
        hc_scores_of(m, part, of, score, nan);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        key[i] = 4 * part + i < m ? hc_keys(given, score[i]) : _mm256_set1_epi32(INT32_MIN);
}

/* Bit 4 b + i: whether lane b of place i is negative. */
INLINE uint32_t hc_nibbles(const __m256i place[4]) {
    const __m256i turn = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
                                          13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(place[0], place[1]), _mm256_packs_epi32(place[2], place[3]));
    return (uint32_t)_mm256_movemask_epi8(_mm256_shuffle_epi8(bytes, turn));
}

/* Lanes of kept positions are negative: those whose key is at least the n-th largest. Returns false if there are more
 * than n. */
INLINE bool hc_stay_sorted(int n, const __m256i key[8], __m256i stay[8]) {
    __m256i k[8], sum = _mm256_set1_epi32(n);
    for (int i = 0; i < 8; i++)
        k[i] = key[i];
    hc_sort_8(k);
    const __m256i below = _mm256_sub_epi32(k[n - 1], _mm256_set1_epi32(1));
    for (int i = 0; i < 8; i++) {
        stay[i] = _mm256_cmpgt_epi32(key[i], below);
        sum = _mm256_add_epi32(sum, stay[i]);
    }
    return _mm256_testz_si256(sum, sum);
}

/* The same for any m up to 8, with ties decided: a position is kept if fewer than n positions beat it. */
INLINE void hc_stay_counted(int n, int m, const __m256i key[8], __m256i beaten[8]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        beaten[i] = _mm256_set1_epi32(i - n);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int j = i + 1; j < m; j++) {
            const __m256i by_later = _mm256_cmpgt_epi32(key[j], key[i]);
            beaten[i] = _mm256_sub_epi32(beaten[i], by_later);
            beaten[j] = _mm256_add_epi32(beaten[j], by_later);
        }
}

/* Marks the n nonzeros of each block; writes up to 7 bytes more. Returns false if a score is NaN. m: at most 8. */
INLINE bool hc_mark_few(int n, int m, const float *of, bool given, uint8_t *marks) {
    __m256i key[8], stay[8];
    __m256 nan = _mm256_setzero_ps();
    hc_keys_of(m, 0, of, given, key, &nan);
    if (m > 4)
        hc_keys_of(m, 1, of, given, key + 4, &nan);
    if (_mm256_movemask_ps(nan))
        return false;
    if (m < 8 || !hc_stay_sorted(n, key, stay))
        hc_stay_counted(n, m, key, stay);
    uint64_t all = hc_nibbles(stay), step = 0x11111111;
    if (m > 4) {
        all = _pdep_u64(all, UINT64_C(0x0f0f0f0f0f0f0f0f)) |
              _pdep_u64(hc_nibbles(stay + 4), UINT64_C(0xf0f0f0f0f0f0f0f0));
        step = UINT64_C(0x0101010101010101);
    }
    const uint64_t packed = _pext_u64(all, ((1u << m) - 1) * step);
    memcpy(marks, &packed, sizeof packed);
    return true;
}

/* The same, wide: 16 or 32. */
INLINE bool hc_mark_many(int n, int m, int wide, const float *of, bool given, uint8_t *marks) {
    __m256i key[32], above = _mm256_setzero_si256(), equal = _mm256_setzero_si256();
    __m256 nan = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int part = 0; part < wide / 4; part++)
        hc_keys_of(m, part, of, given, key + 4 * part, &nan);
    if (_mm256_movemask_ps(nan))
        return false;
    const __m256i nth = hc_nth_largest(n, wide, key);
    for (int i = m - 1; i >= 0; i--) {
        above = _mm256_sub_epi32(_mm256_add_epi32(above, above), _mm256_cmpgt_epi32(key[i], nth));
        equal = _mm256_sub_epi32(_mm256_add_epi32(equal, equal), _mm256_cmpeq_epi32(key[i], nth));
    }
    uint32_t all_above[8], all_equal[8];
    _mm256_storeu_si256((__m256i *)(void *)all_above, above);
    _mm256_storeu_si256((__m256i *)(void *)all_equal, equal);
    uint64_t word = 0;
    unsigned filled = 0;
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        const uint64_t room = (UINT64_C(1) << (n - _mm_popcnt_u32(all_above[b]))) - 1;
        word |= (uint64_t)(all_above[b] | _pdep_u32((uint32_t)room, all_equal[b])) << filled;
        memcpy(marks, &word, sizeof word);
        filled += (unsigned)m;
        marks += filled / 8;
        word >>= filled & ~7u;
        filled %= 8;
    }
    return true;
}

#endif
