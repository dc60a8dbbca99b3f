/* Nonzero codes times few vectors, 8 columns at a time; gemv_nm_floats_avx2.h. With more than one vector, the codes of
 * some words are expanded to their columns first, and then multiplied by the vectors, whose sums stay in registers.
 */
#include "kernels/sparse/gemv_nm_floats_avx2.h"

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
