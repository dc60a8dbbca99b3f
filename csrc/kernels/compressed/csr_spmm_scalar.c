/* Definition of stored weights times a panel of activations; kernels/compressed/compressed.h. */
#include "kernels/kernel.h"

#include <math.h>

enum { NR = 16 };

void hc_csr_spmm_scalar(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,
                        const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,
                        float *tile) {
    for (int64_t i = 0; i < rows; i++, tile += lanes) {
        float sum[NR];
        for (int j = 0; j < lanes; j++)
            sum[j] = accumulate ? tile[j] : 0.0f;
        for (int64_t t = begin[i]; t < end[i]; t++)
            for (int j = 0; j < lanes; j++)
                sum[j] = fmaf(values[t], panel[(indices[t] - first) * lanes + j], sum[j]);
        for (int j = 0; j < lanes; j++)
            tile[j] = sum[j];
    }
}
