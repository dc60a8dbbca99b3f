/* hc_permute: checks, then the search of csrc/sparsity/permute.c. */
#include "sparsity/permute.h"
#include "hc.h"

hc_status hc_permute(const hc_run *run, int64_t rows, int64_t columns, int64_t ld, const int16_t *scores, int n, int m,
                     int64_t groups, int32_t *order, int64_t *exchanges, hc_error *error) {
    if (n < 1 || n >= m || m > 32)
        return hc_fail(error, HC_VALUE, "permute: the pattern is %d:%d, expected 1 <= n < m <= 32", n, m);
    if (rows < 0 || rows > ld || ld % 32 != 0)
        return hc_fail(error, HC_VALUE,
                       "permute: scores has %lld values a column for %lld rows, expected a multiple of 32",
                       (long long)ld, (long long)rows);
    for (int64_t i = 0; i < groups * m; i++)
        if (order[i] < -1 || order[i] >= columns)
            return hc_fail(error, HC_VALUE, "permute: order has %d at %lld, there are %lld columns", (int)order[i],
                           (long long)i, (long long)columns);
    *exchanges = hc_permute_sweep(run->n_threads, rows, ld, scores, n, m, groups, order);
    return *exchanges < 0
               ? hc_fail(error, HC_MEMORY, "permute: not enough memory for groups of %lld rows", (long long)rows)
               : HC_OK;
}
