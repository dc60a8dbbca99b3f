/* Rows of x in lanes, rows of w as they lie with a float32 scale a group: the integer sums of a group and the float32 sums of all
 * lie in registers side by side. w is made unsigned on its way, so that a group's sums start at what only x decides. */
#include "kernels/rows/lanes_avx512.h"

enum { MOST_ROWS = 12 };

/* n_w rows of w from j on: 12 sums of either kind. */
INLINE void multiply_groups(const hc_lanes_scaled_args *args, const int n_x, const int n_w, int64_t j) {
    const int64_t ld_w = args->ld_w;
    const __m512i sign = _mm512_set1_epi8(-128);
    const int8_t *x = args->x;
    const int32_t *start = args->start;
    const float *scales = args->w_scales + j * args->ld_scales;
    const int8_t *w[MOST_ROWS / 4 + 1];
    __m512 total[MOST_ROWS][MOST_X];
#pragma GCC unroll 3
    for (int b = 0; b < n_w; b += 4)
        w[b / 4] = args->w + (j + b) * ld_w;
#pragma GCC unroll 12
    for (int b = 0; b < n_w; b++)
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            total[b][v] =
                args->accumulate ? _mm512_loadu_ps(args->c + (j + b) * args->ldc + v * LANES) : _mm512_setzero_ps();
    for (int64_t k = 0; k < args->columns; k += args->group, scales++) {
        __m512i sum[MOST_ROWS][MOST_X];
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++, start += LANES) {
            const __m512i from = _mm512_loadu_si512(start);
#pragma GCC unroll 12
            for (int b = 0; b < n_w; b++)
                sum[b][v] = from;
        }
        for (int64_t left = hc_min(args->group, args->columns - k); left > 0; left -= 4) {
            __m512i values[MOST_X];
#pragma GCC unroll 4
            for (int v = 0; v < n_x; v++, x += STEP)
                values[v] = _mm512_loadu_si512(x);
#pragma GCC unroll 12
            for (int b = 0; b < n_w; b++) {
                int32_t four;
                memcpy(&four, w[b / 4] + b % 4 * ld_w, sizeof four);
                const __m512i codes = _mm512_xor_si512(_mm512_set1_epi32(four), sign);
#pragma GCC unroll 4
                for (int v = 0; v < n_x; v++)
                    sum[b][v] = dot(sum[b][v], codes, values[v]);
            }
#pragma GCC unroll 3
            for (int b = 0; b < n_w; b += 4)
                w[b / 4] += 4;
        }
#pragma GCC unroll 12
        for (int b = 0; b < n_w; b++) {
            const __m512 scale = _mm512_set1_ps(scales[b * args->ld_scales]);
#pragma GCC unroll 4
            for (int v = 0; v < n_x; v++) {
                const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(args->x_scales + v * LANES));
                total[b][v] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sum[b][v]), total[b][v]);
            }
        }
    }
#pragma GCC unroll 12
    for (int b = 0; b < n_w; b++)
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            _mm512_storeu_ps(args->c + (j + b) * args->ldc + v * LANES, total[b][v]);
}

INLINE void all_rows(const hc_lanes_scaled_args *args, const int n_x, const int n_w) {
    int64_t j = 0;
    for (; j + n_w <= args->n_w; j += n_w)
        multiply_groups(args, n_x, n_w, j);
    for (; j < args->n_w; j++)
        multiply_groups(args, n_x, 1, j);
}

void hc_lanes_s8_scaled_avx512vnni(const hc_lanes_scaled_args *args) {
    switch (args->lanes) {
    case 1 * LANES:
        all_rows(args, 1, 12);
        break;
    case 2 * LANES:
        all_rows(args, 2, 6);
        break;
    case 3 * LANES:
        all_rows(args, 3, 4);
        break;
    case 4 * LANES:
        all_rows(args, 4, 3);
        break;
    }
}
