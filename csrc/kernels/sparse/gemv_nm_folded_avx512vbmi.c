/* gemv_nm_folded: 32 bytes are 64 codes, whose x gemv_nm_avx512.h gathers. A 32-bit lane holds the dot product of 4
 * codes, which vpdpwssd multiplies by the group's scale as in gemv_folded. x is biased by 128: 128 * (sum of the
 * codes), with the same scales, is subtracted at the end.
 */
#include "kernels/sparse/gemv_nm_avx512.h"

#include <string.h>

/* c, indexed by the lower 4 of 6 bits. */
INLINE __m512i values_of(int flip, int zero) {
    const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i values = _mm_sub_epi8(_mm_xor_si128(codes, _mm_set1_epi8((char)flip)), _mm_set1_epi8((char)zero));
    return _mm512_broadcast_i32x4(values);
}

/* At least 16 bits of scales if there are that many; a call of memcpy would save all registers. */
INLINE uint32_t last_scales(const uint8_t *scales, int64_t bytes) {
    uint16_t half;
    if (bytes < 2)
        return *scales;
    memcpy(&half, scales, sizeof half);
    return half;
}

typedef struct {
    hc_indices to;
    __m512i values, shifts; /* codes to numbers, scales to their lanes */
    __m512i sum[2][4], offset[2];
} hc_state;

/* 64 codes of one row or two. They (and 4 bytes of scales) are complete or not. */
VNNI INLINE void add_codes(const hc_gemv_nm_integers_args *args, const uint8_t *codes, const uint8_t *metadata,
                           const uint8_t *scales, int64_t left, int64_t metadata_left, int64_t scales_left, bool whole,
                           const uint8_t *x, int kr, int n_vectors, int rows, hc_state *s) {
    const __m512i none = _mm512_setzero_si512(), nibbles = _mm512_set1_epi64(0x1c1814100c080400);
    const int64_t ldx = args->ldx;
    __m512i index[2], c[2], scale[2];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) {
        _mm_prefetch(codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch(metadata + AHEAD, _MM_HINT_T1);
        const __m256i some = whole ? _mm256_loadu_si256((const __m256i *)codes)
                                   : _mm512_castsi512_si256(load_bytes(codes, hc_min(left, 32)));
        const __m512i spread = _mm512_multishift_epi64_epi8(nibbles, _mm512_cvtepu32_epi64(some));
        c[r] = _mm512_permutexvar_epi8(spread, s->values);
        index[r] = index_64(&s->to, whole ? _mm512_loadu_si512(metadata) : load_bytes(metadata, metadata_left));
        const __m512i stored = whole ? _mm512_broadcastd_epi32(_mm_loadu_si32(scales))
                                     : _mm512_set1_epi32((int)last_scales(scales, scales_left));
        scale[r] = _mm512_and_si512(_mm512_srlv_epi32(stored, s->shifts), _mm512_set1_epi32(15));
        s->offset[r] = add_scaled(s->offset[r], dot(none, _mm512_set1_epi8(-128), c[r]), scale[r]);
        codes += args->codes_stride;
        metadata += args->metadata_stride;
        scales += args->scales_stride;
    }
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++) {
        __m512i kept[2] = {index[0], index[rows - 1]};
        gather(x + v * ldx, kr, rows, kept);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            s->sum[r][v] = add_scaled(s->sum[r][v], dot(none, kept[r], c[r]), scale[r]);
    }
}

VNNI INLINE void gemv_nm_folded(const hc_gemv_nm_integers_args *args, int64_t row, int kr, int n_vectors, int rows) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int words = args->words, log_lanes = words == 2 ? 2 : words == 4 ? 3 : 4;    /* that share a scale */
    const int64_t skip = 8 * args->position_bits, scale_bits = words ? 32 / words : 0; /* of 64 codes */
    const __m512i other = _mm512_set1_epi32(words == 8 ? 4 : 0);                       /* half of a byte, next time */
    const uint8_t *codes = args->codes + row * args->codes_stride, *x = args->x;
    const uint8_t *metadata = args->metadata + row * args->metadata_stride;
    const uint8_t *scales = args->scales + row * args->scales_stride;
    int64_t left = args->code_bytes, metadata_left = args->metadata_bytes, scale_bits_left = 8 * args->scale_bytes;
    hc_state s = {.to = indices_of(args, kr), .values = values_of(args->flip, args->zero)};
    s.shifts = _mm512_slli_epi32(_mm512_srl_epi32(lanes, _mm_cvtsi32_si128(log_lanes)), 2);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * 4; i++)
        s.sum[i / 4][i % 4] = s.offset[i / 4] = _mm512_setzero_si512();
    for (int64_t bit = 0; left > 0; bit += scale_bits) {
        if (left >= 32 && metadata_left >= 64 && scale_bits_left >= 40)
            add_codes(args, codes, metadata, scales + (bit >> 3), 32, 64, 4, true, x, kr, n_vectors, rows, &s);
        else
            add_codes(args, codes, metadata, scales + (bit >> 3), left, metadata_left, (scale_bits_left + 7) >> 3,
                      false, x, kr, n_vectors, rows, &s);
        s.shifts = _mm512_xor_si512(s.shifts, other);
        left -= 32;
        metadata_left -= skip;
        scale_bits_left -= scale_bits;
        codes += 32;
        metadata += skip;
        x += 16 * kr;
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < n_vectors; v++)
            args->sums[(row + r) * args->ld_sums + v] = sum_lanes(_mm512_sub_epi32(s.sum[r][v], s.offset[r]));
}

VNNI void hc_gemv_nm_folded_avx512vbmi(const hc_gemv_nm_integers_args *args) { CHOOSE(gemv_nm_folded, args); }
