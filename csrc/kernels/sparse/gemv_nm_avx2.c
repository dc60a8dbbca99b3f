/* Nonzero codes times few vectors. The bits of 8 columns are the index into a table with the position of each column's
 * code among the next 8. A blend leaves the sums of the other columns unchanged. With more than one vector, the codes of
 * some words are expanded to their columns first, and then multiplied by the vectors, whose sums stay in registers.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* The rank of column j among the bits b of 8 columns, or a negative number if its bit is not set. */
#define BELOW(b, j)                                                                                                    \
    (((b) & 1 & -(0 < (j))) + ((b) >> 1 & 1 & -(1 < (j))) + ((b) >> 2 & 1 & -(2 < (j))) +                              \
     ((b) >> 3 & 1 & -(3 < (j))) + ((b) >> 4 & 1 & -(4 < (j))) + ((b) >> 5 & 1 & -(5 < (j))) +                         \
     ((b) >> 6 & 1 & -(6 < (j))))
#define RANK(b, j) ((b) >> (j) & 1 ? BELOW(b, j) : -128)
#define ROW(b) {RANK(b, 0), RANK(b, 1), RANK(b, 2), RANK(b, 3), RANK(b, 4), RANK(b, 5), RANK(b, 6), RANK(b, 7)}
#define FOUR(b) ROW(b), ROW((b) + 1), ROW((b) + 2), ROW((b) + 3)
#define SIXTEEN(b) FOUR(b), FOUR((b) + 4), FOUR((b) + 8), FOUR((b) + 12)
#define SIXTY_FOUR(b) SIXTEEN(b), SIXTEEN((b) + 16), SIXTEEN((b) + 32), SIXTEEN((b) + 48)
static const int8_t RANKS[256][8] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};

INLINE __m256 add_kept(__m256 sum, __m256i rank, __m256 c, __m256 x) {
    return _mm256_blendv_ps(_mm256_fmadd_ps(x, c, sum), sum, _mm256_castsi256_ps(rank));
}

/* Expands the next codes to 8 columns, and returns the ranks; `bounded` reads only nonzeros. */
INLINE __m256 place_codes(unsigned bits, const float *codes, int count, bool bounded, __m256i *rank) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    *rank = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)RANKS[bits]));
    const __m256 next = bounded ? _mm256_maskload_ps(codes, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes))
                                : _mm256_loadu_ps(codes);
    return _mm256_permutevar8x32_ps(next, *rank); /* reads three bits of a rank */
}

INLINE __m256 x_of(const float *x, __m256i rank, bool bounded) {
    return bounded ? _mm256_maskload_ps(x, _mm256_cmpgt_epi32(rank, _mm256_set1_epi32(-1))) : _mm256_loadu_ps(x);
}

INLINE void prefetch_codes(const float *codes) {
    _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
    _mm_prefetch((const char *)codes + AHEAD + 64, _MM_HINT_T1);
}

/* 64 columns of one vector. */
INLINE const float *add_word(uint64_t mask, const float *codes, const float *x, bool bounded, __m256 sum[8]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const unsigned bits = (unsigned)(mask >> 8 * i & 0xff);
        const int count = (int)_mm_popcnt_u32(bits);
        __m256i rank;
        const __m256 c = place_codes(bits, codes, count, bounded, &rank);
        sum[i] = add_kept(sum[i], rank, c, x_of(x + i * 8, rank, bounded));
        codes += count;
    }
    return codes;
}

INLINE const float *add_vector(int64_t words, const uint64_t *masks, const float *codes, const float *end,
                               const float *x, float *sums) {
    __m256 sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = _mm256_loadu_ps(sums + i * 8);
    int64_t word = 0;
    for (; word + 1 < words && end - codes >= _mm_popcnt_u64(masks[word]) + 8; word++, x += 64) {
        prefetch_codes(codes);
        codes = add_word(masks[word], codes, x, false, sum);
    }
    for (; word < words; word++, x += 64)
        codes = add_word(masks[word], codes, x, true, sum);
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps(sums + i * 8, sum[i]);
    return codes;
}

enum { SOME = 8 }; /* words: 4 KiB of codes and ranks */

typedef struct {
    __m256 codes[SOME * 8];
    __m256i ranks[SOME * 8];
} hc_placed;

INLINE const float *place_words(int64_t words, const uint64_t *masks, const float *codes, bool bounded,
                                hc_placed *out) {
    for (int64_t word = 0; word < words; word++) {
        prefetch_codes(codes);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            out->codes[word * 8 + i] = place_codes(bits, codes, count, bounded, &out->ranks[word * 8 + i]);
            codes += count;
        }
    }
    return codes;
}

/* Columns 8 * first and on of each word: 16 for four vectors, or 32 for two. */
INLINE void add_part(int64_t words, const hc_placed *placed, int first, int n, int n_vectors, const float *x,
                     int64_t ldx, float *sums) {
    __m256 sum[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        sum[j] = _mm256_loadu_ps(sums + j / n * 64 + j % n * 8);
    for (int64_t word = 0; word < words; word++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256 c = placed->codes[word * 8 + first + i];
            const __m256i rank = placed->ranks[word * 8 + first + i];
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                sum[v * n + i] =
                    add_kept(sum[v * n + i], rank, c, _mm256_loadu_ps(x + v * ldx + (word * 8 + first + i) * 8));
        }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        _mm256_storeu_ps(sums + j / n * 64 + j % n * 8, sum[j]);
}

INLINE const float *add_words(int64_t words, const uint64_t *masks, const float *codes, const float *x, int64_t ldx,
                              int n_vectors, bool bounded, float *sums) {
    hc_placed placed;
    codes = place_words(words, masks, codes, bounded, &placed);
    for (int first = 0; first < 8 && n_vectors == 2; first += 4)
        add_part(words, &placed, first, 4, 2, x, ldx, sums + first * 8);
    for (int v = 0; v + 4 <= n_vectors; v += 4)
        for (int first = 0; first < 8; first += 2)
            add_part(words, &placed, first, 2, 4, x + v * ldx, ldx, sums + v * 64 + first * 8);
    return codes;
}

const float *hc_gemv_nm_avx2(int64_t words, const uint64_t *masks, const float *codes, const float *end, const float *x,
                             int64_t ldx, int n_vectors, float *sums) {
    if (n_vectors == 1)
        return add_vector(words, masks, codes, end, x, sums);
    for (int64_t word = 0, some; word < words; word += some) {
        some = hc_min(words - word, SOME);
        if (end - codes < some * 64 + 8)
            some = 1;
        const bool bounded = end - codes < _mm_popcnt_u64(masks[word]) + 8;
        codes = bounded ? add_words(1, masks + word, codes, x + word * 64, ldx, n_vectors, true, sums)
                        : add_words(some, masks + word, codes, x + word * 64, ldx, n_vectors, false, sums);
    }
    return codes;
}
