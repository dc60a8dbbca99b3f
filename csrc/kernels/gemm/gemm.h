/* GEMM: definitions of the kernels that work on panels and on their sums.
 *
 * Panel of a (mr rows) or b (nr rows):   panel[(k / kr * mr + i) * kr + k % kr]; of integers, aligned as 4 of them.
 */
#ifndef HC_KERNELS_GEMM_H
#define HC_KERNELS_GEMM_H

#include "base/packed.h"

/* gemm_f32:  c[i * ldc + j] = fmaf chain over k ascending of a[i, k] * b[j, k], from +0 or from c (accumulate).
 * For the first rows <= mr and columns <= nr of the mr x nr tile; the others may be written, too. kr = 1. */
typedef void hc_gemm_f32_fn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate, int rows,
                            int columns);

/* gemm_flat:  out[i * ldo + j] = fmaf chain over s < k ascending of x[i * ldx + s] * w[s * ldw + j], from +0 or from out
 * (accumulate), for m rows and n columns of float32 of any alignment. ldo is a multiple of 16, and out is read and
 * written up to a multiple of 16 columns. */
typedef void hc_gemm_flat_fn(int64_t k, int64_t n, const float *w, int64_t ldw, int64_t m, const float *x, int64_t ldx,
                             float *out, int64_t ldo, bool accumulate);

/* gemm_s8:  c[i * nr + j] = init[j] + sum_k a[i, k] * b[j, k], modulo 2^32, for n_steps steps of kr values.
 * b is int8, with the layout of kr = 4 even if the kernel's kr is a multiple of 4. `form` is the storage of the panel
 * of a, and init contains the correction for it:
 *   HC_PANEL_S8   int8 as it is, or an unsigned limb minus 128 (init: 128 * column sum of b)
 *   HC_PANEL_U8   an unsigned limb as it is, or int8 plus 128 (init: -128 * column sum of b)
 *   HC_PANEL_S16  either widened to int16, or a limb of 16 bits
 * Budget: |a|, |b| <= 255, 128 and k <= 65536, or of 16-bit limbs shorter k, keep the true sum inside int32. */
enum { HC_PANEL_F32 = 0, HC_PANEL_S8, HC_PANEL_U8, HC_PANEL_S16 };
typedef void hc_gemm_s8_fn(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c);

/* gemm_s8_scaled: c[i * nr + j] = fmaf(float(scale_a[s, i] * scale_b[s, j]), float(dot_s(i, j)), c), segments s
 * ascending, dot_s the exact integer sum of segment s (as gemm_s8, with init[s * nr + j]; only the form U8 reads init,
 * and a panel of the form S8 holds int8); c starts from +0 or from its contents. Segment s has steps[s] steps of kr
 * values. Budget: as gemm_s8, for each segment. gemm_small_scaled is the same if no |b| is above the kernel's `small`,
 * or `small` is 0. */
typedef void hc_gemm_s8_scaled_fn(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                  const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                                  bool accumulate);

/* gemm_small_split:  c[i * nr + j] = sum over segments s of scale_b[s, j] * dot_s(i, j), modulo 2^32, as
 * gemm_small_scaled, scale_b integers up to 2^24. gemm_split_words: the same for panels of the form S16, for processors
 * whose gemm_small_split takes only smaller |b|. There is no scalar kernel. */
typedef void hc_gemm_small_split_fn(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                    const int32_t *init, const float *scale_b, int32_t *c);

/* gemm_few:  gemm_s8 (of one segment), gemm_s8_scaled or gemm_small_split for the first `rows` rows of a tile whose panel
 * of a has mr; more rows of c may be written, up to mr. For panels of the kernel's form whose b has its nr and kr; rows
 * up to the kernel's mr, which is `small` for the last two. gemm_few_words: the same for panels of the form S16. There are
 * no scalar kernels: those three have the same bits. */
typedef enum { HC_FEW_SUMS = 0, HC_FEW_SCALED, HC_FEW_SPLIT } hc_few_kind;
typedef struct {
    hc_few_kind kind;
    int rows, mr;
    int64_t n_segments;
    const int32_t *steps;
    const void *a;
    const int8_t *b;
    const int32_t *init;
    const float *scale_a, *scale_b;
    void *c;         /* of float32 or int32 */
    bool accumulate; /* scaled */
} hc_gemm_few_args;
typedef void hc_gemm_few_fn(const hc_gemm_few_args *args);

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
 * an integer panel with kr = 4), row_bytes apart, at most 16 of them; other lanes are not changed. */
typedef void hc_pack_x32_fn(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                            uint32_t flip);

/* compensation_s8:  sums[s * lanes + j] = factor * sum over segment s of row j of an int8 panel with kr = 4; segment s
 * has steps[s] * units groups of 4 values. */
typedef void hc_compensation_s8_fn(int64_t n_segments, const int32_t *steps, int units, const int8_t *panel, int lanes,
                                   int32_t factor, int32_t *sums);

#endif
