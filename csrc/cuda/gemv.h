/* Few vectors of floats times packed rows, in the CPU's order. With groups, thread i of 16 has the groups i, i + 16, ...: one chain
 * of fma in a group, one over its groups. Without, thread i of 8 has the columns 8 i to 8 i + 7 of every 64, an accumulator each.
 *
 * A thread decodes a piece of its row to shared memory. Where the planner allows, codes are read as words instead (formats/words.h).
 */
#ifndef HC_CUDA_GEMV_H
#define HC_CUDA_GEMV_H

#include "cuda/codec.h"

enum { HC_GEMV_VECTORS = 8 };

/* Adds what the lanes of a row have, and the answers that are there. Rows of w are fewer than 2^21, as the planner saw to. */
template <bool has_groups, bool is_rolled = false, int MOST, int CHAINS>
static inline HC_DEVICE void hc_gemv_store(const hc_cuda_gemv &p, int row, float row_scale, float (&sums)[MOST][CHAINS],
                                           int64_t first = 0 /* vector */) {
    enum { LANES = has_groups ? 16 : 8 };
#pragma unroll(is_rolled ? 1 : MOST)
    for (int v = 0; v < MOST; v++) {
        if (v >= (int)p.vectors)
            continue;
#pragma unroll
        for (int mask = LANES / 2; mask > 0; mask /= 2)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                sums[v][i] = hc_shuffle_add(sums[v][i], mask);
#pragma unroll
        for (int half = CHAINS / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; i++)
                sums[v][i] = sums[v][i] + sums[v][i + half];
        float sum = sums[v][0] * row_scale;
        if (sum != sum)
            sum = hc_f32_from_bits(0x7fc00000); /* every NaN is the same one */
        if (row >= p.geometry.rows || (int)threadIdx.x % LANES)
            continue;
        if (p.bias)
            sum += p.bias[row];
        *(float *)(p.y + (first + v) * p.y_row + row * p.y_column) = sum;
    }
}

/* A thread decodes. */
template <typename format, bool has_groups> static inline HC_DEVICE void hc_gemv_decoded(const hc_cuda_gemv &p) {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, MOST = HC_GEMV_VECTORS };
    const hc_geometry &g = p.geometry;
    const int lane = (int)threadIdx.x % LANES, vectors = (int)p.vectors;
    const int wanted = (int)(blockIdx.x * blockDim.x + threadIdx.x) / LANES, row = hc_min(wanted, (int)g.rows - 1);
    const int64_t padded_run = g.padded / g.runs, span = has_groups ? g.group : 8;
    float *codes = (float *)hc_shared() + (int64_t)threadIdx.x * p.ld;
    float scale = 1, row_scale = 1, sums[MOST][CHAINS] = {};
    for (int64_t first = lane * span; first < g.padded; first += LANES * span) {
        const int columns = (int)hc_min(span, g.padded - first);
        /* a group lies in one run, and is padded at its end */
        const int64_t run = has_groups ? HC_ROW_QUOTIENT(first, padded_run) : 0, in_run = first - run * padded_run;
        const int values = (int)hc_min(columns, has_groups ? g.run_length - in_run : g.columns - first);
        const char *x = p.x.data + (has_groups ? run * g.run_length + in_run : first) * p.x.column_stride;
        float chains[MOST][1] = {};
        const hc_tile tile = {row, 1, first, columns};
        const hc_code_tile out = {codes, columns, &scale, 1, &row_scale};
        format::decode_codes(&p.format, &g, &p.parts, &tile, &out);
        for (int c = 0; c < values; c += CHAINS)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) {
                if (c + i >= values)
                    continue;
#pragma unroll(format::is_rolled ? 1 : MOST)
                for (int v = 0; v < MOST; v++) {
                    if (v >= vectors)
                        continue;
                    float *sum = has_groups ? &chains[v][0] : &sums[v][i];
                    const char *at = x + v * p.x.rows.stride[0] + (c + i) * p.x.column_stride;
                    *sum = fmaf(hc_load_value(at, p.x.dtype), codes[c + i], *sum);
                }
            }
#pragma unroll(format::is_rolled ? 1 : MOST)
        for (int v = 0; v < MOST; v++)
            if (has_groups && v < vectors)
                sums[v][0] = fmaf(scale, chains[v][0], sums[v][0]);
    }
    hc_gemv_store<has_groups, format::is_rolled>(p, wanted, row_scale, sums);
}

/* Kept values of a pattern, of one run: a zero adds nothing, whatever x holds there. With groups, thread i of 16 has the groups i, i + 16, ...
 * of kept values. Without, thread i of 8 has the whole columns 8 i to 8 i + 7 of every 64. */
template <typename format, bool has_groups> static inline HC_DEVICE void hc_gemv_kept(const hc_cuda_gemv &p) {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, MOST = HC_GEMV_VECTORS };
    const hc_geometry &g = p.geometry;
    const int lane = (int)threadIdx.x % LANES, vectors = (int)p.vectors, n = p.format.n, m = p.format.m;
    const int wanted = (int)(blockIdx.x * blockDim.x + threadIdx.x) / LANES, row = hc_min(wanted, (int)g.rows - 1);
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
        HC_SHORT_LOOP
        for (int c = 0; c < count; c++) {
            const int64_t column = hc_kept_column(p.format, g, p.parts.part[HC_METADATA], row, 0, from + c);
            const int64_t place = has_groups ? 0 : column - first;
            if (column >= g.whole_length || place < 0 || place >= span)
                continue;
            const char *x = p.x.data + column * p.x.column_stride;
#pragma unroll(format::is_kept_rolled ? 1 : MOST)
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
#pragma unroll(format::is_kept_rolled ? 1 : MOST)
        for (int v = 0; v < MOST; v++)
            if (has_groups && v < vectors)
                sums[v][0] = fmaf(scale, chains[v], sums[v][0]);
    }
    hc_gemv_store<has_groups, format::is_kept_rolled>(p, wanted, row_scale, sums);
}

/* The formats of a family that have groups, have none, or are of both kinds. */
enum { HC_WITH_GROUPS = 1, HC_WITHOUT_GROUPS = 2, HC_BOTH = 3 };
#define HC_GEMV_KINDS(kinds, function, ...)                                                                            \
    if constexpr (kinds == HC_WITH_GROUPS)                                                                             \
        function<__VA_ARGS__, true>(p);                                                                                \
    else if constexpr (kinds == HC_WITHOUT_GROUPS)                                                                     \
        function<__VA_ARGS__, false>(p);                                                                               \
    else if (p.lanes == 16)                                                                                            \
        function<__VA_ARGS__, true>(p);                                                                                \
    else                                                                                                               \
        function<__VA_ARGS__, false>(p)

#define HC_GEMV(family, format, kinds)                                                                                 \
    HC_KERNEL(hc_gemv_##family, hc_cuda_gemv, 128, 1) { HC_GEMV_KINDS(kinds, hc_gemv_decoded, format); }
/* Those of patterns; a family without a pattern has none. */
#define HC_KEPT(family, format, kinds)                                                                                 \
    HC_KERNEL(hc_gemv_kept_##family, hc_cuda_gemv, 128, 1) { HC_GEMV_KINDS(kinds, hc_gemv_kept, format); }
/* The kernels that every family with patterns has, after its encoders. */
#define HC_FAMILY(family, format, kinds)                                                                               \
    HC_DECODERS(family, format)                                                                                        \
    HC_CHANCE(family, format)                                                                                          \
    HC_GEMV(family, format, kinds)                                                                                     \
    HC_KEPT(family, format, kinds)

#endif
