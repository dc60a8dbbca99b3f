/* Weights that keep n of every m values: definitions of the kernels that choose, expand and multiply nonzeros.
 *
 * GEMV kernels have the same orders of sums as those of kernels/gemv/gemv.h, without the terms of the other
 * values.
 */
#ifndef HC_KERNELS_NM_H
#define HC_KERNELS_NM_H

#include "kernels/gemm/gemm.h"
#include "kernels/gemv/gemv.h"

/* gemm_nm_s8_of8, _of16, _of32, _of64: as gemm_s8, but b has 4 nonzeros in every 8, 16, 32 or 64 (kr) values of k. A
 * step of b is nr times 4 nonzeros as int8, then nr times their 4 indices among the kr. Forms S16 and U8; for U8 init
 * is -128 * sum of the nonzeros. VBMI kernels also need VNNI. Budget: as gemm_s8. */
typedef hc_gemm_s8_fn hc_gemm_nm_s8_fn;

/* choose_nm: hc_nm_choose of sparsity/nm.h: of every m values the n with the largest score. Kernels may decline before
 * they write. There is no scalar kernel: hc_nm_choose is the definition. */
typedef int64_t hc_choose_nm_fn(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                                uint8_t *metadata);

/* indices_nm: at[t] = base[t] + min(position t, m - 1), positions of ceil(log2 m) bits in `bytes` bytes of metadata.
 * Returns the number of t that it computed, a multiple of 8; the caller computes the rest of `count`. There is no
 * scalar kernel: hc_nm_positions of sparsity/nm.h is the definition. */
typedef int64_t hc_indices_nm_fn(int m, const uint8_t *metadata, int64_t bytes, const uint16_t *base, int64_t count,
                                 uint16_t *at);

/* masks_nm:  masks[0 .. result) of hc_nm_masks for blocks whose m divides 64. `metadata` begins with a block and has
 * `bytes` bytes. Returns how many of `words` it wrote. There is no scalar kernel: hc_nm_table_masks is the
 * definition. */
typedef int64_t hc_masks_nm_fn(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks);

/* expand_x4, expand_x8, expand_x32: out[k] = the next of `kept` if bit k % 64 of masks[k / 64] is set, otherwise 0, for
 * 64 * words items of 4, 8 or 32 bits; two 4-bit items per byte, the lower half first. No other byte of `kept` is
 * read. */
typedef void hc_expand_fn(int64_t words, const uint64_t *masks, const void *kept, void *out);

/* gemm_nm_f32: to[i * ld_to + j] = fmaf chain over t < count ascending of values[i * count + t] * panel[at[i * count +
 * t] * lanes + j], from from[i * ld_from + j], or +0 if from is NULL. lanes: a multiple of mr up to nr; with few
 * nonzeros kr is the fastest. next: the part of the panel that the following call reads, for prefetch. */
typedef void hc_gemm_nm_f32_fn(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                               int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to,
                               const char *next, int64_t next_bytes);

/* gemv_nm: sums[v * 64 + k % 64] = fmaf(x[v * ldx + k], c_k, sums[...]), k ascending, for the k whose bits are set in
 * masks (bit k % 64 of word k / 64); codes holds c of only these k. Codes before `end` may be read, and all of x,
 * except with one vector in the last word, where only nonzeros are read; n_vectors is 1, 2, 4 or 8. Returns the address
 * of the next codes. */
typedef const float *hc_gemv_nm_fn(int64_t words, const uint64_t *masks, const float *codes, const float *end,
                                   const float *x, int64_t ldx, int n_vectors, float *sums);

/* gemv_24: gemv_nm of whole words of 2:4, from their metadata; all of codes and x may be read. There is no scalar
 * kernel: gemv_nm is the definition. */
typedef void hc_gemv_24_fn(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx,
                           int n_vectors, float *sums);

/* gemv_24_groups: gemv_groups of 2:4 with 4-bit codes. A group of 16, 32 or 64 codes spans twice as many columns, and x
 * is in that order. `floats` counts whole groups; the sums of 16 lanes are written to out (4, n_vectors, 16), not
 * folded. There is no scalar kernel: gemv_nm_batch is the definition. */
typedef struct {
    hc_gemv_floats_args floats;
    const uint8_t *metadata[HC_GEMV_ROWS];
} hc_gemv_24_floats_args;
typedef void hc_gemv_24_groups_fn(const hc_gemv_24_floats_args *args);

/* gemv_nm_batch:  vector v in lane v, for 4 rows of nonzero codes; code t is multiplied by panel[at[t] * 8 + v].
 *
 *   groups  p = fmaf chain over the group's codes from +0; sums[g % 16 * 8 + v] = fmaf(scales[g], p, sums[...])
 *   none    sums[at[t] % 64 * 8 + v] = fmaf(x, c, sums[...]), t ascending
 *
 * Rows have 16 or 64 times 8 sums. Lanes from n_vectors on need not be written. */
enum { HC_GEMV_BATCH = 8 };
typedef struct {
    int n_vectors;
    int64_t kept, group; /* 0: none; the last may be short */
    const float *codes[HC_GEMV_ROWS], *scales[HC_GEMV_ROWS];
    const uint16_t *at[HC_GEMV_ROWS];
    const float *panel;
    float *sums;
} hc_gemv_nm_batch_args;
typedef void hc_gemv_nm_batch_fn(const hc_gemv_nm_batch_args *args);

/* gemv_24_folded: integers of 2:4; code t of a row is multiplied by x_v of column k = 4 * (t / 2) + its position.
 * sums[v] = sum of x_v * ((code ^ flip) - zero), codes of 4 bits, times the unsigned integer of 4 bits of its group, of
 * 2, 4 or 8 32-bit words; x_v + 128 as uint8 at k / 256 * 256 + k % 4 * 64 + k % 256 / 4, 128 without a column.
 *
 * x may be read up to a multiple of 512. Budget: |x| <= 128 and at most 2^18 codes keep every lane inside int32. There
 * is no scalar kernel: matmuls with panels give the same integers. */
typedef struct {
    int flip, zero, words;
    int n_vectors;                           /* 1, 2 or 4 */
    int64_t code_bytes, metadata_bytes, ldx; /* ldx: of x, in bytes */
    const uint8_t *codes, *metadata, *scales;
    const void *x;
    int64_t *sums;
} hc_gemv_24_args;
typedef void hc_gemv_24_integers_fn(const hc_gemv_24_args *args);

/* gemv_24_panels:  gemv_24_folded of 4 rows. x_v + 128 of column k, which is column c of quad t of group g of 16 codes
 * among the 16 of block k / 512, is the uint8 at 512 * (k / 512) + 128 * (t / 4 * 2 + t % 2) + place, where quad
 * n = (g / 2 % 4 * 8 + g / 8 * 4 + g % 2 * 2) + t / 2 % 2 of such a panel of 32 has place 4 * n + c in even panels,
 * n % 16 + 16 * c + 64 * (n / 16) in odd ones. x may be read up to a multiple of 1024, ldx is one.
 * Budget: |x| <= 128, |c| <= 15 and at most 2^16 codes keep every sum inside int32, every group's dot inside int16. */
typedef struct {
    int flip, zero, words;
    int n_vectors;                           /* 1, 2 or 4 */
    int64_t code_bytes, metadata_bytes, ldx; /* ldx: of x, in bytes */
    const uint8_t *codes[HC_GEMV_ROWS], *metadata[HC_GEMV_ROWS], *scales[HC_GEMV_ROWS];
    const uint8_t *x;
    int32_t *sums; /* (n_vectors, 4) */
} hc_gemv_24_panels_args;
typedef void hc_gemv_24_panels_fn(const hc_gemv_24_panels_args *args);

/* Integers of other patterns, 4 of every kr columns: code t of a row is multiplied by x_v of column t / 4 * kr +
 * (position t | byte t % 4 of base), positions of 1 to 5 or 8 bits.
 *
 *   gemv_nm_dots    sums[v] = sum of x_v * code, two's complement of 8 bits
 *   gemv_nm_folded  sum of x_v * ((code ^ flip) - zero), codes of 4 bits, times the unsigned integer of 4 bits of its group,
 *                    of 2, 4 or 8 32-bit words; words 0: all of them times the first
 *
 * x_v is x + 128 as uint8, 128 without a column; it is read up to a multiple of 16 * kr. kr is 8, 16, 32 or 64. VBMI
 * kernels also need VNNI. Budget: |x| <= 128 and at most 2^18 codes keep every lane inside int32. There are no scalar
 * kernels: matmuls with panels give the same integers. */
typedef struct {
    int kr, position_bits, flip, zero, words;
    uint32_t base;
    int n_vectors; /* 1, 2 or 4 */
    int64_t rows, code_bytes, metadata_bytes, scale_bytes;
    int64_t codes_stride, metadata_stride, scales_stride, ldx; /* from row to row, from vector to vector */
    const uint8_t *codes, *metadata, *scales, *x;
    int64_t ld_sums, *sums; /* sums[row * ld_sums + v] */
} hc_gemv_nm_integers_args;
typedef void hc_gemv_nm_integers_fn(const hc_gemv_nm_integers_args *args);

#endif
