/* Matmuls with compressed weights: rows of stored values with their columns (CSR), and EIE's entries.
 *
 * Stored value t of a row has the weight values[t] and the column indices[t], a valid one; columns of a row ascend.
 */
#ifndef HC_KERNELS_COMPRESSED_H
#define HC_KERNELS_COMPRESSED_H

#include "base/base.h"

/* csr_spmm:  tile[i * lanes + j] = fmaf chain over t = begin[i] .. end[i] - 1 ascending of values[t] *
 * panel[(indices[t] - first) * lanes + j], from +0 or, with accumulate, from the tile. lanes is the kernel's nr, nr / 2
 * or nr / 4. */
typedef void hc_csr_spmm_fn(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,
                            const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,
                            float *tile);

/* csr_copy:  to[t] = indices[t], t < n. Returns the number of t from 1 on with indices[t] < indices[t - 1]; *inside: no
 * index is outside of [0, columns). */
typedef int64_t hc_csr_copy_fn(int64_t n, const int32_t *indices, int64_t columns, int32_t *to, bool *inside);

/* csr_spmv:  acc[(t - starts[i]) % 8] = fmaf(values[t], x[indices[t]], acc[...]), t = starts[i] .. starts[i + 1] - 1
 * ascending from +0; out[i] = acc folded i with i + 4, + 2, + 1. */
typedef void hc_csr_spmv_fn(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                            const float *x, float *out);

/* csr_chain:  out[i] = fmaf chain over t = starts[i] .. starts[i + 1] - 1 ascending of values[t] * x[indices[t]], from
 * +0. */
typedef void hc_csr_chain_fn(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                             const float *x, float *out);

/* eie_columns: one processing element; `lanes` vectors, 1 or 8, value v of column columns[i] is x[i * lanes + v]. For
 * i < n column j = columns[i], its entries t = pointers[j] .. pointers[j + 1] - 1: the run (high 4 bits) is the number
 * of skipped rows, then the code (low 4 bits) gives sums[row * lanes + v] = fmaf(codebook[code], x[...], sums[...]),
 * except for an x of 0. Code 0 is padding; it is not multiplied by an x that is not finite. `readable`: number of
 * entries, those of the following elements included. */
typedef void hc_eie_columns_fn(int64_t n, const int32_t *columns, const float *x, int lanes, const uint32_t *pointers,
                               const uint8_t *entries, int64_t readable, const float *codebook, float *sums);

/* outer_f32: for i < count pixels to[i * lanes + j] = fmaf chain over t from starts[i * step] up to starts[i * step +
 * 1] of values[t] * panel[at[t] * lanes + j], from itself. lanes is 16, 32, 48 or 64. guarded: weights of 0 are
 * skipped. Otherwise all values are finite and no sum is -0, so weights of 0 add nothing. */
enum { HC_OUTER_LANES = 64 };
typedef void hc_outer_f32_fn(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                             const float *panel, int lanes, bool guarded, float *to);

/* Items of 1, 2, 4 or 8 bytes, 64 for each word of bits. bitmap_mark: bit i % 64 of bits[i / 64] = item i has a bit
 * that is set. bitmap_compress: the items whose bit is set, one after the other; nothing is written after the last.
 * bitmap_expand: the inverse, with zeros between them; nothing is read after the last. Pointers need no alignment. */
typedef void hc_bitmap_mark_fn(int bytes, int64_t words, const void *items, uint64_t *bits);
typedef void hc_bitmap_compress_fn(int bytes, int64_t words, const uint64_t *bits, const void *items, void *kept);
typedef void hc_bitmap_expand_fn(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items);

#endif
