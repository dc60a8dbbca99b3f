/* gemv_24_folded: 64 bytes of codes are 64 quads, 256 columns. Low nibbles are the first codes of the quads, high
 * nibbles the second, so a 32-bit lane holds the dot product of a word, as in gemv_folded. x is ordered by the column's
 * index in its quad, in four registers, which the bits of the positions blend. x is biased by 128, so 128 * (sum of the
 * codes) is subtracted.
 */
#include "kernels/sparse/gemv_24_avx512.h"

#include <string.h>

INLINE void add_codes(__m512i codes, __m256i metadata, uint32_t scales, __m512i shifts, const uint8_t *x, int64_t ldx,
                      int n_vectors, __m512i flip, __m512i zero, __m512i sum[]) {
    const __m512i nibbles = _mm512_set1_epi8(15);
    const __m512i wide = _mm512_cvtepu8_epi16(metadata);
    const __m512i quads = _mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)); /* one byte per quad, in its low nibble */
    const __mmask64 first0 = _mm512_test_epi8_mask(quads, _mm512_set1_epi8(1));
    const __mmask64 first1 = _mm512_test_epi8_mask(quads, _mm512_set1_epi8(2));
    const __mmask64 second0 = _mm512_test_epi8_mask(quads, _mm512_set1_epi8(4));
    const __mmask64 second1 = _mm512_test_epi8_mask(quads, _mm512_set1_epi8(8));
    const __m512i low = _mm512_sub_epi8(_mm512_ternarylogic_epi32(codes, nibbles, flip, 0x6a), zero);
    const __m512i high =
        _mm512_sub_epi8(_mm512_ternarylogic_epi32(_mm512_srli_epi16(codes, 4), nibbles, flip, 0x6a), zero);
    const __m512i none = _mm512_setzero_si512();
    const __m512i offset = _mm512_dpbusd_epi32(none, _mm512_set1_epi8(-128), _mm512_add_epi8(low, high));
    const __m512i scale =
        _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32((int)scales), shifts), _mm512_set1_epi32(15));
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++) {
        const uint8_t *from = x + v * ldx;
        const __m512i x0 = _mm512_loadu_si512(from), x1 = _mm512_loadu_si512(from + 64);
        const __m512i x2 = _mm512_loadu_si512(from + 128), x3 = _mm512_loadu_si512(from + 192);
        const __m512i a = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(x0, first0, x1), first1, x2);
        const __m512i b = _mm512_mask_mov_epi8(x2, second0, _mm512_mask_mov_epi8(x1, second1, x3));
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(none, a, low), b, high);
        sum[v] = _mm512_dpwssd_epi32(sum[v], _mm512_sub_epi32(dot, offset), scale);
    }
}

INLINE uint32_t load_scales(const uint8_t *from, int64_t bytes) {
    uint32_t word = 0;
    uint16_t half;
    if (bytes == 4) {
        memcpy(&word, from, 4);
    } else if (bytes == 2) {
        memcpy(&half, from, 2);
        word = half;
    } else {
        memcpy(&word, from, (size_t)bytes);
    }
    return word;
}

INLINE void gemv_24_folded(const hc_gemv_24_args *args, int words, int n_vectors) {
    const int scale_bytes = 8 / words; /* of 64 bytes of codes: 16 / words nibbles */
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i shifts = _mm512_slli_epi32(_mm512_srli_epi32(lanes, words == 2 ? 1 : words == 4 ? 2 : 3), 2);
    const __m512i flip = _mm512_set1_epi8((char)args->flip), zero = _mm512_set1_epi8((char)args->zero);
    const uint8_t *codes = args->codes, *metadata = args->metadata, *scales = args->scales;
    const uint8_t *x = (const uint8_t *)args->x;
    __m512i sum[2][4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        sum[i / 4][i % 4] = _mm512_setzero_si512();
    int64_t left = args->code_bytes, metadata_left = args->metadata_bytes;
    for (; left >= 128 && metadata_left >= 64; left -= 128, metadata_left -= 64) {
        _mm_prefetch(codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch(codes + AHEAD + 64, _MM_HINT_T1);
        _mm_prefetch(metadata + AHEAD / 2, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            add_codes(_mm512_loadu_si512(codes + 64 * i), _mm256_loadu_si256((const __m256i *)(metadata + 32 * i)),
                      load_scales(scales + i * scale_bytes, scale_bytes), shifts, x + 256 * i, args->ldx, n_vectors,
                      flip, zero, sum[i]);
        codes += 128;
        metadata += 64;
        scales += 2 * scale_bytes;
        x += 512;
    }
    for (; left > 0; left -= 64, metadata_left -= 32, codes += 64, metadata += 32, scales += scale_bytes, x += 256) {
        const __m256i some = _mm512_castsi512_si256(load_bytes(metadata, hc_min(metadata_left, 32)));
        const int64_t bytes = hc_min((left + 8 * words - 1) / (8 * words), scale_bytes);
        add_codes(load_bytes(codes, left), some, load_scales(scales, bytes), shifts, x, args->ldx, n_vectors, flip,
                  zero, sum[0]);
    }
    for (int v = 0; v < n_vectors; v++)
        args->sums[v] = sum_lanes(_mm512_add_epi32(sum[0][v], sum[1][v]));
}

INLINE void choose(const hc_gemv_24_args *args, int n_vectors) {
    if (args->words == 2)
        gemv_24_folded(args, 2, n_vectors);
    else if (args->words == 4)
        gemv_24_folded(args, 4, n_vectors);
    else
        gemv_24_folded(args, 8, n_vectors);
}

void hc_gemv_24_folded_avx512vnni(const hc_gemv_24_args *args) {
    if (args->n_vectors == 1)
        choose(args, 1);
    else if (args->n_vectors == 2)
        choose(args, 2);
    else
        choose(args, 4);
}
