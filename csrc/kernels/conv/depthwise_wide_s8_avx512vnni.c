/* 5 x 5 and 7 x 7 filters of one channel, of integers. The bytes of 4 adjacent pixels are gathered per channel, as in
 * depthwise3_s8, and multiplied by those taps of a row that meet them, with one vpdpbusd for each output. Every row of
 * pixels is used for all rows of outputs that need it. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 4, MOST = 4, LANES = 16, MOST_WORDS = 3 };

/* Byte j of 4 pixels in lane j. */
INLINE __m512i gather(const uint8_t *x, const int64_t at[4], __mmask16 mask) {
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i pixels = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(mask, x + at[0]));
    pixels = _mm512_inserti32x4(pixels, _mm_maskz_loadu_epi8(mask, x + at[1]), 1);
    pixels = _mm512_inserti32x4(pixels, _mm_maskz_loadu_epi8(mask, x + at[2]), 2);
    pixels = _mm512_inserti32x4(pixels, _mm_maskz_loadu_epi8(mask, x + at[3]), 3);
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(lanes, pixels), bytes);
}

/* `down` rows of 4 / stride outputs of 16 channels, of which the first n are stored. at: the offsets of their pixels. */
INLINE void block(const int side, const int stride, const int down, int n, const uint8_t *x, int64_t row_step,
                  const int64_t *at, const int8_t *panel, __m512i init, __mmask16 mask, int32_t *c, int64_t c_row,
                  int64_t ldc) {
    const int outputs = HC_WIDE_OUTPUTS(stride), words = HC_WIDE_WORDS(side, stride);
    __m512i sum[MR][MOST];
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
#pragma GCC unroll 4
        for (int a = 0; a < outputs; a++)
            sum[i][a] = init;
#pragma GCC unroll 13
    for (int h = 0; h < (down - 1) * stride + side; h++)
#pragma GCC unroll 3
        for (int g = 0; g < words; g++) {
            const __m512i pixels = gather(x + h * row_step, at + 4 * g, mask);
#pragma GCC unroll 4
            for (int i = 0; i < down; i++) {
                const int r = h - i * stride;
#pragma GCC unroll 4
                for (int a = 0; a < outputs; a++)
                    if (r >= 0 && r < side && 4 * g + 3 >= a * stride && 4 * g < a * stride + side)
                        sum[i][a] = dot(sum[i][a], pixels,
                                        _mm512_loadu_si512(panel + ((r * outputs + a) * words + g) * 4 * LANES));
            }
        }
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
#pragma GCC unroll 4
        for (int a = 0; a < outputs; a++)
            if (a < n)
                _mm512_mask_storeu_epi32(c + i * c_row + a * ldc, mask, sum[i][a]);
}

INLINE void all(const int side, const int stride, const int down, int64_t across, const uint8_t *x, int64_t row_step,
                int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count, int32_t *c, int64_t c_row,
                int64_t ldc) {
    const int outputs = HC_WIDE_OUTPUTS(stride), words = HC_WIDE_WORDS(side, stride);
    const int left = (int)(across % outputs);
    int64_t at[4 * MOST_WORDS], last[4 * MOST_WORDS]; /* pixels of a block; the last one may have fewer */
    for (int p = 0; p < 4 * words; p++) {
        at[p] = hc_min(p, (outputs - 1) * stride + side - 1) * pixel_step;
        last[p] = hc_min(p, (left - 1) * stride + side - 1) * pixel_step;
    }
    for (int64_t j = 0; j < count; j += LANES, panel += side * outputs * words * 4 * LANES) {
        const __mmask16 mask = count - j >= LANES ? 0xffff : (__mmask16)((1u << (count - j)) - 1);
        const __m512i start = _mm512_loadu_si512(init + j);
        int64_t q = 0;
        for (; q + outputs <= across; q += outputs)
            block(side, stride, down, outputs, x + j + q * stride * pixel_step, row_step, at, panel, start, mask,
                  c + j + q * ldc, c_row, ldc);
        if (left)
            block(side, stride, down, left, x + j + q * stride * pixel_step, row_step, last, panel, start, mask,
                  c + j + q * ldc, c_row, ldc);
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(side, stride, down)                                                                                       \
    static __attribute__((noinline)) void of_##side##_##stride##_##down(                                               \
        int64_t across, const uint8_t *x, int64_t row_step, int64_t pixel_step, const int8_t *panel,                   \
        const int32_t *init, int64_t count, int32_t *c, int64_t c_row, int64_t ldc) {                                  \
        all(side, stride, down, across, x, row_step, pixel_step, panel, init, count, c, c_row, ldc);                   \
    }
#define CASES(side, stride) CASE(side, stride, 1) CASE(side, stride, 2) CASE(side, stride, 3) CASE(side, stride, 4)
CASES(5, 1)
CASES(5, 2)
CASES(7, 1)
CASES(7, 2)

#define OF(side, stride)                                                                                               \
    {of_##side##_##stride##_1, of_##side##_##stride##_2, of_##side##_##stride##_3, of_##side##_##stride##_4}

void hc_depthwise_wide_s8_avx512vnni(int side, int stride, int down, int64_t across, const uint8_t *x, int64_t row_step,
                                     int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count,
                                     int32_t *c, int64_t c_row, int64_t ldc) {
    static void (*const of[2][2][MR])(int64_t, const uint8_t *, int64_t, int64_t, const int8_t *, const int32_t *,
                                      int64_t, int32_t *, int64_t,
                                      int64_t) = {{OF(5, 1), OF(5, 2)}, {OF(7, 1), OF(7, 2)}};
    of[side / 2 - 2][stride - 1][down - 1](across, x, row_step, pixel_step, panel, init, count, c, c_row, ldc);
}
