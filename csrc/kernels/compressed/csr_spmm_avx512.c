/* Stored weights times a panel of activations: a weight's row keeps its sums in up to 4 registers, each stored value is
 * broadcast and meets the panel row of its column, a memory operand. */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { LANES = 16 };

static inline __attribute__((always_inline)) void walk(const int registers, int64_t rows, const int64_t *begin,
                                                       const int64_t *end, const float *values, const int32_t *indices,
                                                       int64_t first, const float *panel, bool accumulate,
                                                       float *tile) {
    for (int64_t i = 0; i < rows; i++, tile += registers * LANES) {
        __m512 sum[4];
#pragma GCC unroll 4
        for (int r = 0; r < registers; r++)
            sum[r] = accumulate ? _mm512_loadu_ps(tile + r * LANES) : _mm512_setzero_ps();
        for (int64_t t = begin[i], stop = end[i]; t < stop; t++) {
            const float *x = panel + (indices[t] - first) * registers * LANES;
            const __m512 w = _mm512_set1_ps(values[t]);
#pragma GCC unroll 4
            for (int r = 0; r < registers; r++)
                sum[r] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x + r * LANES), sum[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < registers; r++)
            _mm512_storeu_ps(tile + r * LANES, sum[r]);
    }
}

void hc_csr_spmm_avx512(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,
                        const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,
                        float *tile) {
    if (lanes == 4 * LANES)
        walk(4, rows, begin, end, values, indices, first, panel, accumulate, tile);
    else if (lanes == 2 * LANES)
        walk(2, rows, begin, end, values, indices, first, panel, accumulate, tile);
    else
        walk(1, rows, begin, end, values, indices, first, panel, accumulate, tile);
}
