/* Kept codes times few vectors: the bits of 8 columns name a row of a table, which says where each column's code is
 * among the next 8; a blend keeps the sums of the other columns as they are.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

hc_few_kept_fn hc_few_kept_avx2;

/* The rank of column j among the bits b of 8 columns, or a negative number where its bit is not set. */
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

/* 64 columns; `bounded` reads nothing but what is kept. */
INLINE const float *add_word(uint64_t mask, const float *codes, const float *x, int64_t ldx, int n_vectors,
                             bool bounded, __m256 sum[8], float *sums) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const unsigned bits = (unsigned)(mask >> 8 * i & 0xff);
        const int count = (int)_mm_popcnt_u32(bits);
        const __m256i rank = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)RANKS[bits]));
        const __m256i kept = _mm256_cmpgt_epi32(rank, _mm256_set1_epi32(-1));
        const __m256 next = bounded ? _mm256_maskload_ps(codes, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes))
                                    : _mm256_loadu_ps(codes);
        const __m256 c = _mm256_permutevar8x32_ps(next, rank); /* reads three bits of a rank */
        for (int v = 0; v < n_vectors; v++) {
            const float *from = x + v * ldx + i * 8;
            const __m256 xs = bounded ? _mm256_maskload_ps(from, kept) : _mm256_loadu_ps(from);
            float *to = sums + v * 64 + i * 8;
            if (n_vectors == 1)
                sum[i] = add_kept(sum[i], rank, c, xs);
            else
                _mm256_storeu_ps(to, add_kept(_mm256_loadu_ps(to), rank, c, xs));
        }
        codes += count;
    }
    return codes;
}

INLINE void walk(int64_t words, const uint64_t *masks, const float *codes, const float *end, const float *x,
                 int64_t ldx, int n_vectors, float *sums) {
    __m256 sum[8];
    for (int i = 0; i < 8 && n_vectors == 1; i++)
        sum[i] = _mm256_loadu_ps(sums + i * 8);
    int64_t word = 0;
    for (; word + 1 < words && end - codes >= _mm_popcnt_u64(masks[word]) + 8; word++, x += 64) {
        _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + AHEAD + 64, _MM_HINT_T1);
        codes = add_word(masks[word], codes, x, ldx, n_vectors, false, sum, sums);
    }
    for (; word < words; word++, x += 64)
        codes = add_word(masks[word], codes, x, ldx, n_vectors, true, sum, sums);
    for (int i = 0; i < 8 && n_vectors == 1; i++)
        _mm256_storeu_ps(sums + i * 8, sum[i]);
}

void hc_few_kept_avx2(int64_t words, const uint64_t *masks, const float *codes, const float *end, const float *x,
                      int64_t ldx, int n_vectors, float *sums) {
    if (n_vectors == 1)
        walk(words, masks, codes, end, x, ldx, 1, sums);
    else if (n_vectors == 2)
        walk(words, masks, codes, end, x, ldx, 2, sums);
    else
        walk(words, masks, codes, end, x, ldx, 4, sums);
}
