/* A product in tiles: a is packed a tile and HC_PTQ_DEPTH of the depth at a time, b is read where it lies, and what is
 * less than a tile goes through one of its own. The depth ascends for every item of c, so that no bit depends on tiles.
 */
#include "ptq/tiles.h"

#include <string.h>

static void pack(int64_t m, int mr, int64_t k, double sign, const double *a, int64_t depth, double *panel) {
    for (int64_t p = 0; p < k; p++, a += depth, panel += mr) {
        for (int64_t i = 0; i < m; i++)
            panel[i] = sign * a[i];
        for (int64_t i = m; i < mr; i++)
            panel[i] = 0.0;
    }
}

/* A tile of fewer than mr rows or nr columns. */
static void edge(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, const double *panel, const double *b,
                 int64_t ldb, double *c, int64_t ldc) {
    double right[HC_PTQ_DEPTH * HC_PTQ_TILE], tile[HC_PTQ_TILE * HC_PTQ_TILE] = {0};
    const int nr = gemm->nr;
    for (int64_t p = 0; p < k && n < nr; p++) {
        memcpy(right + p * nr, b + p * ldb, (size_t)n * sizeof *b);
        for (int64_t j = n; j < nr; j++)
            right[p * nr + j] = 0.0;
    }
    for (int64_t i = 0; i < m; i++)
        memcpy(tile + i * nr, c + i * ldc, (size_t)n * sizeof *c);
    gemm->fn.gemm_f64(k, panel, n < nr ? right : b, n < nr ? nr : ldb, tile, nr);
    for (int64_t i = 0; i < m; i++)
        memcpy(c + i * ldc, tile + i * nr, (size_t)n * sizeof *c);
}

void hc_ptq_multiply(const hc_kernel *gemm, int64_t m, int64_t n, int64_t k, double sign, const double *a,
                     int64_t a_depth, const double *b, int64_t ldb, double *c, int64_t ldc) {
    double panel[HC_PTQ_DEPTH * HC_PTQ_TILE];
    const int mr = gemm->mr, nr = gemm->nr;
    HC_ASSUME(mr <= HC_PTQ_TILE && nr <= HC_PTQ_TILE);
    for (int64_t first = 0; first < k; first += HC_PTQ_DEPTH) {
        const int64_t depth = hc_min(HC_PTQ_DEPTH, k - first);
        const double *right = b + first * ldb;
        for (int64_t i = 0; i < m; i += mr) {
            const int64_t height = hc_min(mr, m - i);
            pack(height, mr, depth, sign, a + first * a_depth + i, a_depth, panel);
            for (int64_t j = 0; j < n; j += nr) {
                const int64_t width = hc_min(nr, n - j);
                if (height == mr && width == nr)
                    gemm->fn.gemm_f64(depth, panel, right + j, ldb, c + i * ldc + j, ldc);
                else
                    edge(gemm, height, width, depth, panel, right + j, ldb, c + i * ldc + j, ldc);
            }
        }
    }
}
