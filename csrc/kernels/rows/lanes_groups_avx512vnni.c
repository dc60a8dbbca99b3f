/* Rows of x in lanes, rows of w in their order, with one scale per group, float32 or integer. The integer sums of a
 * group and the sums of all groups are both in registers. w is made unsigned when it is read, so the initial value of a
 * group's sums depends only on x. */
#include "kernels/rows/lanes_avx512.h"

enum { MOST_ROWS = 12 };

/* In place: with the intrinsic gcc 12 needs more registers than there are. */
INLINE __m512i times(__m512i sum, __m512i factor) {
    __asm__("vpmulld %1, %0, %0" : "+v"(sum) : "v"(factor));
    return sum;
}

/* n_w rows of w from j on: 12 sums of each kind. */
INLINE void multiply_groups(const hc_lanes_groups_args *args, const bool split, const int n_x, const int n_w,
                            int64_t j) {
    const int64_t ld_w = args->ld_w;
    const __m512i sign = _mm512_set1_epi8(-128);
    const int8_t *x = args->x;
    const int32_t *start = args->start;
    const char *scales = split ? (const char *)(args->factors + j * args->ld_scales)
                               : (const char *)(args->w_scales + j * args->ld_scales);
    const int64_t ld_scales = args->ld_scales * 4;
    const int8_t *w[MOST_ROWS / 4 + 1];
    __m512i total[MOST_ROWS][MOST_X]; /* of integers or floats */
#pragma GCC unroll 3
    for (int b = 0; b < n_w; b += 4)
        w[b / 4] = args->w + (j + b) * ld_w;
#pragma GCC unroll 12
    for (int b = 0; b < n_w; b++)
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            total[b][v] = args->accumulate
                              ? _mm512_loadu_si512((const int32_t *)args->c + (j + b) * args->ldc + v * LANES)
                              : _mm512_setzero_si512();
    for (int64_t k = 0; k < args->columns; k += args->group, scales += 4) {
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
            int32_t bits; /* of an integer or a float */
            memcpy(&bits, scales + b * ld_scales, sizeof bits);
            const __m512i factor = _mm512_set1_epi32(bits);
            if (split) {
#pragma GCC unroll 4
                for (int v = 0; v < n_x; v++)
                    total[b][v] = _mm512_add_epi32(total[b][v], times(sum[b][v], factor));
                continue;
            }
            const __m512 scale = _mm512_castsi512_ps(factor);
#pragma GCC unroll 4
            for (int v = 0; v < n_x; v++) {
                const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(args->x_scales + v * LANES));
                const __m512 dots = _mm512_cvtepi32_ps(sum[b][v]), from = _mm512_castsi512_ps(total[b][v]);
                total[b][v] = _mm512_castps_si512(_mm512_fmadd_ps(both, dots, from));
            }
        }
    }
#pragma GCC unroll 12
    for (int b = 0; b < n_w; b++)
#pragma GCC unroll 4
        for (int v = 0; v < n_x; v++)
            _mm512_storeu_si512((int32_t *)args->c + (j + b) * args->ldc + v * LANES, total[b][v]);
}

INLINE void of_rows(const hc_lanes_groups_args *args, const bool split, const int n_x, const int n_w) {
    int64_t j = 0;
    for (; j + n_w <= args->n_w; j += n_w)
        multiply_groups(args, split, n_x, n_w, j);
    for (; j < args->n_w; j++)
        multiply_groups(args, split, n_x, 1, j);
}

/* 12 sums of each kind; for integer scales gcc 12 runs out of registers with three and four vectors. */
INLINE void of_lanes(const hc_lanes_groups_args *args, const bool split) {
    switch (args->lanes) {
    case 1 * LANES:
        of_rows(args, split, 1, 12);
        break;
    case 2 * LANES:
        of_rows(args, split, 2, 6);
        break;
    case 3 * LANES:
        of_rows(args, split, 3, split ? 3 : 4);
        break;
    case 4 * LANES:
        of_rows(args, split, 4, split ? 2 : 3);
        break;
    }
}

void hc_lanes_s8_scaled_avx512vnni(const hc_lanes_groups_args *args) { of_lanes(args, false); }
void hc_lanes_s8_split_avx512vnni(const hc_lanes_groups_args *args) { of_lanes(args, true); }
