/* Nonzero codes times few vectors: vexpandps expands the codes of 16 columns, a masked FMA leaves the other sums
 * unchanged. */
#include "kernels/kernel.h"
#include "kernels/sparse/place_avx512.h"

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* The next codes in the lanes of a mask; `bounded` reads only these. They are in a register first: vexpandps from memory is
 * slow on Zen 4. */
INLINE __m512 spread(__mmask16 kept, const float *codes, unsigned count, bool bounded) {
    __m512i next =
        bounded ? _mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), codes) : _mm512_loadu_si512(codes);
    __asm__("" : "+v"(next));
    return _mm512_castsi512_ps(hc_expand_x32(kept, next));
}

/* 64 columns; `bounded` reads only the codes of these columns and their x. */
INLINE const float *add_word_x16(const uint64_t *mask, const float *codes, const float *const x[], int64_t at,
                                 int n_vectors, bool bounded, __m512 sum[]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __mmask16 kept = hc_load_mask16((const char *)mask + 2 * i);
        const unsigned count = (unsigned)_mm_popcnt_u32((unsigned)(*mask >> 16 * i) & 0xffff);
        const __m512 c = spread(kept, codes, count, bounded);
        codes += count;
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) {
            const float *from = x[v] + at + 16 * i;
            const __m512 values = bounded ? _mm512_maskz_loadu_ps(kept, from) : _mm512_loadu_ps(from);
            sum[4 * v + i] = _mm512_mask3_fmadd_ps(values, c, sum[4 * v + i], kept);
        }
    }
    return codes;
}

INLINE const float *walk_x16(int64_t words, const uint64_t *masks, const float *codes, const float *end, const float *x,
                             int64_t ldx, int n_vectors, float *sums) {
    const float *const from[] = {x, x + (n_vectors > 1) * ldx, x + (n_vectors > 2) * 2 * ldx,
                                 x + (n_vectors > 2) * 3 * ldx};
    __m512 sum[4 * HC_GEMV_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < 4 * n_vectors; i++)
        sum[i] = _mm512_loadu_ps(sums + 16 * i);
    int64_t word = 0;
    const int64_t whole = words - (n_vectors == 1); /* x ends in the last word */
    for (; word < whole && end - codes >= _mm_popcnt_u64(masks[word]) + 16; word++) {
        _mm_prefetch((const char *)codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + AHEAD + 64, _MM_HINT_T1);
        codes = add_word_x16(masks + word, codes, from, word * 64, n_vectors, false, sum);
    }
    for (; word < words; word++)
        codes = add_word_x16(masks + word, codes, from, word * 64, n_vectors, true, sum);
#pragma GCC unroll 16
    for (int i = 0; i < 4 * n_vectors; i++)
        _mm512_storeu_ps(sums + 16 * i, sum[i]);
    return codes;
}

const float *hc_gemv_nm_avx512(int64_t words, const uint64_t *masks, const float *codes, const float *end,
                               const float *x, int64_t ldx, int n_vectors, float *sums) {
    return n_vectors == 1   ? walk_x16(words, masks, codes, end, x, ldx, 1, sums)
           : n_vectors == 2 ? walk_x16(words, masks, codes, end, x, ldx, 2, sums)
           : n_vectors == 4 ? walk_x16(words, masks, codes, end, x, ldx, 4, sums)
                            : (walk_x16(words, masks, codes, end, x, ldx, 4, sums),
                               walk_x16(words, masks, codes, end, x + 4 * ldx, ldx, 4, sums + 4 * 64));
}
