/* Products of compressed weights: rows of stored values with their columns (CSR), and EIE's entries.
 *
 * Stored value t of a row has the weight values[t] and the column indices[t], a valid one; columns of a row ascend.
 */
#ifndef HC_COMPRESSED_H
#define HC_COMPRESSED_H

/* csr_f32:  tile[i * lanes + j] = fmaf chain over t = begin[i] .. end[i] - 1 ascending of values[t] *
 * panel[(indices[t] - first) * lanes + j], from +0 or, with accumulate, from the tile. lanes is the line's nr, nr / 2
 * or nr / 4. */
typedef void hc_csr_f32_fn(int64_t rows, const int64_t *begin, const int64_t *end, const float *values,
                           const int32_t *indices, int64_t first, const float *panel, int lanes, bool accumulate,
                           float *tile);

/* csr_vector:  acc[(t - starts[i]) % 8] = fmaf(values[t], x[indices[t]], acc[...]), t = starts[i] .. starts[i + 1] - 1
 * ascending from +0; out[i] = acc folded i with i + 4, + 2, + 1. */
typedef void hc_csr_vector_fn(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                              const float *x, float *out);

/* eie_columns:  one processing element; for i < n column j = columns[i], its entries t = pointers[j] ..
 * pointers[j + 1] - 1: the run (high 4 bits) of rows is passed over, then the code (low 4 bits) gives
 * sums[row] = fmaf(codebook[code], x[i], sums[row]). A code of 0, padding, meets no x that is not finite. */
typedef void hc_eie_columns_fn(int64_t n, const int32_t *columns, const float *x, const uint32_t *pointers,
                               const uint8_t *entries, const float *codebook, float *sums);

#endif
