/* Products of many rows: contracts of the kernels that work on panels, and on the sums that come out.
 *
 * Panel of a (mr rows) or b (nr rows):   panel[(k / kr * mr + i) * kr + k % kr]; of integers, aligned as 4 of them.
 */
#ifndef HC_KERNELS_GEMM_H
#define HC_KERNELS_GEMM_H

#include "base/packed.h"

/* gemm_f32:  c[i * ldc + j] = fmaf chain over k ascending of a[i, k] * b[j, k], from +0 or from c (accumulate).
 * Always the full mr x nr tile. kr = 1. */
typedef void hc_gemm_f32_fn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate);

/* gemm_s8:  c[i * nr + j] = init[j] + sum_k a[i, k] * b[j, k], modulo 2^32, for n_steps steps of kr values.
 * b is int8, laid out with 4 for kr even where the kernel's kr is a multiple of 4; how the panel of a is stored is the
 * line's `form`, and init carries the correction for it:
 *   HC_PANEL_S8   int8 as it is, or an unsigned limb minus 128 (init: 128 * column sum of b)
 *   HC_PANEL_U8   an unsigned limb as it is, or int8 plus 128 (init: -128 * column sum of b)
 *   HC_PANEL_S16  either widened to int16
 * Budget: |a|, |b| <= 255, 128 and k <= 65536 keep the true sum inside int32. */
enum { HC_PANEL_F32 = 0, HC_PANEL_S8, HC_PANEL_U8, HC_PANEL_S16 };
typedef void hc_gemm_s8_fn(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c);

/* gemm_s8_scaled:  c[i * nr + j] = fmaf(float(scale_a[s, i] * scale_b[s, j]), float(dot_s(i, j)), c), segments s
 * ascending, dot_s the exact integer sum of segment s (as gemm_s8, with init[s * nr + j]; the form U8 alone has and
 * reads init); c starts from +0 or from what it holds. Segment s has steps[s] steps of kr values. Budget: as gemm_s8,
 * for each segment. gemm_small_scaled is the same where no |b| is above the line's `small`, if that is not 0. */
typedef void hc_gemm_s8_scaled_fn(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                  const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                                  bool accumulate);

/* gemm_small_split:  c[i * nr + j] = sum over segments s of scale_b[s, j] * dot_s(i, j), modulo 2^32, as gemm_small_scaled,
 * scale_b integers up to 2^24. */
typedef void hc_gemm_small_split_fn(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                    const int32_t *init, const float *scale_b, int32_t *c);

/* rows_s8:  c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32, of rows as they lie, k
 * beside k: n_x of x, at most HC_ROWS_X, and any number of w, which are not read behind their last column. Rows of x can
 * be read up to a multiple of HC_ROWS_STEP columns and hold 0 there. x_sums[i] = sum_k x_i[k], for kernels that add 128 or 8
 * to w. Budget: |x|, |w| <= 128 and 65536 columns keep the true sum inside int32. */
enum { HC_ROWS_X = 8, HC_ROWS_STEP = 64 };
typedef struct {
    int n_x;
    int64_t n_w, columns;
    int64_t ld_x, ld_w, ldc; /* from row to row */
    const int8_t *x, *w;
    const int32_t *x_sums;
    bool accumulate;
    int32_t *c;
    /* Hints for prefetch: the row of w that is wanted when row 0 has had its turn, or NULL; this call is number `part` of
     * `parts` that do it together. */
    const int8_t *next;
    int part, parts;
    bool is_small; /* no |w| is above the kernel's `small`: it may add more of their products before it widens them */
    const uint8_t *scales; /* rows_s4 */
    int64_t ld_scales;
    int words;            /* of 32 bits of codes that share a scale: 2, 4 or 8; 0: there are none */
    const int32_t *start; /* of x beside scales: -8 times the sum over the 8 columns of each word; one or two rows are faster
                           * with it, or NULL */
    int64_t ld_start;
} hc_rows_s8_args;
typedef void hc_rows_s8_fn(const hc_rows_s8_args *args);

/* rows_s4:  the same of codes of 4 bits as they are stored, two's complement, ld_w in bytes: w_j[k] = scale * code, the
 * unsigned scales of 4 bits at scales + j * ld_scales, or 1. Neither codes nor scales are read behind the last column.
 * x holds of each 128 columns the 64 even ones before the odd ones; it can be read up to a multiple of 128. There
 * is no scalar kernel: rows_s8 of decoded rows is it. */

/* bytes_s4:  the rows of w that rows_s4 takes as int8, those of its x's order: out[j * ld + place], written up to a multiple of
 * 128 columns; `next` is a hint as there. No scalar kernel either. */
typedef void hc_bytes_s4_fn(const hc_rows_s8_args *args, int8_t *out, int64_t ld);

/* lanes_s8:  c[j * ldc + i] = (accumulate ? c[j * ldc + i] : 0) + sum_k x_i[k] * w_j[k], modulo 2^32: w as in rows_s8, rows of
 * x side by side, x[(k / 4 * lanes + i) * 4 + k % 4] = x_i[k] + 128 as uint8, columns up to a multiple of 4. lanes is a
 * multiple of the line's mr, at most HC_LANES_X of them, or HC_LANES_FEW: then eight columns of a row lie together where
 * otherwise four do. Budget: as rows_s8. */
enum { HC_LANES_X = 4, HC_LANES_FEW = 8 };
typedef struct {
    int lanes;
    int64_t n_w, columns;
    int64_t ld_w, ldc;
    const uint8_t *x;
    const int8_t *w;
    bool accumulate;
    int32_t *c;
    const int8_t *next; /* as in rows_s8 */
    int part, parts;
} hc_lanes_s8_args;
typedef void hc_lanes_s8_fn(const hc_lanes_s8_args *args);

/* dequantize_s32:  out[i, j] = float32((float64(scale_a[i]) * float64(scale_b[j])) * float64(c[i, j])) for the first
 * `columns` columns of each row; dequantize_s64: the same of 64-bit sums. */
typedef void hc_dequantize_s32_fn(int64_t rows, int64_t columns, const int32_t *c, int64_t ldc, const float *scale_a,
                                  const float *scale_b, float *out, int64_t ldo);
typedef void hc_dequantize_s64_fn(int64_t rows, int64_t columns, const int64_t *c, int64_t ldc, const float *scale_a,
                                  const float *scale_b, float *out, int64_t ldo);

/* combine_limbs:  dots[t] += sum over p < n of tiles[p * count + t] * 2^shifts[p], modulo 2^64; count a multiple of 8.
 * scale_s64: c[i, j] = fmaf(float(scale_a[i] * scale_b[j]), float(dots[i, j]), c[i, j]), columns a multiple of 8. */
typedef void hc_combine_limbs_fn(int n, int64_t count, const int32_t *tiles, const int *shifts, int64_t *dots);
typedef void hc_scale_s64_fn(int64_t rows, int64_t columns, const int64_t *dots, const float *scale_a,
                             const float *scale_b, float *c);

/* pack_x32:  panel[u * lanes + i] = unit u of row i, XOR flip, for n_rows rows of 32-bit units (a float, or 4 bytes of
 * an integer panel with kr = 4), row_bytes apart, at most 16 of them; other lanes stay as they are. */
typedef void hc_pack_x32_fn(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                            uint32_t flip);

/* compensation_s8:  sums[s * lanes + j] = factor * sum over segment s of row j of an int8 panel with kr = 4; segment s has
 * steps[s] * units groups of 4 values. */
typedef void hc_compensation_s8_fn(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                                   int32_t factor, int32_t *sums);

#endif
