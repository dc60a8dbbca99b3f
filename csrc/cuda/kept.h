/* Rows of an N:M pattern: values that are kept, each with the column that it stands for (sparsity/nm.h). */
#ifndef HC_CUDA_KEPT_H
#define HC_CUDA_KEPT_H

#include "cuda/definition.h"

/* The position in its block of a kept value, from so many bits of a row's metadata on. */
static inline HC_DEVICE int hc_kept_position(const uint8_t *metadata, int64_t bit, int bits, int m) {
    if (bits == 0) /* of 1:1, which stores none */
        return 0;
    const uint8_t *byte = metadata + bit / 8;
    const int shift = (int)(bit % 8), high = shift + bits > 8 ? byte[1] << 8 : 0;
    const int position = (byte[0] | high) >> shift & ((1 << bits) - 1);
    return position < m ? position : m - 1;
}

/* The column of its run that a kept value of a run stands for. */
static inline HC_DEVICE int64_t hc_kept_column(const hc_format &format, const hc_geometry &geometry,
                                               const hc_component &metadata, int64_t row, int64_t run, int64_t kept) {
    const int bits = hc_position_bits(format.m);
    const int64_t bit = (run * geometry.run_length + kept) * bits;
    return kept / format.n * format.m +
           hc_kept_position(metadata.data + row * metadata.row_stride, bit, bits, format.m);
}

#endif
