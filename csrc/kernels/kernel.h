/* The kernels: one typedef, one equation and one overflow budget a family.
 *
 * A kernel never allocates, never schedules, never fails, never prints. Sizes arrive legal, panels are padded with
 * zeros to full mr, nr and kr. One line in kernels.def, best first within its family and scalar last, makes a
 * kernel known; hc_kernel_pick takes the first line whose `needs` fit. Every ISA gives the bits of the scalar line.
 *
 * Panel of a (mr rows) or b (nr rows):   panel[(k / kr * mr + i) * kr + k % kr]
 */
#ifndef HC_KERNEL_H
#define HC_KERNEL_H

#include "base/cpu.h"
#include "base/packed.h"

/* gemm_f32:  c[i * ldc + j] = fmaf chain over k ascending of a[i, k] * b[j, k], from +0 or from c (accumulate).
 * Always the full mr x nr tile. kr = 1. */
typedef void hc_gemm_f32_fn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate);

/* gemm_s8:  c[i * nr + j] = init[j] + sum_k a[i, k] * b[j, k], modulo 2^32, for n_steps steps of kr values.
 * b is int8, laid out with 4 for kr even where the line's kr is a multiple of 4; how the panel of a is stored is the
 * line's `form`, and init carries the correction for it:
 *   HC_PANEL_S8   int8 as it is, or an unsigned limb minus 128 (init: 128 * column sum of b)
 *   HC_PANEL_U8   an unsigned limb as it is, or int8 plus 128 (init: -128 * column sum of b)
 *   HC_PANEL_S16  either widened to int16
 * Budget: |a|, |b| <= 255, 128 and k <= 65536 keep the true sum inside int32. */
enum { HC_PANEL_F32 = 0, HC_PANEL_S8, HC_PANEL_U8, HC_PANEL_S16 };
typedef void hc_gemm_s8_fn(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c);

/* sparse_s8_of8, _of16, _of32, _of64:  as gemm_s8, but of so many k (kr) b keeps 4, and all else of b is 0. A step of b is nr
 * times 4 kept int8, then nr times their 4 places among the kr. Forms S16 and U8, for this one init is -128 * sum of what is
 * kept. VBMI lines need VNNI besides. Budget: as gemm_s8. */
typedef hc_gemm_s8_fn hc_sparse_s8_fn;

/* gemm_s8_scaled:  c[i * nr + j] = fmaf(float(scale_a[s, i] * scale_b[s, j]), float(dot_s(i, j)), c), segments s
 * ascending, dot_s the exact integer sum of segment s (as gemm_s8, with init[s * nr + j]; the form U8 alone has and
 * reads init); c starts from +0 or from what it holds. Segment s has steps[s] steps of kr values. Budget: as gemm_s8,
 * for each segment. */
typedef void hc_gemm_s8_scaled_fn(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                  const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                                  bool accumulate);

/* fold_s32:  out[i, j] = float32((float64(scale_a[i]) * float64(scale_b[j])) * float64(c[i, j])) for the first
 * `columns` columns of each row; fold_s64: the same of 64-bit sums. */
typedef void hc_fold_s32_fn(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                            const float *scale_b, float *out, int64_t ldo);
typedef void hc_fold_s64_fn(int64_t rows, int64_t columns, const int64_t *c, int64_t ldc, const float *scale_a,
                            const float *scale_b, float *out, int64_t ldo);

/* join_s32:  dots[t] += sum over p < n of tiles[p * count + t] * 2^shifts[p], modulo 2^64; count a multiple of 8.
 * scale_s64: c[i, j] = fmaf(float(scale_a[i] * scale_b[j]), float(dots[i, j]), c[i, j]), columns a multiple of 8. */
typedef void hc_join_s32_fn(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots);
typedef void hc_scale_s64_fn(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a,
                             const float *scale_b, float *c);

/* pack_x32:  panel[u * lanes + i] = unit u of row i, XOR flip, for n_rows rows of 32-bit units (a float, or 4 bytes of
 * an integer panel with kr = 4), row_bytes apart, at most 16 of them; other lanes stay as they are. */
typedef void hc_pack_x32_fn(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                            uint32_t flip);

/* sums_s8:  sums[s * lanes + j] = factor * sum over segment s of row j of an int8 panel with kr = 4; segment s has
 * steps[s] * units groups of 4 values. */
typedef void hc_sums_s8_fn(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                           int32_t factor, int32_t *sums);

/* choose_nm:  hc_nm_choose of sparsity/nm.h: of every m values the n with the largest score. Lines may decline before
 * they write; there is no scalar line: hc_nm_choose is it. */
typedef int64_t hc_choose_nm_fn(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                                uint8_t *metadata);

/* place_nm:  at[t] = base[t] + min(position t, m - 1), positions of ceil(log2 m) bits in `bytes` bytes of metadata.
 * Returns how many it did: the first t of `count`, a multiple of 8; the others are the caller's. There is no scalar line:
 * hc_nm_positions of sparsity/nm.h is it. */
typedef int64_t hc_place_nm_fn(int m, const uint8_t *metadata, int64_t bytes, const uint16_t *base, int64_t count,
                               uint16_t *at);

/* gather_x32:  the x[k] whose bits are set in masks (bit k % 64 of word k / 64), k < columns, ascending; answers how many.
 * Up to 16 more of `out` may be written. */
typedef int64_t hc_gather_x32_fn(int64_t columns, const uint64_t *masks, const float *x, float *out);

/* masks_nm:  masks[0 .. answer) of hc_nm_masks for blocks of m that 64 is a multiple of, `metadata` beginning with a block
 * and so many bytes long; answers how many of `words` it wrote. There is no scalar line: hc_nm_table_masks is it. */
typedef int64_t hc_masks_nm_fn(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks);

/* spread_x4, spread_x8, spread_x32:  out[k] = the next of `kept` where bit k % 64 of masks[k / 64] is set, else 0, for 64 * words
 * places of 4, 8 or 32 bits; those of 4 bits two in a byte, the lower first. No other byte of `kept` is read. */
typedef void hc_spread_fn(int64_t words, const uint64_t *masks, const void *kept, void *out);

/* sparse_f32:  to[i * ld_to + j] = fmaf chain over t < count ascending of values[i * count + t] *
 * panel[at[i * count + t] * lanes + j], from from[i * ld_from + j], or +0 where from is NULL. lanes: a multiple of mr
 * up to nr, and where little is kept kr is the best. next: what the following call reads of its panel, for prefetch. */
typedef void hc_sparse_f32_fn(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                              int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to, const char *next,
                              int64_t next_bytes);

/* outer_f32:  for i < count pixels to[i * lanes + j] = fmaf chain over t from starts[i * step] up to starts[i * step + 1]
 * of values[t] * panel[at[t] * lanes + j], from itself. lanes is 16, 32, 48 or 64. guarded: weights of 0 are left out;
 * else they meet finite values alone and no sum is -0, so that they add nothing. */
enum { HC_OUTER_LANES = 64 };
typedef void hc_outer_f32_fn(int64_t count, const int32_t *starts, int64_t step, const float *values, const uint8_t *at,
                             const float *panel, int lanes, bool guarded, float *to);

/* Items of 1, 2, 4 or 8 bytes, 64 for each word of bits. bitmap_mark: bit i % 64 of bits[i / 64] = item i has a bit that
 * is set. bitmap_keep: the items whose bit is set, one after the other; nothing behind the last is written.
 * bitmap_place: the way back, zeros between them; nothing behind the last is read. Pointers have no alignment. */
typedef void hc_bitmap_mark_fn(int bytes, int64_t words, const void *items, uint64_t *bits);
typedef void hc_bitmap_keep_fn(int bytes, int64_t words, const uint64_t *bits, const void *items, void *kept);
typedef void hc_bitmap_place_fn(int bytes, int64_t words, const uint64_t *bits, const void *kept, void *items);

#include "kernels/compressed.h" /* the families of compressed weights */
#include "kernels/few.h"        /* the families of products with few vectors */
#include "kernels/limit.h"      /* the families of benchmark loops */

/* observe_<format> (the passes before), encode_<format>, values_<format> (float32), integers_<format> (of products),
 * codes_<format> (scales apart): typedefs hc_observe_fn, hc_encode_fn, hc_decode_fn, hc_decode_int_fn, hc_decode_codes_fn
 * of base/packed.h. They may decline; there is no scalar line: the format's own function is it. */

typedef struct {
    const char *family; /* "gemm_s8", "encode_vsq" */
    const char *isa;    /* the suffix */
    uint32_t needs;
    int mr, nr, kr;
    int form; /* of the panel of a, HC_PANEL_... */
    void (*fn)(void);
} hc_kernel;

/* The first line of the family at or after `from` (NULL: the first of all) that the mask allows; NULL if none. */
const hc_kernel *hc_kernel_pick(const char *family, uint32_t isa, const hc_kernel *after);

/* All lines that this build holds, for tests and benchmarks. */
const hc_kernel *hc_kernels(int *count);

#endif
