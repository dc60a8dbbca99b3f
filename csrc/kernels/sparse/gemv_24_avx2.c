/* Nonzero codes of 2:4 times few vectors. A byte of metadata, two quads, is the index into a table with the position,
 * among the next 4 codes, of the code of each of the 8 columns. A blend leaves the sums of the other columns unchanged.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* The rank of column j of a quad with metadata q, whose codes have ranks r and r + 1; negative: not a nonzero. */
#define RANK(q, j, r) (((q) & 3) == (j) ? (r) : ((q) >> 2 & 3) == (j) ? (r) + 1 : -128)
#define QUAD(q, r) RANK(q, 0, r), RANK(q, 1, r), RANK(q, 2, r), RANK(q, 3, r)
#define ROW(b) {QUAD((b) & 15, 0), QUAD((b) >> 4, 2)}
#define FOUR(b) ROW(b), ROW((b) + 1), ROW((b) + 2), ROW((b) + 3)
#define SIXTEEN(b) FOUR(b), FOUR((b) + 4), FOUR((b) + 8), FOUR((b) + 12)
#define SIXTY_FOUR(b) SIXTEEN(b), SIXTEEN((b) + 16), SIXTEEN((b) + 32), SIXTEEN((b) + 48)
static const int8_t RANKS[256][8] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};

INLINE void walk(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx, int n_vectors,
                 float *sums) {
    __m256 sum[8];
    for (int i = 0; i < 8 && n_vectors == 1; i++)
        sum[i] = _mm256_loadu_ps(sums + i * 8);
    for (int64_t word = 0; word < words; word++, metadata += 8, codes += 32, x += 64) {
        _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + AHEAD + 64, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m256i rank = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)RANKS[metadata[i]]));
            const __m256 four = _mm256_broadcast_ps((const __m128 *)(codes + 4 * i));
            const __m256 c = _mm256_permutevar_ps(four, rank); /* reads two bits of a rank */
            for (int v = 0; v < n_vectors; v++) {
                const __m256 xs = _mm256_loadu_ps(x + v * ldx + i * 8);
                float *to = sums + v * 64 + i * 8;
                const __m256 old = n_vectors == 1 ? sum[i] : _mm256_loadu_ps(to);
                const __m256 new = _mm256_blendv_ps(_mm256_fmadd_ps(xs, c, old), old, _mm256_castsi256_ps(rank));
                if (n_vectors == 1)
                    sum[i] = new;
                else
                    _mm256_storeu_ps(to, new);
            }
        }
    }
    for (int i = 0; i < 8 && n_vectors == 1; i++)
        _mm256_storeu_ps(sums + i * 8, sum[i]);
}

void hc_gemv_24_avx2(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx,
                     int n_vectors, float *sums) {
    if (n_vectors == 1)
        walk(words, metadata, codes, x, ldx, 1, sums);
    else if (n_vectors == 2)
        walk(words, metadata, codes, x, ldx, 2, sums);
    else
        walk(words, metadata, codes, x, ldx, 4, sums);
}
