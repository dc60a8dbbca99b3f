/* Convolution of images with contiguous channels: definitions of the kernels that read windows in place. A window is
 * `taps` runs of adjacent values (the channels under one tap, or all taps of a filter's row if these are adjacent),
 * each with a pointer. A run outside of the image consists of zeros.
 */
#ifndef HC_KERNELS_CONV_H
#define HC_KERNELS_CONV_H

#include "base/packed.h"

/* direct_f32:  c[i * ldc + j] = fmaf chain from +0 over taps t and values v of a run, both ascending, of rows[t * mr +
 * i][v] * panel[t * tap_step + v * step + j], for i < n_rows <= mr and j < columns <= nr. Rows past n_rows are not
 * read. With step nr and tap_step run * nr the panel is that of b of gemm_f32 with the same nr. */
typedef void hc_direct_f32_fn(int64_t taps, int64_t run, const float *const *rows, const float *panel, int64_t tap_step,
                              int64_t step, int n_rows, int columns, float *c, int64_t ldc);

/* depthwise_f32: c[i * ldc + j] = fmaf chain from +0 over taps t ascending of tap[t][i * step[t] + j] * panel[t * ld +
 * j], for i < n and j < count: every channel has its own filter. A step of 0: the same values, which are zeros, for
 * every i. */
typedef void hc_depthwise_f32_fn(int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                                 int64_t ld, int64_t n, int64_t count, float *c, int64_t ldc);

/* depthwise_scaled_f32: depthwise_f32 for codes with a scale. The terms of the chain are scale[t * ld + j] *
 * float32(tap[t][i * step[t] + j] * panel[t * ld + j]). */
typedef void hc_depthwise_scaled_f32_fn(int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                                        const float *scale, int64_t ld, int64_t n, int64_t count, float *c,
                                        int64_t ldc);

/* depthwise3_f32:  c[i * c_row + q * ldc + j] = fmaf chain from +0 over taps (r, s) of 3 x 3 ascending of x[(i * stride
 * + r) * w + q * stride + s][j] * panel[(3 * r + s) * ld + j], w = (across - 1) * stride + 3, for i < down <= mr, q <
 * across <= nr and j < count; stride 1 or 2, down and across 1, 2 or 4. Then, unless bias is NULL and relu false, plus bias[j];
 * relu: values not above 0 become +0, NaN stays. */
typedef void hc_depthwise3_f32_fn(int stride, int down, int across, const float *const *x, const float *panel,
                                  int64_t ld, int64_t count, float *c, int64_t c_row, int64_t ldc, const float *bias,
                                  bool relu);

/* plane_gradient_f32: gradients for planes of pixels of windows with stride 2, planes one after the other: c[i * width + j] =
 * fmaf chain from +0 over taps r and s descending, of those with even i + top - r and j + left - s, of dy((i + top - r) / 2,
 * (j + left - s) / 2) * w[r * side[1] + s], for i < height and j < width. dy is rows x columns and 0 outside. side is at
 * most HC_GRADIENT_SIDE. `work` has hc_plane_gradient_work floats. */
enum { HC_GRADIENT_SIDE = 7, HC_PLANE_LANES = 16 };
typedef struct {
    const float *dy, *w;
    float *c, *work;
    int64_t planes, rows, columns, height, width, top, left;
    int side[2];
} hc_plane_gradient;
typedef void hc_plane_gradient_f32_fn(const hc_plane_gradient *plane);
/* Floats of a row of dy with zeros on both sides. */
static inline int64_t hc_plane_gradient_row(int64_t columns, int64_t width, int64_t left) {
    enum { MOST_LANES = 16 };
    return HC_GRADIENT_SIDE + hc_max(columns, (width + left) / 2 + 2) + 2 * MOST_LANES;
}
/* Where pairs of rows are computed: floats of a row of dy with the zeros before the next one, and rows. */
static inline int64_t hc_gradient_pitch(const hc_plane_gradient *p) {
    const int64_t needed = (p->left + 1) / 2 + (p->width + 1) / 2;
    return hc_round_up(hc_max(needed, hc_min(p->columns, needed) + p->side[1] / 2), HC_PLANE_LANES);
}
static inline int64_t hc_gradient_rows(const hc_plane_gradient *p) {
    enum { PAIRS = 2 };
    return hc_round_up((p->height + 1) / 2, PAIRS) + (p->side[0] + 1) / 2 - 1;
}
static inline int64_t hc_plane_gradient_work(const hc_plane_gradient *p) {
    enum { ENDS = 4 * HC_PLANE_LANES };
    return hc_max((p->rows + 3) * hc_plane_gradient_row(p->columns, p->width, p->left),
                  2 * (hc_gradient_rows(p) * hc_gradient_pitch(p) + ENDS));
}

/* depthwise_line_f32:  c[q * ldc + j] = fmaf chain from +0 over taps (r, s), r < rows, s < side, ascending of x[r * pitch +
 * q * stride + s][first + j] * panel[(r * side + s) * ld + j], for q < across and j < count; side 5 or 7, stride 1 or 2,
 * across 1, 2, 4, 7 or 8. */
typedef void hc_depthwise_line_f32_fn(int side, int stride, int across, int64_t rows, const float *const *x,
                                      int64_t pitch, int64_t first, const float *panel, int64_t ld, int64_t count,
                                      float *c, int64_t ldc);

/* depthwise_line_scaled_f32: depthwise_line_f32 for codes with a scale, for side 3, too. The terms of the chain are
 * float32(x value * panel value) * scale[(r * side + s) * ld + j]. */
typedef void hc_depthwise_line_scaled_f32_fn(int side, int stride, int across, int64_t rows, const float *const *x,
                                             int64_t pitch, int64_t first, const float *panel, const float *scale,
                                             int64_t ld, int64_t count, float *c, int64_t ldc);

/* gradient_f32:  c[t * width + j] = fmaf chain from itself over p < down, q < across and i < n, all ascending, of x[tap[t] +
 * p * x_row + q * x_column + i * x_step + j] * dy[p * dy_row + q * dy_column + i * dy_step + j], for t < taps and j < width.
 * With `one`, all j have the same x, without + j. width is a multiple of 16; with `one`, kernels are fastest for multiples
 * of HC_GRADIENT_WIDE. */
enum { HC_GRADIENT_WIDE = 32 };
typedef struct {
    const float *x, *dy;
    float *c;
    const int64_t *tap;
    int64_t taps, width, down, across, n, x_row, x_column, x_step, dy_row, dy_column, dy_step;
    bool one;
} hc_gradient;
typedef void hc_gradient_f32_fn(const hc_gradient *gradient);

/* grouped_f32:  c[i * ldc + j] = fmaf chain from +0 over taps t and values v < run, both ascending, of tap[t][i *
 * step[t] + j / run * run + v] * panel[((j / 8 * taps + t) * run + v) * 8 + j % 8], for i < n and j < count: every
 * group of `run` channels, 2, 4 or 8, has as many filters; count is a multiple of run. */
typedef void hc_grouped_f32_fn(int run, int64_t taps, const float *const *tap, const int64_t *step, const float *panel,
                               int64_t n, int64_t count, float *c, int64_t ldc);

/* planes_f32:  block[b].c[f * ldc + i] = fmaf chain from +0 over taps t and channels v, both ascending, of block[b].x[tap[t]
 * + v * plane + i] * w[f * w_step[0] + t * w_step[1] + v * w_step[2]], for b < blocks, f < filters and i < block[b].n:
 * adjacent pixels of images whose planes are one after the other. Then bias[f] is added unless bias is NULL; relu:
 * values not above 0 become +0, NaN stays. n is at most mr, and mr floats of x are read; `some`: of the last block only
 * n. `far`: results are not in a near cache, so they are fetched before they are computed. */
typedef struct {
    const float *x;
    float *c;
    int64_t n;
} hc_plane_block;
typedef void hc_planes_f32_fn(int64_t taps, const int64_t *tap, int64_t channels, int64_t plane, const float *w,
                              const int64_t *w_step, int64_t filters, const hc_plane_block *block, int blocks,
                              bool some, int64_t ldc, bool far, const float *bias, bool relu);

/* plane_f32:  for i < planes c[i * c_step + p * c_row + q] = fmaf chain from +0 over taps (r, s) ascending of pixel (p * stride
 * + r - top, q * stride + s - left) * w[i * w_step + r * side + s], for p < down and q < across. Pixel (h, k) is x[i * x_step
 * + h * row_step + k], and 0 outside of rows x columns; left is not negative. Then bias[i] is added unless bias is NULL; relu:
 * values not above 0 become +0, NaN stays. side 3, 5 or 7, stride 1 or 2. `work` has hc_plane_work floats. Unless scale is
 * NULL, c is first float32(scale[i] * c), the product in float64. Unless tap_scale is
 * NULL, the chain is fmaf(tap_scale[i * w_step + t], pixel * w, sum) instead. Unless high is NULL, c is float32(scale[i] *
 * (256 * h + c)) with h the chain of values high[i * w_step + t]; there is a scale then, and no tap_scale. */
typedef struct {
    const float *x, *w, *bias, *tap_scale, *high;
    const double *scale;
    float *c, *work;
    int64_t planes, x_step, w_step, c_step, row_step, rows, columns, top, left, c_row, down, across;
    int side, stride;
    bool relu;
} hc_plane;
typedef void hc_plane_f32_fn(const hc_plane *plane);
/* Floats of a row of pixels, or of its even or odd columns, and of the zeros before the next one. */
static inline int64_t hc_plane_row(int64_t across, int64_t columns, int64_t left, int side, int stride) {
    const int64_t needed = (across - 1) * stride + side - left, there = hc_max(0, hc_min(columns, needed));
    return hc_round_up((there + hc_max(left, needed - there) + stride - 1) / stride + stride - 1, HC_PLANE_LANES);
}
/* Floats of two planes whose rows are padded to blocks of outputs. */
static inline int64_t hc_plane_work(const hc_plane *p, int side, int stride) {
    enum { DOWN = 8 };
    const int64_t row = hc_plane_row(p->across, p->columns, p->left, side, stride);
    return 2 *
           (hc_round_up(p->left, HC_PLANE_LANES) + ((hc_round_up(p->down, DOWN) - 1) * stride + side) * stride * row +
            hc_round_up(p->left + side, HC_PLANE_LANES) + 2 * HC_PLANE_LANES);
}

/* largest_f32:  the maximum, as integers, of so_far and the bits of |x[i]|, i < n; the bits of a NaN are above those of
 * all numbers. */
typedef uint32_t hc_largest_f32_fn(const float *x, int64_t n, uint32_t so_far);

/* codes_s8: code i = RNE(x[i] / scale), the quotient in float64, clamped to -127 .. 127; 0 if scale is 0; for i < n.
 * `to`: bytes code + 128 for form HC_PANEL_U8, int16 for HC_PANEL_S16, float for HC_PANEL_F32, float32(code * scale)
 * for HC_CODES_ROUNDED. |x[i]| is at most 128 * scale where scale is normal. */
enum { HC_CODES_ROUNDED = 4 }; /* no form of a panel (kernels/gemm/gemm.h) */
typedef void hc_codes_s8_fn(const float *x, int64_t n, float scale, int form, void *to);

/* link_f32: y = y + bias[j], + plus[i, j], where they are not NULL, then if it clamps values above high become high and those
 * below low become low, NaN stays; in place for rows x columns values. Returns the maximum of `largest` and the bits of the
 * magnitudes of the results, HC_LINK_NOT_FINITE if one is not finite. */
enum { HC_LINK_NOT_FINITE = 0x7fc00000 };
typedef struct {
    bool clamps;
    float low, high;
} hc_link_steps;
typedef uint32_t hc_link_f32_fn(int64_t rows, int64_t columns, float *y, int64_t ld, const hc_link_steps *steps,
                                const float *bias, const float *plus, int64_t ldp, uint32_t largest);

/* link_s32: the same for y[i, j] = float32((float64(scale) * float64(scales[j])) * float64(sums[i, j])), which is written to
 * `to` unless that is NULL. Unless `codes` is NULL, it clamps, and codes[i][j] is the code of the result, as of codes_s8 with
 * code_scale, plus 128. rows is at most 16, columns at most 64. */
enum { HC_LINK_ROWS = 16, HC_LINK_COLUMNS = 64 };
typedef struct {
    hc_link_steps steps;
    const int32_t *sums;
    int64_t ld;
    float scale, code_scale;
    const float *scales, *bias; /* bias: or NULL */
    const float *plus;          /* or NULL */
    float *to;
    int64_t step; /* of plus and to */
    uint8_t *const *codes;
    int64_t at; /* of the first code in its row */
} hc_link_tile;
typedef uint32_t hc_link_s32_fn(int64_t rows, int64_t columns, const hc_link_tile *tile, uint32_t largest);

/* pool_f32: to[c] = the largest of x[h * row_step + w * depth + c] for h < rows and w < columns, the first of equal ones, for
 * c < depth. rows and columns are at least 1. */
typedef void hc_pool_f32_fn(int64_t rows, int64_t columns, const float *x, int64_t row_step, int64_t depth, float *to);

/* code_pairs_s8: to[i] = the codes, as of codes_s8, of a[i] in the low and of b[i] in the high 16 bits, for i < n. b NULL:
 * zeros. */
typedef void hc_code_pairs_s8_fn(const float *a, const float *b, int64_t n, float scale, int32_t *to);

/* planes_s16:  block[b].c[f * ldc + i] = float32(scale[f] * S), the product in float64, S = sum over taps t and pairs v of
 * the two products of int16 of block[b].x[tap[t] + v * plane + i] and panel[(f / nr * taps * pairs + t * pairs + v) * nr +
 * f % nr], modulo 2^32, for b < blocks, f < filters and i < block[b].n. Then bias and relu as in planes_f32. n is at most
 * mr, and mr words of x are read; the last panel is padded. */
typedef struct {
    const int32_t *x;
    float *c;
    int64_t n;
} hc_code_block;
typedef void hc_planes_s16_fn(int64_t taps, const int64_t *tap, int64_t pairs, int64_t plane, const int32_t *panel,
                              int64_t filters, const hc_code_block *block, int blocks, int64_t ldc, const double *scale,
                              const float *bias, bool relu);

/* direct_s8: c[i * ldc + j] = init[j] + sum over taps t and values v < run of row_i[tap[t] + v] * panel value (t * run
 * + v, j), modulo 2^32, for i < n_rows <= mr and j < columns <= nr, and possibly for others of the nr; run is a
 * multiple of 4. The panel and the values of a row, uint8 or int16, are those of b and a of gemm_s8 with the same form.
 * The budget is also that of gemm_s8, for taps * run values. */
typedef void hc_direct_s8_fn(int64_t taps, const int64_t *tap, int64_t run, const void *const *rows,
                             const int8_t *panel, const int32_t *init, int n_rows, int columns, int32_t *c,
                             int64_t ldc);

/* depthwise_s16:  c[i * ldc + j] = sum over pairs p and u < 2 of x[i * step + tap[2 * p + u] + j] * panel[(p * ld + j)
 * * 2 + u], for i < n and j < count, modulo 2^32. */
typedef void hc_depthwise_s16_fn(int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x,
                                 const int16_t *panel, int64_t ld, int64_t n, int64_t count, int32_t *c, int64_t ldc);

/* depthwise3_s8: c[i * c_row + q * ldc + j] = init[j] + sum over taps (r, s) of 3 x 3 of x[(i * stride + r) * row_step
 * + (q * stride + s) * pixel_step + j] * panel[((j / 16 * 3 + r) * 16 + j % 16) * 4 + s], modulo 2^32, for i < down <=
 * mr, q < across and j < count; stride 1 or 2. Every fourth value of the panel is 0; panel and init are padded to a
 * multiple of 16. */
typedef void hc_depthwise3_s8_fn(int stride, int down, int64_t across, const uint8_t *x, int64_t row_step,
                                 int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count,
                                 int32_t *c, int64_t c_row, int64_t ldc);

/* depthwise_wide_s8: the same for side x side filters, side 5 or 7. A block of HC_WIDE_OUTPUTS outputs reads
 * HC_WIDE_WORDS times 4 pixels, and panel[(((j / 16 * side + r) * outputs + a) * words + g) * 64 + j % 16 * 4 + b] is
 * the tap that its output a multiplies by pixel 4 g + b, s = 4 g + b - a * stride, or 0. */
#define HC_WIDE_OUTPUTS(stride) (4 / (stride))
#define HC_WIDE_WORDS(side, stride) (((HC_WIDE_OUTPUTS(stride) - 1) * (stride) + (side) + 3) / 4)
typedef void hc_depthwise_wide_s8_fn(int side, int stride, int down, int64_t across, const uint8_t *x, int64_t row_step,
                                     int64_t pixel_step, const int8_t *panel, const int32_t *init, int64_t count,
                                     int32_t *c, int64_t c_row, int64_t ldc);

/* direct_s16:  c[i * ldc + j] = sum over k < 2 * pairs of rows[i][k] * panel[(k / 2 * nr + j) * 2 + k % 2], modulo
 * 2^32, for i < n_rows <= mr and all nr columns. Budget: the products of a pair keep their sum inside int32. */
typedef void hc_direct_s16_fn(int64_t pairs, const int16_t *const *rows, const int16_t *panel, int n_rows, int32_t *c,
                              int64_t ldc);

/* Winograd F(m x m, r x r), n = m + r - 1, with n 4, 6 or 8, r 2, 3 or 4 and m at least 2, for contiguous channels or
 * filters. The matrices and the order of every sum are those of reference/transforms/winograd.py: columns first, then
 * rows.
 *   winograd_input_f32   v[(i * n + j) * step + c] = (B^T d B)[i, j] of pixel[h * n + w][c], c < count. Values up to
 *                        the next multiple of 16 may be overwritten.
 *   winograd_filter_f32  u[(i * n + j) * step + f] = (G g G^T)[i, j] of tap[i * r + j][f], f < count. If all taps of
 *                        the last row (column) are NULL, they are zeros, and row (column) n - 1 of u is not written.
 *   winograd_output_f32  answer[p * m + q][f] = (A^T y A)[p, q] of y[(i * n + j) * step + f], f < count, plus bias[f]
 *                        unless bias is NULL. An output whose pointer is NULL is not written. relu: values not above 0
 *                        become +0, NaN stays.
 * These are the transforms for dims = 2. With dims = 1, F(m, 3), only the first of the two products is computed: B^T d,
 * G g and A^T y of n pixels, 3 taps and n sums. */
typedef void hc_winograd_input_f32_fn(int n, int dims, const float *const *pixel, int64_t count, float *v,
                                      int64_t step);
typedef void hc_winograd_filter_f32_fn(int n, int r, int dims, const float *const *tap, int64_t count, float *u,
                                       int64_t step);
typedef void hc_winograd_output_f32_fn(int n, int r, int dims, const float *y, int64_t step, int64_t count,
                                       const float *bias, bool relu, float *const *answer);

/* Winograd for 8-bit integers, |pixel|, |tap| <= 128, m 2 or 4, r 3, exact. G' has the rows (1, p, p^2) of G's points
 * and (0, 0, 1) of infinity, so that G = F G' / s, s = 2 or 24, with F a diagonal matrix of integers.
 *   winograd_input_s16   v = B^T d B, at most 12800
 *   winograd_filter_s16  u = G' g G'^T, at most 6272
 *   winograd_output_s32  answer = (A^T F y F A) / s^dims, modulo 2^32; the dividend is a multiple of s^dims. The answer
 *                        is exact from -2^(32 - b) / 2 to below 2^(32 - b) / 2, b = dims for m = 2, 3 dims for m = 4. */
typedef void hc_winograd_input_s16_fn(int m, int dims, const int16_t *const *pixel, int64_t count, int16_t *v,
                                      int64_t step);
typedef void hc_winograd_filter_s16_fn(int m, int dims, const int16_t *taps, int64_t tap_step, int64_t count,
                                       int16_t *u, int64_t step);
typedef void hc_winograd_output_s32_fn(int m, int dims, const int32_t *y, int64_t step, int64_t count,
                                       int32_t *const *answer);

/* Convolution by the Fourier transform of tiles of height (1, 8, 16, 32 or 64) x width (8 to 64) real values; the order
 * of every sum is that of reference/transforms/fft.py. A transformed tile has hc_fft_places complex values: rows 0 ..
 * height / 2 of column 0, then those of column width / 2, then all rows of the columns between. A complex product is
 * three real products: (a, b) of an image times the conjugate of (c, e) of a filter is (k1 - k3, k1 - k2) with k1 = (a
 * + b) c, k2 = a (c + e), k3 = b (c - e). */
static inline int64_t hc_fft_places(int height, int width) {
    return (int64_t)(width / 2 - 1) * height + 2 * (height / 2 + 1);
}
/* Size of `work` for all of these kernels, in floats. It is aligned to a cache line. */
static inline int64_t hc_fft_work(int height, int width) {
    enum { MOST_LANES = 16 };
    return ((int64_t)width * (height + 1) + 2 * width) * MOST_LANES;
}
/* The pixels of a tile; the rest of the tile is 0. rows x columns runs of values, row_step and pixel_step floats apart;
 * the first is at (top, left), the next are `down` and `across` further. */
typedef struct {
    const float *values;
    int64_t row_step, pixel_step;
    int top, left, rows, columns, down, across;
} hc_fft_pixels;
/* Positions of outputs: (p, q) is value (p * down, q * across) of the tile. */
typedef struct {
    float *to;
    int64_t row_step, pixel_step;
    int rows, columns, down, across;
} hc_fft_answers;
/*   fft_forward_f32  to[(part * places + place) * step + c] = factor `part` (0, 1, 2) of value `place` of a tile,
 *                    c < count
 *   fft_back_f32     answers [f], f < count, from y[(part * places + place) * step + f], plus bias[f] unless bias is
 *                    NULL. relu: values not above 0 become +0, NaN stays. */
typedef void hc_fft_forward_f32_fn(int height, int width, bool filter, const hc_fft_pixels *pixels, int64_t count,
                                   float *to, int64_t step, float *work);
typedef void hc_fft_back_f32_fn(int height, int width, const float *y, int64_t step, int64_t count, const float *bias,
                                bool relu, const hc_fft_answers *answers, float *work);

#endif
