/* gemv_minima: 16 rows in several registers. Minima are transposed once for all lines of x. Included after a header of
 * base/lanes/ and LINES, 1 or 2: lines of x whose chains run at a time. */
#include "kernels/kernel.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { SEGMENTS = 64, REGISTERS = 16 / LANES };

/* n_lines lines of x, 1 or LINES, and the next `steps` segments. */
INLINE void add_lines(int n_lines, int64_t steps, int64_t ld, const float *x_scales, const float *sums,
                      const float *turned, float *out) {
    lanes acc[LINES][REGISTERS];
    for (int line = 0; line < n_lines; line++)
#pragma GCC unroll 4
        for (int i = 0; i < REGISTERS; i++)
            acc[line][i] = lanes_load(out + line * 16 + i * LANES);
    for (int64_t s = 0; s < steps; s++)
        for (int line = 0; line < n_lines; line++) {
            const lanes x_scale = lanes_of(x_scales[line * ld + s]), sum = lanes_of(sums[line * ld + s]);
#pragma GCC unroll 4
            for (int i = 0; i < REGISTERS; i++) {
                const lanes scale = lanes_mul(x_scale, lanes_load(turned + s * 16 + i * LANES));
                acc[line][i] = lanes_fma(scale, sum, acc[line][i]);
            }
        }
    for (int line = 0; line < n_lines; line++)
#pragma GCC unroll 4
        for (int i = 0; i < REGISTERS; i++)
            lanes_store(out + line * 16 + i * LANES, acc[line][i]);
}

static inline void add_minima(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                              const float *minima, float *out) {
    _Alignas(32) float turned[SEGMENTS * 16];
    memset(out, 0, (size_t)n_lines * 16 * sizeof *out);
    for (int64_t first = 0; first < n; first += SEGMENTS) {
        const int64_t steps = hc_min(n - first, SEGMENTS);
        for (int64_t s = 0; s < steps; s += LANES)
            for (int row = 0; row < 16; row += LANES) {
                lanes block[LANES];
                for (int i = 0; i < LANES; i++)
                    block[i] = lanes_load(minima + (row + i) * ld + first + s);
                lanes_transpose(block);
                for (int i = 0; i < LANES; i++)
                    lanes_store(turned + (s + i) * 16 + row, block[i]);
            }
        int64_t line = 0;
        for (; line + LINES <= n_lines; line += LINES)
            add_lines(LINES, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned,
                      out + line * 16);
        for (; line < n_lines; line++)
            add_lines(1, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned, out + line * 16);
    }
}

#define HC_GEMV_MINIMA(isa)                                                                                            \
    void hc_gemv_minima_##isa(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,        \
                              const float *minima, float *out) {                                                       \
        add_minima(n, ld, n_lines, x_scales, sums, minima, out);                                                       \
    }
