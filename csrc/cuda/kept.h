/* Rows of an N:M pattern: values that are kept, each with the column that it stands for (sparsity/nm.h).
 *
 *   decoding       a thread a block: n kept values to m columns, zeros between them
 *   few vectors    the order of codec.h, of what is kept alone: a zero adds nothing, whatever x holds there
 *
 * With groups, thread i of 16 has the groups i, i + 16, ... of kept values. Without, thread i of 8 has the whole columns 8 i to 8 i + 7 of
 * every 64.
 */
#ifndef HC_CUDA_KEPT_H
#define HC_CUDA_KEPT_H

#include "cuda/definition.h"

enum { HC_GEMV_VECTORS = 8 };
/* The formats of a family that have groups, have none, or are of both kinds. */
enum { HC_WITH_GROUPS = 1, HC_WITHOUT_GROUPS = 2, HC_BOTH = 3 };

static inline HC_DEVICE float hc_load_value(const char *from, int dtype);
template <int LANES, int CHAINS, int MOST>
static inline HC_DEVICE void hc_gemv_store(const hc_cuda_gemv &p, int lane, int64_t wanted, int64_t row,
                                           float (&sums)[MOST][CHAINS], float row_scale);

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
    for (int i = 0; i < n; i++) {
        const int64_t at = hc_kept_column(p.format, g, p.parts.part[HC_METADATA], row, run, block * n + i);
        for (; column < hc_min(at, end); column++)
            *(type *)(to + column * p.x.column_stride) = 0;
        if (column == at && column < end)
            *(type *)(to + column++ * p.x.column_stride) = values[i];
    }
    for (; column < end; column++)
        *(type *)(to + column * p.x.column_stride) = 0;
}

template <typename format> static inline HC_DEVICE void hc_decode_kept(const hc_cuda_codec &p) {
    if (p.x.dtype == HC_F64)
        hc_decode_kept_block<format, double>(p, format::decode_f64);
    else
        hc_decode_kept_block<format, float>(p, format::decode);
}

/* Of one run. */
template <typename format, bool has_groups> static inline HC_DEVICE void hc_gemv_kept_rows(const hc_cuda_gemv &p) {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, MOST = HC_GEMV_VECTORS };
    const hc_geometry &g = p.geometry;
    const int lane = (int)threadIdx.x % LANES, vectors = (int)p.vectors, n = p.format.n, m = p.format.m;
    const int64_t wanted = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES, row = hc_min(wanted, g.rows - 1);
    const int64_t span = has_groups ? g.group : 8, all = has_groups ? g.run_length : g.whole_length;
    float *codes = (float *)hc_shared() + (int64_t)threadIdx.x * p.ld;
    float scale = 1, row_scale = 1, sums[MOST][CHAINS] = {};
    for (int64_t first = lane * span; first < all; first += LANES * span) {
        /* kept values: a group, or those of the blocks that 8 columns touch */
        const int64_t from = has_groups ? first : first / m * n;
        const int64_t to = hc_min(has_groups ? first + span : ((first + span - 1) / m + 1) * n, g.run_length);
        const int count = (int)(to - from);
        const hc_tile tile = {row, 1, from, count};
        const hc_code_tile out = {codes, count, &scale, 1, &row_scale};
        format::decode_codes(&p.format, &g, &p.parts, &tile, &out);
        float chains[MOST] = {};
        for (int c = 0; c < count; c++) {
            const int64_t column = hc_kept_column(p.format, g, p.parts.part[HC_METADATA], row, 0, from + c);
            const int64_t place = has_groups ? 0 : column - first;
            if (column >= g.whole_length || place < 0 || place >= span)
                continue;
            const char *x = p.x.data + column * p.x.column_stride;
#pragma unroll
            for (int v = 0; v < MOST; v++) {
                if (v >= vectors)
                    continue;
                const float value = hc_load_value(x + v * p.x.rows.stride[0], p.x.dtype);
                if (has_groups)
                    chains[v] = fmaf(value, codes[c], chains[v]);
#pragma unroll
                for (int i = 0; i < CHAINS; i++) /* sums are registers */
                    if (!has_groups && i == place)
                        sums[v][i] = fmaf(value, codes[c], sums[v][i]);
            }
        }
#pragma unroll
        for (int v = 0; v < MOST; v++)
            if (has_groups && v < vectors)
                sums[v][0] = fmaf(scale, chains[v], sums[v][0]);
    }
    hc_gemv_store<LANES, CHAINS, MOST>(p, lane, wanted, row, sums, row_scale);
}

template <typename format, int kinds> static inline HC_DEVICE void hc_gemv_kept(const hc_cuda_gemv &p) {
    if constexpr (kinds == HC_WITH_GROUPS)
        hc_gemv_kept_rows<format, true>(p);
    else if constexpr (kinds == HC_WITHOUT_GROUPS)
        hc_gemv_kept_rows<format, false>(p);
    else if (p.lanes == 16)
        hc_gemv_kept_rows<format, true>(p);
    else
        hc_gemv_kept_rows<format, false>(p);
}

#endif
