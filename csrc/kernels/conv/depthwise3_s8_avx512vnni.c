/* 3 x 3 filters of one channel, of integers. The bytes of 4 adjacent pixels are gathered per channel, and multiplied by
 * the taps of a row with one vpdpbusd. With stride 1 they are the windows of two outputs; for the second the taps are
 * one byte further. Every row of pixels is used for all rows of outputs that need it. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 4, R = 3, LANES = 16, PANEL = R * LANES * 4 };

INLINE __m128i load(const uint8_t *x, __mmask16 mask, const bool whole) {
    return whole ? _mm_loadu_si128((const __m128i *)(const void *)x) : _mm_maskz_loadu_epi8(mask, x);
}

/* n pixels, 3 or 4: lane j has byte j of each; the last byte is that of pixel 2 or 3. */
INLINE __m512i gather(const int n, const uint8_t *x, int64_t step, __mmask16 mask, const bool whole) {
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i pixels = _mm512_castsi128_si512(load(x, mask, whole));
    pixels = _mm512_inserti32x4(pixels, load(x + step, mask, whole), 1);
    pixels = _mm512_inserti32x4(pixels, load(x + 2 * step, mask, whole), 2);
    if (n == 4)
        pixels = _mm512_inserti32x4(pixels, load(x + 3 * step, mask, whole), 3);
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(lanes, pixels), bytes);
}

/* `down` x n outputs of 16 channels; n is 2 only with stride 1. */
INLINE void block(const int stride, const int down, const int n, const uint8_t *x, int64_t row_step, int64_t pixel_step,
                  const __m512i w[2][R], __m512i init, __mmask16 mask, const bool whole, int32_t *c, int64_t c_row,
                  int64_t ldc) {
    __m512i sum[MR][2];
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
        sum[i][0] = sum[i][1] = init;
#pragma GCC unroll 9
    for (int h = 0; h < (down - 1) * stride + R; h++) {
        const __m512i pixels = gather(n == 2 ? 4 : 3, x + h * row_step, pixel_step, mask, whole);
#pragma GCC unroll 4
        for (int i = 0; i < down; i++) {
            const int r = h - i * stride;
            if (r < 0 || r >= R)
                continue;
            sum[i][0] = dot(sum[i][0], pixels, w[0][r]);
            if (n == 2)
                sum[i][1] = dot(sum[i][1], pixels, w[1][r]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < down; i++)
#pragma GCC unroll 2
        for (int q = 0; q < n; q++)
            if (whole)
                _mm512_storeu_si512(c + i * c_row + q * ldc, sum[i][q]);
            else
                _mm512_mask_storeu_epi32(c + i * c_row + q * ldc, mask, sum[i][q]);
}

INLINE void channels(const int stride, const int down, int64_t across, const uint8_t *x, int64_t row_step,
                     int64_t pixel_step, const int8_t *panel, const int32_t *init, __mmask16 mask, const bool whole,
                     int32_t *c, int64_t c_row, int64_t ldc) {
    const int at_once = stride == 1 ? 2 : 1;
    const __m512i start = _mm512_loadu_si512(init);
    __m512i w[2][R];
#pragma GCC unroll 3
    for (int r = 0; r < R; r++) {
        w[0][r] = _mm512_loadu_si512(panel + r * 4 * LANES);
        w[1][r] = _mm512_slli_epi32(w[0][r], 8);
    }
    int64_t q = 0;
    for (; q + at_once <= across; q += at_once, x += at_once * stride * pixel_step, c += at_once * ldc)
        block(stride, down, at_once, x, row_step, pixel_step, w, start, mask, whole, c, c_row, ldc);
    if (q < across)
        block(stride, down, 1, x, row_step, pixel_step, w, start, mask, whole, c, c_row, ldc);
}

INLINE void all(const int stride, const int down, int64_t across, const uint8_t *x, int64_t row_step,
                int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count, int32_t *c, int64_t c_row,
                int64_t ldc) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES, panel += PANEL)
        channels(stride, down, across, x + j, row_step, pixel_step, panel, init + j, 0xffff, true, c + j, c_row, ldc);
    if (j < count)
        channels(stride, down, across, x + j, row_step, pixel_step, panel, init + j,
                 (__mmask16)((1u << (count - j)) - 1), false, c + j, c_row, ldc);
}

#define HC_CASE(stride, down)                                                                                          \
    case (stride) * 8 + (down):                                                                                        \
        all(stride, down, across, x, row_step, pixel_step, panel, init, count, c, c_row, ldc);                         \
        break;
#define HC_CASES(stride) HC_CASE(stride, 1) HC_CASE(stride, 2) HC_CASE(stride, 3) HC_CASE(stride, 4)

void hc_depthwise3_s8_avx512vnni(int stride, int down, int64_t across, const uint8_t *x, int64_t row_step,
                                 int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count,
                                 int32_t *c, int64_t c_row, int64_t ldc) {
    switch (stride * 8 + down) { HC_CASES(1) HC_CASES(2) }
}
