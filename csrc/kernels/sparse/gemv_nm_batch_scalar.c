/* Definition of nonzero codes times vectors in lanes; kernels/sparse/nm.h. */
#include "kernels/kernel.h"

#include <math.h>

static void add_columns(const hc_gemv_nm_batch_args *args, int r) {
    for (int64_t t = 0; t < args->kept; t++)
        for (int v = 0; v < args->n_vectors; v++) {
            float *sum = args->sums + (r * 64 + args->at[r][t] % 64) * HC_GEMV_BATCH + v;
            *sum = fmaf(args->panel[args->at[r][t] * HC_GEMV_BATCH + v], args->codes[r][t], *sum);
        }
}

static void add_groups(const hc_gemv_nm_batch_args *args, int r) {
    for (int64_t g = 0, first = 0; first < args->kept; g++, first += args->group)
        for (int v = 0; v < args->n_vectors; v++) {
            float *sum = args->sums + (r * 16 + g % 16) * HC_GEMV_BATCH + v, p = 0;
            for (int64_t t = first; t < hc_min(first + args->group, args->kept); t++)
                p = fmaf(args->panel[args->at[r][t] * HC_GEMV_BATCH + v], args->codes[r][t], p);
            *sum = fmaf(args->scales[r][g], p, *sum);
        }
}

void hc_gemv_nm_batch_scalar(const hc_gemv_nm_batch_args *args) {
    for (int r = 0; r < HC_GEMV_ROWS; r++)
        args->group ? add_groups(args, r) : add_columns(args, r);
}
