/* gemv_minima and gemv_minima_halves: 16 rows per register. Minima are transposed once for all lines of x. */
#include "kernels/gemv/gemv_halves_avx512.h"
#include "kernels/kernel.h"

#include <string.h>

enum { SEGMENTS = 64, LINES = 4 };

/* n_lines lines of x, 1 to LINES, and the next `steps` segments. */
INLINE void add_lines(int n_lines, int64_t steps, int64_t ld, const float *x_scales, const float *sums,
                      const float *turned, float *out) {
    __m512 acc[LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm512_loadu_ps(out + line * 16);
    for (int64_t s = 0; s < steps; s++) {
        const __m512 minima = _mm512_load_ps(turned + s * 16);
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x_scales[line * ld + s]), minima);
            acc[line] = _mm512_fmadd_ps(scale, _mm512_set1_ps(sums[line * ld + s]), acc[line]);
        }
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        _mm512_storeu_ps(out + line * 16, acc[line]);
}

INLINE void load_block(const float *minima, int64_t ld, __m512 *block) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        block[i] = _mm512_loadu_ps(minima + i * ld);
    lanes_transpose(block);
}

/* The chains of n_lines lines, 1 to LINES, over the next segments, at most the 16 of a block. */
INLINE void add_block(int n_lines, int64_t steps, int64_t ld, const float *x_scales, const float *sums,
                      const __m512 *block, __m512 *acc) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (i >= steps)
            break;
#pragma GCC unroll 4
        for (int line = 0; line < n_lines; line++) {
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x_scales[line * ld + i]), block[i]);
            acc[line] = _mm512_fmadd_ps(scale, _mm512_set1_ps(sums[line * ld + i]), acc[line]);
        }
    }
}

/* Few lines, 1 to LINES. While the chains wait for their latency, the processor transposes the next block. */
INLINE void add_few(int n_lines, int64_t n, int64_t ld, const float *x_scales, const float *sums, const float *minima,
                    float *out) {
    __m512 acc[LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm512_setzero_ps();
    for (int64_t s = 0; s < n; s += 16) {
        __m512 block[16];
        load_block(minima + s, ld, block);
        add_block(n_lines, n - s, ld, x_scales + s, sums + s, block, acc);
    }
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        _mm512_storeu_ps(out + line * 16, acc[line]);
}

void hc_gemv_minima_avx512(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                           const float *minima, float *out) {
    _Alignas(64) float turned[SEGMENTS * 16];
    if (n_lines == 1) {
        add_few(1, n, ld, x_scales, sums, minima, out);
        return;
    }
    if (n_lines == LINES) {
        add_few(LINES, n, ld, x_scales, sums, minima, out);
        return;
    }
    memset(out, 0, (size_t)n_lines * 16 * sizeof *out);
    for (int64_t first = 0; first < n; first += SEGMENTS) {
        const int64_t steps = hc_min(n - first, SEGMENTS);
        for (int64_t s = 0; s < steps; s += 16) {
            __m512 block[16];
            load_block(minima + first + s, ld, block);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                _mm512_store_ps(turned + (s + i) * 16, block[i]);
        }
        int64_t line = 0;
        for (; line + LINES <= n_lines; line += LINES)
            add_lines(LINES, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned,
                      out + line * 16);
        for (; line < n_lines; line++)
            add_lines(1, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned, out + line * 16);
    }
}

/* add_block with chains in memory. */
INLINE void add_stored(int n_lines, int64_t steps, int64_t ld, const float *x_scales, const float *sums,
                       const __m512 *block, float *out) {
    __m512 acc[LINES];
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm512_loadu_ps(out + line * 16);
    add_block(n_lines, steps, ld, x_scales, sums, block, acc);
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line++)
        _mm512_storeu_ps(out + line * 16, acc[line]);
}

void hc_gemv_minima_halves_avx512(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                                  const uint8_t *const *rows, float *out) {
    memset(out, 0, (size_t)n_lines * 16 * sizeof *out);
    for (int64_t s = 0; s < n; s += 16) {
        const int64_t steps = hc_min(n - s, 16);
        __m512 block[16];
        load_halves(rows, s, (__mmask16)(0xffffu >> (16 - steps)), block);
        int64_t line = 0;
        for (; line + LINES <= n_lines; line += LINES)
            add_stored(LINES, steps, ld, x_scales + line * ld + s, sums + line * ld + s, block, out + line * 16);
        for (; line < n_lines; line++)
            add_stored(1, steps, ld, x_scales + line * ld + s, sums + line * ld + s, block, out + line * 16);
    }
}
