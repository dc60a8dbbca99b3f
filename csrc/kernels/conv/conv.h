/* Convolution of images whose channels lie side by side: contracts of the kernels that read windows where they lie.
 *
 * A window is `taps` runs of neighbouring values (the channels under one tap, or all taps of a filter's row where those are
 * neighbours), each reached by a pointer; a run outside of the image is one of zeros.
 */
#ifndef HC_KERNELS_CONV_H
#define HC_KERNELS_CONV_H

#include "base/packed.h"

/* direct_f32:  c[i * ldc + j] = fmaf chain from +0 over taps t and values v of a run, both ascending, of
 * rows[t * mr + i][v] * panel[(t * run + v) * nr + j], for i < n_rows <= mr and all nr columns. Rows past n_rows are not
 * read. The panel is that of b of gemm_f32 with the same nr. */
typedef void hc_direct_f32_fn(int64_t taps, int64_t run, const float *const *rows, const float *panel, int n_rows,
                              float *c, int64_t ldc);

/* depthwise_f32:  c[i * ldc + j] = fmaf chain from +0 over taps t ascending of tap[t][i * step[t] + j] * panel[t * ld + j], for
 * i < n and j < count: every channel has a filter of its own. A step of 0: the same values, zeros, for every i. */
typedef void hc_depthwise_f32_fn(int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                                 int64_t ld, int64_t n, int64_t count, float *c, int64_t ldc);

/* Winograd F(m x m, 3 x 3), m 2, 4 or 6, n = m + 2, of values side by side; the matrices and the order of every sum are
 * those of heterocompute/reference/winograd.py, columns down first, then rows across.
 *   winograd_input_f32   v[(i * n + j) * step + c] = (B^T d B)[i, j] of pixel[h * n + w][c], c < count
 *   winograd_filter_f32  u[(i * n + j) * step + f] = (G g G^T)[i, j] of taps[(r * 3 + s) * tap_step + f], f < count
 *   winograd_output_f32  answer[p * m + q][f] = (A^T y A)[p, q] of y[(i * n + j) * step + f], f < count, plus bias[f]
 *                        unless NULL; relu: what is not above 0 becomes +0, NaN stays; answer NULL: left out */
typedef void hc_winograd_input_f32_fn(int m, const float *const *pixel, int64_t count, float *v, int64_t step);
typedef void hc_winograd_filter_f32_fn(int m, const float *taps, int64_t tap_step, int64_t count, float *u,
                                       int64_t step);
typedef void hc_winograd_output_f32_fn(int m, const float *y, int64_t step, int64_t count, const float *bias, bool relu,
                                       float *const *answer);

#endif
