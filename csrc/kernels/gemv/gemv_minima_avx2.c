/* gemv_minima: 16 rows in two registers. Minima are transposed once for all lines of x. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { SEGMENTS = 64 };

/* n_lines lines of x, 1 or 2, and the next `steps` segments. */
INLINE void add_lines(int n_lines, int64_t steps, int64_t ld, const float *x_scales, const float *sums,
                      const float *turned, float *out) {
    __m256 acc[2][2];
    for (int line = 0; line < n_lines; line++)
        for (int half = 0; half < 2; half++)
            acc[line][half] = _mm256_loadu_ps(out + line * 16 + half * 8);
    for (int64_t s = 0; s < steps; s++)
        for (int line = 0; line < n_lines; line++) {
            const __m256 x_scale = _mm256_broadcast_ss(x_scales + line * ld + s);
            const __m256 sum = _mm256_broadcast_ss(sums + line * ld + s);
            for (int half = 0; half < 2; half++) {
                const __m256 scale = _mm256_mul_ps(x_scale, _mm256_load_ps(turned + s * 16 + half * 8));
                acc[line][half] = _mm256_fmadd_ps(scale, sum, acc[line][half]);
            }
        }
    for (int line = 0; line < n_lines; line++)
        for (int half = 0; half < 2; half++)
            _mm256_storeu_ps(out + line * 16 + half * 8, acc[line][half]);
}

void hc_gemv_minima_avx2(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                         const float *minima, float *out) {
    _Alignas(32) float turned[SEGMENTS * 16];
    memset(out, 0, (size_t)n_lines * 16 * sizeof *out);
    for (int64_t first = 0; first < n; first += SEGMENTS) {
        const int64_t steps = hc_min(n - first, SEGMENTS);
        for (int64_t s = 0; s < steps; s += 8)
            for (int half = 0; half < 16; half += 8) {
                __m256 block[8];
                for (int i = 0; i < 8; i++)
                    block[i] = _mm256_loadu_ps(minima + (half + i) * ld + first + s);
                lanes_transpose(block);
                for (int i = 0; i < 8; i++)
                    _mm256_store_ps(turned + (s + i) * 16 + half, block[i]);
            }
        int64_t line = 0;
        for (; line + 2 <= n_lines; line += 2)
            add_lines(2, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned, out + line * 16);
        if (line < n_lines)
            add_lines(1, steps, ld, x_scales + line * ld + first, sums + line * ld + first, turned, out + line * 16);
    }
}
