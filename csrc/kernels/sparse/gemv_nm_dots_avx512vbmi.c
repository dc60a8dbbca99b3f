/* gemv_nm_dots: 64 codes at a time, with x gathered by gemv_nm_avx512.h. x is biased by 128: 128 * (sum of the codes)
 * is subtracted at the end. */
#include "kernels/sparse/gemv_nm_avx512.h"

VNNI INLINE void gemv_nm_dots(const hc_gemv_nm_integers_args *args, int64_t row, int kr, int n_vectors, int rows) {
    const hc_indices to = indices_of(args, kr);
    const int64_t skip = 8 * args->position_bits, codes_stride = args->codes_stride;
    const int64_t metadata_stride = args->metadata_stride, ldx = args->ldx;
    const uint8_t *codes = args->codes + row * codes_stride, *metadata = args->metadata + row * metadata_stride;
    const uint8_t *x = args->x;
    int64_t left = args->code_bytes, metadata_left = args->metadata_bytes;
    __m512i sum[2][4], offset[2];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * 4; i++)
        sum[i / 4][i % 4] = offset[i / 4] = _mm512_setzero_si512();
    for (; left > 0; left -= 64, metadata_left -= skip, codes += 64, metadata += skip, x += 16 * kr) {
        const bool whole = left >= 64 && metadata_left >= 64;
        __m512i index[2], c[2];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            const uint8_t *code = codes + r * codes_stride, *position = metadata + r * metadata_stride;
            _mm_prefetch(code + AHEAD, _MM_HINT_T1);
            _mm_prefetch(position + AHEAD / 2, _MM_HINT_T1);
            c[r] = whole ? _mm512_loadu_si512(code) : load_bytes(code, left);
            index[r] = index_64(&to, whole ? _mm512_loadu_si512(position) : load_bytes(position, metadata_left));
            offset[r] = dot(offset[r], _mm512_set1_epi8(-128), c[r]);
        }
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) {
            __m512i kept[2] = {index[0], index[rows - 1]};
            gather(x + v * ldx, kr, rows, kept);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                sum[r][v] = dot(sum[r][v], kept[r], c[r]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < n_vectors; v++)
            args->sums[(row + r) * args->ld_sums + v] = sum_lanes(_mm512_sub_epi32(sum[r][v], offset[r]));
}

VNNI void hc_gemv_nm_dots_avx512vbmi(const hc_gemv_nm_integers_args *args) { CHOOSE(gemv_nm_dots, args); }
