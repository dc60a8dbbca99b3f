/* Nonzero codes of 2:4 times few vectors. The metadata become bits of the columns that have a code, some words ahead, since
 * masks of 16 columns are read back from memory. An expansion places the codes, a masked FMA leaves the other sums
 * unchanged.
 */
#include "kernels/kernel.h"
#include "kernels/sparse/place_avx512.h"

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */
enum { PAIRS = 8 };    /* of words whose bits are found at once */

/* Bits of the columns of a quad with metadata q. */
#define BITS(q) (1 << ((q) & 3) | 1 << ((q) >> 2))
#define FOUR(q) BITS(q), BITS((q) + 1), BITS((q) + 2), BITS((q) + 3)

/* Bits of 128 columns. */
INLINE __m128i bits_of(__m128i metadata) {
    const __m128i nibble = _mm_set1_epi8(15), table = _mm_setr_epi8(FOUR(0), FOUR(4), FOUR(8), FOUR(12));
    const __m128i low = _mm_shuffle_epi8(table, _mm_and_si128(metadata, nibble));
    const __m128i high = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(metadata, 4), nibble));
    return _mm_or_si128(low, _mm_slli_epi16(high, 4));
}

/* 64 columns. */
INLINE void add_word(const uint64_t *bits, const float *codes, const float *x, int64_t ldx, int n_vectors,
                     __m512 sum[]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __mmask16 kept = hc_load_mask16((const char *)bits + 2 * i);
        const __m512i eight = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(codes + 8 * i)));
        const __m512 c = _mm512_castsi512_ps(hc_expand_x32(kept, eight));
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            sum[4 * v + i] = _mm512_mask3_fmadd_ps(_mm512_loadu_ps(x + v * ldx + 16 * i), c, sum[4 * v + i], kept);
    }
}

INLINE void walk(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx, int n_vectors,
                 float *sums) {
    __m512 sum[4 * 4];
    _Alignas(16) uint64_t bits[2 * PAIRS];
#pragma GCC unroll 16
    for (int i = 0; i < 4 * n_vectors; i++)
        sum[i] = _mm512_loadu_ps(sums + 16 * i);
    for (int64_t some; words > 0; words -= some) {
        some = words < 2 * PAIRS ? words : 2 * PAIRS;
        for (int64_t word = 0; word < some; word += 2) {
            const __m128i *from = (const __m128i *)(metadata + 8 * word);
            _mm_store_si128((__m128i *)(bits + word),
                            bits_of(some - word > 1 ? _mm_loadu_si128(from) : _mm_loadl_epi64(from)));
        }
        metadata += 8 * some;
        for (int64_t word = 0; word < some; word++, codes += 32, x += 64) {
            _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
            _mm_prefetch((const char *)codes + AHEAD + 64, _MM_HINT_T1);
            add_word(bits + word, codes, x, ldx, n_vectors, sum);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4 * n_vectors; i++)
        _mm512_storeu_ps(sums + 16 * i, sum[i]);
}

void hc_gemv_24_avx512(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx,
                       int n_vectors, float *sums) {
    if (n_vectors == 1)
        walk(words, metadata, codes, x, ldx, 1, sums);
    else if (n_vectors == 2)
        walk(words, metadata, codes, x, ldx, 2, sums);
    else
        walk(words, metadata, codes, x, ldx, 4, sums);
}
