/* Rows of an N:M pattern: values that are kept, each with the column that it stands for (sparsity/nm.h). A thread decodes a block: n
 * kept values to m columns, zeros between them.
 */
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

/* p.x is of whole columns. */
template <typename format, typename type, typename function>
static inline HC_DEVICE void hc_decode_kept_block(const hc_cuda_codec &p, function decode) {
    const hc_geometry &g = p.geometry;
    const int n = p.format.n, m = p.format.m;
    const int64_t blocks = g.run_length / n, item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = item / (blocks * g.runs), run = item / blocks % g.runs, block = item % blocks;
    if (row >= g.rows)
        return;
    type *values = (type *)hc_shared() + (int64_t)threadIdx.x * (n | 1);
    const hc_tile tile = {row, 1, run * (g.padded / g.runs) + block * n, n};
    decode(&p.format, &g, &p.parts, &tile, values, n);
    char *to = p.x.data + hc_rows_offset(&p.x, row, run * g.whole_length); /* the view may have joined the runs */
    const int64_t end = hc_min((block + 1) * m, g.whole_length);
    int64_t column = block * m;
    HC_SHORT_LOOP
    for (int i = 0; i < n; i++) {
        const int64_t at = hc_kept_column(p.format, g, p.parts.part[HC_METADATA], row, run, block * n + i);
        HC_SHORT_LOOP
        for (; column < hc_min(at, end); column++)
            *(type *)(to + column * p.x.column_stride) = 0;
        if (column == at && column < end)
            *(type *)(to + column++ * p.x.column_stride) = values[i];
    }
    HC_SHORT_LOOP
    for (; column < end; column++)
        *(type *)(to + column * p.x.column_stride) = 0;
}

template <typename format> static inline HC_DEVICE void hc_decode_kept(const hc_cuda_codec &p) {
    if (p.x.dtype == HC_F64)
        hc_decode_kept_block<format, double>(p, format::decode_f64);
    else
        hc_decode_kept_block<format, float>(p, format::decode);
}

#endif
