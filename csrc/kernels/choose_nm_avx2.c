/* Choosing N of M: 2:4 for two quads at a time, the other patterns for 8 blocks; kernels/choose_nm.h. */
#include "kernels/choose_nm.h"
#include "kernels/kernel.h"

hc_choose_nm_fn hc_choose_nm_avx2;

/* Lanes where `other` beats a; lower: 1 where other is of a lower place. */
static inline __m256i beats(__m256i other, __m256i a, __m256i lower) {
    return _mm256_cmpgt_epi32(other, _mm256_sub_epi32(a, lower));
}

static inline unsigned by(__m256i other, __m256i a, __m256i lower) {
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(beats(other, a, lower)));
}

/* Floats in an order of integers, both zeros alike. */
static inline __m256i ordered(__m256 score) {
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(score, _mm256_setzero_ps()));
    return _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
}

static inline __m256 magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

static inline __m256i keys(bool given, __m256 score) {
    return given ? ordered(score) : _mm256_castps_si256(magnitude(score));
}

static inline bool has_nan(__m256 x, __m256 y) { return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_UNORD_Q)) != 0; }

/* Quads. */

/* Bytes of the kept two of a quad, by its 4 bits. */
#define TWO(a, b) {4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3}
static const _Alignas(16) uint8_t KEPT[16][16] = {
    [3] = TWO(0, 1), [5] = TWO(0, 2), [6] = TWO(1, 2), [9] = TWO(0, 3), [10] = TWO(1, 3), [12] = TWO(2, 3),
};

static inline unsigned keep_of(__m256i a) {
    const __m256i lower_1 = _mm256_setr_epi32(0, 0, 0, 1, 0, 0, 0, 1);
    const __m256i lower_2 = _mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1);
    const __m256i lower_3 = _mm256_setr_epi32(0, 1, 1, 1, 0, 1, 1, 1);
    return ~hc_beaten(by(_mm256_shuffle_epi32(a, 0x39), a, lower_1), by(_mm256_shuffle_epi32(a, 0x4e), a, lower_2),
                      by(_mm256_shuffle_epi32(a, 0x93), a, lower_3));
}

static inline void store_two(float *values, __m128i quad, unsigned keep) {
    _mm_storel_epi64((__m128i *)(void *)values,
                     _mm_shuffle_epi8(quad, _mm_load_si128((const __m128i *)(const void *)KEPT[keep])));
}

static inline __m128i load_quad(const float *x) { return _mm_loadu_si128((const __m128i *)(const void *)x); }

static inline __attribute__((always_inline)) int64_t quads(int64_t blocks, const float *x, const float *scores,
                                                           float *values, uint8_t *metadata) {
    const float *of = scores ? scores : x;
    for (int64_t quad = 0; quad < blocks; quad += 2, values += 4, metadata++) {
        const bool both = quad + 2 <= blocks;
        const int64_t next = (both ? quad + 1 : quad) * 4;
        const __m256 score = _mm256_castsi256_ps(_mm256_set_m128i(load_quad(of + next), load_quad(of + quad * 4)));
        if (has_nan(score, score))
            return quad * 4 + hc_first_nan(of + quad * 4);
        const unsigned keep = keep_of(keys(scores != NULL, score));
        store_two(values, load_quad(x + quad * 4), keep & 15);
        *metadata = HC_QUAD_CODE[keep & 15];
        if (both) {
            store_two(values + 2, load_quad(x + next), keep >> 4 & 15);
            *metadata |= (uint8_t)(HC_QUAD_CODE[keep >> 4 & 15] << 4);
        }
    }
    return HC_DONE;
}

/* Eight blocks of eight. */

static inline __attribute__((always_inline)) bool some_of_8(int n, int m, const float *x, const float *scores,
                                                            float *values, uint8_t *metadata) {
    (void)m;
    const float *of = scores ? scores : x;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    uint64_t beaten[4] = {0};
    bool nan = false;
#pragma GCC unroll 8
    for (int b = 0; b < 8; b += 2)
        nan |= has_nan(_mm256_loadu_ps(of + 8 * b), _mm256_loadu_ps(of + 8 * b + 8));
    if (nan)
        return false;
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        const __m256i other = _mm256_and_si256(_mm256_add_epi32(lane, _mm256_set1_epi32(r + 1)), _mm256_set1_epi32(7));
        const __m256i lower = _mm256_srli_epi32(_mm256_sub_epi32(other, lane), 31);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i lanes[4];
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++) {
                const __m256i a = keys(scores != NULL, _mm256_loadu_ps(of + half * 32 + b * 8));
                lanes[b] = beats(_mm256_permutevar8x32_epi32(a, other), a, lower);
            }
            /* a byte a lane: the low halves of four blocks, then the high ones */
            const __m256i bytes =
                _mm256_packs_epi16(_mm256_packs_epi32(lanes[0], lanes[1]), _mm256_packs_epi32(lanes[2], lanes[3]));
            const __m256i in_order = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            beaten[r] |= (uint64_t)(uint32_t)_mm256_movemask_epi8(in_order) << 32 * half;
        }
    }
    const uint64_t keep = hc_stay(beaten, n);
    hc_store_octets(keep, n, metadata);
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++, values += n) {
        const uint64_t bytes = _pdep_u64(keep >> 8 * b & 255, UINT64_C(0x0101010101010101)) * 255;
        const __m128i at = _mm_cvtsi64_si128((int64_t)_pext_u64(UINT64_C(0x0706050403020100), bytes));
        const __m256 kept = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + 8 * b), _mm256_cvtepu8_epi32(at));
        if (n == 4)
            _mm_storeu_ps(values, _mm256_castps256_ps128(kept));
        else
            _mm_storel_pi((__m64 *)(void *)values, _mm256_castps256_ps128(kept));
    }
    return true;
}

/* Eight blocks in lanes. */

static inline __m256 halves(const float *low, const float *high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/* place[i], lane b: place 4 * part + i of block b. */
static inline __attribute__((always_inline)) void places(int m, int part, const float *x, __m256 *place) {
    x += 4 * part;
    const __m256 r0 = halves(x, x + 4 * m), r1 = halves(x + m, x + 5 * m);
    const __m256 r2 = halves(x + 2 * m, x + 6 * m), r3 = halves(x + 3 * m, x + 7 * m);
    const __m256 low01 = _mm256_unpacklo_ps(r0, r1), high01 = _mm256_unpackhi_ps(r0, r1);
    const __m256 low23 = _mm256_unpacklo_ps(r2, r3), high23 = _mm256_unpackhi_ps(r2, r3);
    place[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    place[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    place[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    place[3] = _mm256_shuffle_ps(high01, high23, 0xee);
}

static inline __attribute__((always_inline)) bool first_largest(int n, int m, const float *x, const float *scores,
                                                                float *values, uint8_t *metadata) {
    (void)n;
    __m256 best = _mm256_setzero_ps(), value = _mm256_setzero_ps(), position = _mm256_setzero_ps();
    __m256 nan = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int part = 0; part < m / 4; part++) {
        __m256 place[4], score[4];
        places(m, part, x, place);
        if (scores)
            places(m, part, scores, score);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m256 s = scores ? score[i] : magnitude(place[i]);
            const __m256 at = _mm256_castsi256_ps(_mm256_set1_epi32(part * 4 + i));
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(s, s, _CMP_UNORD_Q));
            if (part == 0 && i == 0) {
                best = s;
                value = place[0];
                continue;
            }
            const __m256 larger = _mm256_cmp_ps(s, best, _CMP_GT_OQ);
            best = _mm256_blendv_ps(best, s, larger);
            value = _mm256_blendv_ps(value, place[i], larger);
            position = _mm256_blendv_ps(position, at, larger);
        }
    }
    if (_mm256_movemask_ps(nan))
        return false;
    const int bits = m == 4 ? 2 : m == 8 ? 3 : 4;
    _mm256_storeu_ps(values, value);
    const __m256i at = _mm256_castps_si256(position);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(at), _mm256_extracti128_si256(at, 1));
    const uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    const uint64_t codes = hc_packed_positions(bytes, bits);
    memcpy(metadata, &codes, (size_t)bits);
    return true;
}

int64_t hc_choose_nm_avx2(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                          uint8_t *metadata) {
#define ALL(choose, n, m, bits)                                                                                        \
    (scores ? hc_choose_all(choose, 8, n, m, bits, blocks, x, scores, values, metadata)                                \
            : hc_choose_all(choose, 8, n, m, bits, blocks, x, NULL, values, metadata))
    switch (n * 100 + m) {
    case 204:
        return scores ? quads(blocks, x, scores, values, metadata) : quads(blocks, x, NULL, values, metadata);
    case 104:
        return ALL(first_largest, 1, 4, 2);
    case 108:
        return ALL(first_largest, 1, 8, 3);
    case 116:
        return ALL(first_largest, 1, 16, 4);
    case 208:
        return ALL(some_of_8, 2, 8, 3);
    case 408:
        return ALL(some_of_8, 4, 8, 3);
    default:
        return HC_DECLINED;
    }
#undef ALL
}
