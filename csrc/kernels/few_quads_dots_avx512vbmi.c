/* few_quads_dots: 64 codes, 16 bytes of metadata, 128 columns at a time. Positions become indices of bytes, by which
 * vpermi2b takes x out of two registers. Besides VBMI it needs VNNI, which few processors have without; ops asks for it.
 */
#include "kernels/few_quads_avx512.h"

#define VNNI __attribute__((target("avx512vnni")))

/* sum: of x * code; zeros: of x * zero. */
VNNI INLINE void add_codes(__m512i codes, __m512i metadata, const int8_t *x, int64_t ldx, int n_vectors, __m512i flip,
                           __m512i zero, __m512i sum[], __m512i zeros[]) {
    const __m512i steps = _mm512_set1_epi64(0x0e0c0a0806040200), ones = _mm512_set1_epi64(0x0c0c080804040000);
    const __m512i base = _mm512_add_epi64(
        ones, _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(0x1010101010101010)));
    const __m512i index = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(steps, metadata), _mm512_set1_epi8(3),
                                                    base, 0xea); /* (p & 3) | base */
    ;
    const __m512i flipped = _mm512_xor_si512(codes, flip);
#pragma GCC unroll 4
    for (int v = 0; v < n_vectors; v++) {
        const int8_t *from = x + v * ldx;
        const __m512i kept = _mm512_permutex2var_epi8(_mm512_loadu_si512(from), index, _mm512_loadu_si512(from + 64));
        sum[v] = _mm512_dpbusd_epi32(sum[v], flipped, kept);
        zeros[v] = _mm512_dpbusd_epi32(zeros[v], zero, kept);
    }
}

VNNI INLINE void few_quads_dots(const hc_few_quads_args *args, int n_vectors) {
    const __m512i flip = _mm512_set1_epi8((char)args->flip), zero = _mm512_set1_epi8((char)args->zero);
    const uint8_t *codes = args->codes, *metadata = args->metadata;
    const int8_t *x = args->x;
    __m512i sum[2][4], zeros[2][4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        sum[i / 4][i % 4] = zeros[i / 4][i % 4] = _mm512_setzero_si512();
    int64_t left = args->code_bytes, metadata_left = args->metadata_bytes;
    for (; left >= 128 && metadata_left >= 32; left -= 128, metadata_left -= 32) {
        _mm_prefetch(codes + AHEAD, _MM_HINT_T1);
        _mm_prefetch(codes + AHEAD + 64, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            add_codes(_mm512_loadu_si512(codes + 64 * i),
                      _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)(metadata + 16 * i))), x + 128 * i,
                      args->ldx, n_vectors, flip, zero, sum[i], zeros[i]);
        codes += 128;
        metadata += 32;
        x += 256;
    }
    for (; left > 0; left -= 64, metadata_left -= 16, codes += 64, metadata += 16, x += 128) {
        const __m128i some = _mm512_castsi512_si128(load_bytes(metadata, hc_min(metadata_left, 16)));
        add_codes(load_bytes(codes, left), _mm512_cvtepu16_epi64(some), x, args->ldx, n_vectors, flip, zero, sum[0],
                  zeros[0]);
    }
    for (int v = 0; v < n_vectors; v++)
        args->sums[v] = sum_lanes(
            _mm512_sub_epi32(_mm512_add_epi32(sum[0][v], sum[1][v]), _mm512_add_epi32(zeros[0][v], zeros[1][v])));
}

VNNI void hc_few_quads_dots_avx512vbmi(const hc_few_quads_args *args) {
    if (args->n_vectors == 1)
        few_quads_dots(args, 1);
    else if (args->n_vectors == 2)
        few_quads_dots(args, 2);
    else
        few_quads_dots(args, 4);
}
