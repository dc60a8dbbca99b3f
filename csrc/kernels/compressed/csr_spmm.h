/* Stored weights times a panel of activations. The sums of a row of weights stay in up to 8 registers. Each stored
 * value is broadcast and multiplied by the panel row of its column. Included after a header of base/lanes/. */
#include "kernels/kernel.h"

static inline __attribute__((always_inline)) void walk(const int registers, int64_t rows, const int64_t *begin,
                                                       const int64_t *end, const float *values, const int32_t *indices,
                                                       int64_t first, const float *panel, bool accumulate,
                                                       float *tile) {
    for (int64_t i = 0; i < rows; i++, tile += registers * LANES) {
        lanes sum[8];
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            sum[r] = accumulate ? lanes_load(tile + r * LANES) : lanes_of(0);
        for (int64_t t = begin[i], stop = end[i]; t < stop; t++) {
            const float *x = panel + (indices[t] - first) * registers * LANES;
            const lanes w = lanes_of(values[t]);
#pragma GCC unroll 8
            for (int r = 0; r < registers; r++)
                sum[r] = lanes_fma(w, lanes_load(x + r * LANES), sum[r]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < registers; r++)
            lanes_store(tile + r * LANES, sum[r]);
    }
}

/* Defines the kernel of an instruction set; its nr is `most` registers. */
#define HC_CSR_SPMM(isa, most)                                                                                         \
    void hc_csr_spmm_##isa(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,                \
                           const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,      \
                           float *tile) {                                                                              \
        if (lanes == (most) * LANES)                                                                                   \
            walk(most, rows, begin, end, values, indices, first, panel, accumulate, tile);                             \
        else if (lanes == (most) / 2 * LANES)                                                                          \
            walk((most) / 2, rows, begin, end, values, indices, first, panel, accumulate, tile);                       \
        else                                                                                                           \
            walk((most) / 4, rows, begin, end, values, indices, first, panel, accumulate, tile);                       \
    }
