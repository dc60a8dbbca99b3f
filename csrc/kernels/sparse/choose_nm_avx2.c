/* Choosing N of M, eight blocks at a time. One or two nonzeros per block are found directly in lanes, more by their
 * marks (choose_marks_avx2.h): each byte of marks moves the nonzeros of 8 columns, and their positions, together. Each
 * eight blocks also write up to 32 bytes of values and 8 bytes of metadata that belong to later blocks.
 */
#include "kernels/kernel.h"
#include "kernels/sparse/choose_marks_avx2.h"

enum { OWN_VALUES = 1088 }; /* at most, through a private buffer: 34 blocks of 1:32 */

/* The positions of the set bits, one byte each, for 8 bits. */
#define PLACE(c, i) (((c) >> (i) & 1 ? UINT64_C(i) : 0) << 8 * __builtin_popcount((c) & ((1 << (i)) - 1)))
#define PLACES(c) (PLACE(c, 1) | PLACE(c, 2) | PLACE(c, 3) | PLACE(c, 4) | PLACE(c, 5) | PLACE(c, 6) | PLACE(c, 7))
#define FOUR(c) PLACES(c), PLACES((c) + 1), PLACES((c) + 2), PLACES((c) + 3)
#define SIXTEEN(c) FOUR(c), FOUR((c) + 4), FOUR((c) + 8), FOUR((c) + 12)
#define SIXTY_FOUR(c) SIXTEEN(c), SIXTEEN((c) + 16), SIXTEEN((c) + 32), SIXTEEN((c) + 48)
static const uint64_t MARKED[256] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};
#undef PLACE
#undef PLACES
#undef FOUR
#undef SIXTEEN
#undef SIXTY_FOUR

/* Moves the marked ones of 8 values to the front. */
INLINE __m256 marked(const float *x, unsigned marks) {
    const __m128i places = _mm_loadl_epi64((const __m128i *)(const void *)(MARKED + marks));
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(x), _mm256_cvtepu8_epi32(places));
}

/* The positions, 3 bits each, of the set bits of two bytes. */
static inline uint64_t octets(uint64_t keep) {
    return _pext_u64(07654321076543210, _pdep_u64(keep & 0xffff, 01111111111111111) * 7);
}

/* The same for eight bytes with four set bits each: 12 bytes. */
INLINE void store_octets(uint64_t keep, uint8_t *metadata) {
    const uint64_t low = octets(keep) | octets(keep >> 16) << 24, high = octets(keep >> 32) | octets(keep >> 48) << 24;
    memcpy(metadata, &low, 6);
    memcpy(metadata + 6, &high, 6);
}

/* Data of a pattern that are computed once. */
typedef struct {
    int bits;
    uint64_t fields;              /* bit 0 of eight positions */
    uint64_t positions[HC_MAX_M]; /* of the columns of eight blocks, in groups of eight */
} known_pattern;

INLINE known_pattern known_of(int m) {
    const int bits = hc_position_bits(m);
    known_pattern known = {bits, hc_packed_positions(UINT64_C(0x0101010101010101), bits), {0}};
    uint8_t position[8 * HC_MAX_M];
    for (int b = 0; b < 8; b++)
        for (int i = 0; i < HC_MAX_M; i++)
            position[b * m + i] = (uint8_t)i;
    for (int i = 0; i < m; i++) {
        uint64_t bytes;
        memcpy(&bytes, position + 8 * i, sizeof bytes);
        known.positions[i] = hc_packed_positions(bytes, bits);
    }
    return known;
}

/* Writes values and positions of the marked columns of eight blocks. */
static __attribute__((noinline)) void keep_marked(const known_pattern *known, int m, const uint8_t *marks,
                                                  const float *x, float *values, uint8_t *metadata) {
    uint64_t word = 0;
    unsigned filled = 0;
    for (int i = 0; i < m; i++) {
        _mm256_storeu_ps(values, marked(x + 8 * i, marks[i]));
        values += _mm_popcnt_u32(marks[i]);
        const uint64_t lowest = _pdep_u64(marks[i], known->fields), fields = (lowest << known->bits) - lowest;
        word |= _pext_u64(known->positions[i], fields) << filled;
        memcpy(metadata, &word, sizeof word);
        filled += (unsigned)_mm_popcnt_u64(fields);
        metadata += filled / 8;
        word >>= filled & ~7u;
        filled %= 8;
    }
}

/* Updates the largest and, with two nonzeros, the second largest. If scores are equal, the earlier value stays. */
typedef struct {
    __m256 score, value, position;
} lanes;

INLINE void take(bool given, lanes *to, const lanes *from, __m256 where) {
    to->value = _mm256_blendv_ps(to->value, from->value, where);
    to->score = given ? _mm256_blendv_ps(to->score, from->score, where) : hc_magnitude(to->value);
    to->position = _mm256_blendv_ps(to->position, from->position, where);
}

/* Eight blocks with one or two nonzeros; false if a score is NaN. */
INLINE bool first_or_two(int n, int m, int bits, const float *x, const float *scores, float *values,
                         uint8_t *metadata) {
    lanes best = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()}, next = best;
    __m256 nan = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int part = 0; 4 * part < m; part++) {
        __m256 place[4], score[4];
        hc_scores_of(m, part, scores ? scores : x, score, &nan);
        if (scores)
            hc_places(m, part, x, place);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            if (4 * part + i >= m)
                break;
            const __m256 at = _mm256_castsi256_ps(_mm256_set1_epi32(4 * part + i));
            const lanes here = {scores ? score[i] : hc_magnitude(score[i]), scores ? place[i] : score[i], at};
            if (part + i == 0) {
                best = here;
                continue;
            }
            const __m256 larger = _mm256_cmp_ps(here.score, best.score, _CMP_GT_OQ);
            if (n == 2 && part == 0 && i == 1)
                next = here;
            else if (n == 2)
                take(scores != NULL, &next, &here, _mm256_cmp_ps(here.score, next.score, _CMP_GT_OQ));
            if (n == 2)
                take(scores != NULL, &next, &best, larger);
            take(scores != NULL, &best, &here, larger);
        }
    }
    if (_mm256_movemask_ps(nan))
        return false;
    __m256i codes = _mm256_castps_si256(best.position);
    if (n == 1) {
        _mm256_storeu_ps(values, best.value);
    } else {
        const __m256i second = _mm256_castps_si256(next.position);
        const __m256 transposed = _mm256_castsi256_ps(_mm256_cmpgt_epi32(codes, second));
        const __m256 low = _mm256_blendv_ps(best.value, next.value, transposed);
        const __m256 high = _mm256_blendv_ps(next.value, best.value, transposed);
        const __m256 even = _mm256_unpacklo_ps(low, high), odd = _mm256_unpackhi_ps(low, high);
        _mm256_storeu_ps(values, _mm256_permute2f128_ps(even, odd, 0x20));
        _mm256_storeu_ps(values + 8, _mm256_permute2f128_ps(even, odd, 0x31));
        codes =
            _mm256_or_si256(_mm256_min_epi32(codes, second), _mm256_slli_epi32(_mm256_max_epi32(codes, second), bits));
    }
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    const uint64_t fields = ((1u << n * bits) - 1) * UINT64_C(0x0001000100010001);
    const uint64_t first = _pext_u64((uint64_t)_mm_cvtsi128_si64(words), fields);
    const uint64_t last = _pext_u64((uint64_t)_mm_extract_epi64(words, 1), fields);
    const int half = 4 * n * bits; /* bits of four blocks: whole bytes, or half a byte more */
    const uint64_t joined = last << half % 8 | (half % 8 ? first >> (half - half % 8) : 0);
    memcpy(metadata, &first, sizeof first);
    memcpy(metadata + half / 8, &joined, sizeof joined);
    return true;
}

/* Eight blocks; false if a score is NaN. wide: number of keys that hc_mark_many sorts. */
INLINE bool eight_blocks(const known_pattern *known, int n, int m, int wide, const float *x, const float *scores,
                         float *values, uint8_t *metadata) {
    if (n <= 2)
        return first_or_two(n, m, known->bits, x, scores, values, metadata);
    uint8_t marks[HC_MAX_M + 7];
    const float *of = scores ? scores : x;
    if (!(m <= 8 ? hc_mark_few(n, m, of, scores != NULL, marks) : hc_mark_many(n, m, wide, of, scores != NULL, marks)))
        return false;
    if (n == 4 && m == 8) {
        uint64_t keep;
        memcpy(&keep, marks, sizeof keep);
        store_octets(keep, metadata);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++)
            _mm_storeu_ps(values + 4 * b, _mm256_castps256_ps128(marked(x + 8 * b, marks[b])));
        return true;
    }
    keep_marked(known, m, marks, x, values, metadata);
    return true;
}

/* All blocks; the last ones go through a private buffer. */
INLINE int64_t all_blocks(int n, int m, int wide, int64_t blocks, const float *x, const float *scores, float *values,
                          uint8_t *metadata) {
    const known_pattern known = known_of(m);
    /* bytes written beyond eight blocks belong to these blocks */
    const int bits = known.bits, behind = 63 / (n * bits) + 7 / n + 1;
    const int64_t own_from = blocks < 8 + behind ? 0 : (blocks - behind) / 8 * 8;
    const int rest = (int)(blocks - own_from);
    float some[OWN_VALUES + 3], some_scores[OWN_VALUES + 3], kept[OWN_VALUES + 8];
    uint8_t codes[OWN_VALUES * 5 / 8 + 8];
    for (int64_t b = 0; b < blocks; b += 8) {
        hc_fetch_ahead(x + b * m, 8 * m);
        const float *from = x + b * m, *by = scores ? scores + b * m : NULL;
        float *to = values + b * n;
        uint8_t *code = metadata + b * n * bits / 8;
        if (b >= own_from) {
            if (b == own_from) {
                const size_t there = (size_t)(rest * m), behind_it = (size_t)((8 - rest % 8) % 8 * m + 3);
                memcpy(some, from, there * sizeof *some);
                memset(some + there, 0, behind_it * sizeof *some);
                if (scores) {
                    memcpy(some_scores, by, there * sizeof *some);
                    memset(some_scores + there, 0, behind_it * sizeof *some);
                }
            }
            from = some + (b - own_from) * m;
            by = scores ? some_scores + (b - own_from) * m : NULL;
            to = kept + (b - own_from) * n;
            code = codes + (b - own_from) * n * bits / 8;
        }
        if (!eight_blocks(&known, n, m, wide, from, by, to, code))
            return b * m + hc_first_nan((scores ? scores : x) + b * m);
    }
    const int code_bits = rest * n * bits;
    if (code_bits % 8)
        codes[code_bits / 8] &= (uint8_t)((1 << code_bits % 8) - 1);
    if (rest > 0) {
        memcpy(values + own_from * n, kept, (size_t)(rest * n) * sizeof *kept);
        memcpy(metadata + own_from * n * bits / 8, codes, (size_t)((code_bits + 7) / 8));
    }
    return HC_DONE;
}

int64_t hc_choose_nm_avx2(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                          uint8_t *metadata) {
#define ALL(n, m, wide)                                                                                                \
    (scores ? all_blocks(n, m, wide, blocks, x, scores, values, metadata)                                              \
            : all_blocks(n, m, wide, blocks, x, NULL, values, metadata))
#define CASE(n, m)                                                                                                     \
    case n * 100 + m:                                                                                                  \
        return ALL(n, m, m)
    if (m == 1)
        return HC_DECLINED;
    switch (n * 100 + m) {
        CASE(1, 2);
        CASE(1, 4);
        CASE(2, 4);
        CASE(1, 8);
        CASE(2, 8);
        CASE(4, 8);
        CASE(1, 16);
    default:
        break;
    }
    if (n == 1)
        return ALL(1, m, m);
    if (n == 2)
        return ALL(2, m, m);
    switch (m) {
    case 3:
        return ALL(n, 3, 3);
    case 4:
        return ALL(n, 4, 4);
    case 5:
        return ALL(n, 5, 5);
    case 6:
        return ALL(n, 6, 6);
    case 7:
        return ALL(n, 7, 7);
    case 8:
        return ALL(n, 8, 8);
    case 16:
        return ALL(n, 16, 16);
    case 32:
        return ALL(n, 32, 32);
    default:
        return m < 16 ? ALL(n, m, 16) : ALL(n, m, 32);
    }
#undef CASE
#undef ALL
}
