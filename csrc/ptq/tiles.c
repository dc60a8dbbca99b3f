/* A matmul in tiles. Both sides are packed: matrices of this folder have rows of 2^n bytes, whose columns would all
 * share a few cache sets. Partial tiles go through a tile of their own. The depth ascends for every item of c, so no
 * bit depends on tiles.
 */
#include "ptq/tiles.h"

#include <string.h>

/* Packs sign times columns 0 .. n - 1 of k rows into panels of `width` columns, in which a row is contiguous; the last
 * panel is padded with 0. */
static inline void pack_panels(int64_t n, int width, int64_t k, double sign, const double *rows, int64_t stride,
                               double *panels) {
    const int64_t whole = n / width * width;
    for (int64_t p = 0; p < k; p++, rows += stride, panels += width) {
        double *panel = panels;
        for (int64_t j = 0; j < whole; j += width, panel += (HC_PTQ_DEPTH + 1) * width)
            for (int x = 0; x < width; x++)
                panel[x] = sign * rows[j + x];
        for (int64_t j = whole; whole < n && j < whole + width; j++)
            panel[j - whole] = j < n ? sign * rows[j] : 0.0;
    }
}

/* With a constant width a row is a few moves. */
static void pack(int64_t n, int width, int64_t k, double sign, const double *rows, int64_t stride, double *panels) {
    switch (width) {
    case 4:
        pack_panels(n, 4, k, sign, rows, stride, panels);
        break;
    case 6:
        pack_panels(n, 6, k, sign, rows, stride, panels);
        break;
    case 8:
        pack_panels(n, 8, k, sign, rows, stride, panels);
        break;
    case 12:
        pack_panels(n, 12, k, sign, rows, stride, panels);
        break;
    case 16:
        pack_panels(n, 16, k, sign, rows, stride, panels);
        break;
    default:
        pack_panels(n, width, k, sign, rows, stride, panels);
    }
}

/* A tile of fewer than mr rows or nr columns. */
static void edge(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c,
                 int64_t ldc) {
    double tile[HC_PTQ_TILE * HC_PTQ_TILE] = {0};
    const int nr = gemm->nr;
    for (int64_t i = 0; i < m; i++)
        memcpy(tile + i * nr, c + i * ldc, (size_t)n * sizeof *c);
    gemm->fn.gemm_f64(k, a, b, nr, tile, nr);
    for (int64_t i = 0; i < m; i++)
        memcpy(c + i * ldc, tile + i * nr, (size_t)n * sizeof *c);
}

/* Packed rows times packed columns: a panel of columns stays in L1, the rows in L2. */
static void multiply_packed(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, const double *a, const double *b,
                            double *c, int64_t ldc) {
    const int mr = gemm->mr, nr = gemm->nr;
    for (int64_t j = 0; j < n; j += nr, b += (HC_PTQ_DEPTH + 1) * nr) {
        const int64_t width = hc_min(nr, n - j);
        const double *left = a;
        for (int64_t i = 0; i < m; i += mr, left += (HC_PTQ_DEPTH + 1) * mr) {
            const int64_t height = hc_min(mr, m - i);
            double *tile = c + i * ldc + j;
            for (int64_t next = mr; next < 2 * mr && i + next < m; next++)
                __builtin_prefetch(tile + next * ldc, 1);
            if (height == mr && width == nr)
                gemm->fn.gemm_f64(k, left, b, nr, tile, ldc);
            else
                edge(gemm, height, width, k, left, b, tile, ldc);
        }
    }
}

void hc_ptq_multiply(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, double sign, const double *a,
                     int64_t a_depth, const double *b, int64_t ldb, double *c, int64_t ldc, double *pack_space) {
    HC_ASSUME(HC_PTQ_TALL % gemm->mr == 0 && HC_PTQ_WIDE % gemm->nr == 0);
    double *columns = pack_space, *rows = pack_space + (HC_PTQ_DEPTH + 1) * HC_PTQ_WIDE;
    for (int64_t first = 0; first < k; first += HC_PTQ_DEPTH) {
        const int64_t depth = hc_min(HC_PTQ_DEPTH, k - first);
        for (int64_t j = 0; j < n; j += HC_PTQ_WIDE) {
            const int64_t width = hc_min(HC_PTQ_WIDE, n - j);
            pack(width, gemm->nr, depth, sign, b + first * ldb + j, ldb, columns);
            for (int64_t i = 0; i < m; i += HC_PTQ_TALL) {
                const int64_t height = hc_min(HC_PTQ_TALL, m - i);
                pack(height, gemm->mr, depth, 1.0, a + first * a_depth + i, a_depth, rows);
                multiply_packed(gemm, height, width, depth, rows, columns, c + i * ldc + j, ldc);
            }
        }
    }
}
