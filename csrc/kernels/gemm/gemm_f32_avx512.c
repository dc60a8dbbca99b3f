/* The tiled float32 matmul: 14 rows by 2 registers of columns are 28 accumulators, each a broadcast used twice. A tile of
 * fewer rows, or of one register of columns, takes as much less time.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 14, NR = 32, LANES = 16 };

static inline __attribute__((always_inline)) void tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                                                       bool accumulate, int rows, int registers) {
    __m512 sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < registers; j++)
            sum[i][j] = accumulate ? _mm512_loadu_ps(c + i * ldc + LANES * j) : _mm512_setzero_ps();
    for (; k > 0; k--, a += MR, b += NR) {
        const __m512 low = _mm512_loadu_ps(b), high = registers > 1 ? _mm512_loadu_ps(b + LANES) : low;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const __m512 x = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(x, low, sum[i][0]);
            if (registers > 1)
                sum[i][1] = _mm512_fmadd_ps(x, high, sum[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < registers; j++)
            _mm512_storeu_ps(c + i * ldc + LANES * j, sum[i][j]);
}

#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        columns > LANES ? tile(k, a, b, c, ldc, accumulate, n, 2) : tile(k, a, b, c, ldc, accumulate, n, 1);           \
        break;

/* Not inlined: the whole tile is then compiled as it is alone. */
static __attribute__((noinline)) void part(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                                           bool accumulate, int rows, int columns) {
    switch (rows) {
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
        ROWS(7)
        ROWS(8)
        ROWS(9)
        ROWS(10)
        ROWS(11)
        ROWS(12)
        ROWS(13)
    default:
        tile(k, a, b, c, ldc, accumulate, MR, 1);
    }
}

void hc_gemm_f32_avx512(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate, int rows,
                        int columns) {
    if (rows == MR && columns > LANES)
        tile(k, a, b, c, ldc, accumulate, MR, 2);
    else
        part(k, a, b, c, ldc, accumulate, rows, columns);
}
