/* Axes to a geometry:
 *
 *   rows = product of the other axes     runs = product of the axes except the last     run_length = the last axis
 *   nonzeros of a run = ceil(run_length / m) * n     group = min(format's, run), a multiple of unit
 *   groups never cross a run
 *   if a unit holds whole groups: group = format's, runs are padded to whole units
 */
#include "base/layout.h"

hc_status hc_geometry_init(const hc_format *format, int unit, int64_t rows, int64_t runs, int64_t run_length,
                           hc_geometry *geometry, hc_error *error) {
    HC_ASSUME(unit >= 1 && rows >= 0 && runs >= 0 && run_length >= 0);
    const hc_format none = {0};
    if (!format)
        format = &none;
    hc_geometry g = {.rows = rows, .runs = runs, .run_length = run_length, .whole_length = run_length};
    int64_t values, bits;
    bool fits = hc_mul_size(runs, run_length, &g.whole_columns);
    if (format->m > 0) {
        const int64_t blocks = run_length / format->m + (run_length % format->m != 0);
        /* the bytes of whole blocks of float64, too */
        fits = fits && hc_mul_size(blocks, runs, &values) && hc_mul_size(values, 8 * (int64_t)format->m, &bits) &&
               hc_mul_size(bits, hc_max(rows, 1), &bits);
        g.run_length = run_length = blocks * format->n;
    }
    fits = fits && hc_mul_size(runs, run_length, &g.columns);
    if (format->group == 0 && unit == 1) {
        g.group = g.columns;
        g.groups_per_run = g.groups = 1; /* one for the whole row, though it has several runs */
        g.padded = g.columns;
    } else {
        const int64_t group = format->group == 0 ? run_length : hc_min(format->group, run_length);
        const bool has_blocks = format->group > 0 && unit % format->group == 0;
        g.group = has_blocks ? format->group : hc_round_up(hc_max(group, 1), unit);
        g.groups_per_run =
            has_blocks ? hc_ceil_div(run_length, unit) * (unit / format->group) : hc_ceil_div(run_length, g.group);
        fits = fits && hc_mul_size(g.groups_per_run, runs, &g.groups) && hc_mul_size(g.groups, g.group, &g.padded);
    }
    /* 64 bits per value cover codes and all scales; no real array is larger. */
    fits = fits && hc_mul_size(rows, hc_max(g.padded, 1), &values) && hc_mul_size(values, 64, &bits);
    if (!fits)
        return hc_fail(error, HC_VALUE, "shape: %lld rows of %lld x %lld values overflow the size of an array",
                       (long long)rows, (long long)runs, (long long)g.whole_length);
    *geometry = g;
    return HC_OK;
}

hc_status hc_geometry_of_axes(const hc_format *format, int unit, int ndim, const int64_t *shape, int n_axes,
                              const int *axes, hc_geometry *geometry, hc_error *error) {
    if (ndim < 1 || ndim > HC_MAX_DIMS)
        return hc_fail(error, HC_VALUE, "an array with %d dimensions has no axis to quantize along", ndim);
    if (n_axes < 1 || n_axes > ndim)
        return hc_fail(error, HC_VALUE, "axis: expected 1 to %d axes, got %d", ndim, n_axes);
    bool reduced[HC_MAX_DIMS] = {false};
    int64_t runs = 1, rows = 1;
    for (int i = 0; i < n_axes; i++) {
        if (axes[i] < 0 || axes[i] >= ndim || reduced[axes[i]])
            return hc_fail(error, HC_VALUE, "axis: %d is %s for an array with %d dimensions", axes[i],
                           axes[i] < 0 || axes[i] >= ndim ? "out of range" : "given twice", ndim);
        reduced[axes[i]] = true;
    }
    bool fits = true;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return hc_fail(error, HC_VALUE, "shape: %lld is negative", (long long)shape[i]);
        if (!reduced[i])
            fits = fits && hc_mul_size(rows, shape[i], &rows);
    }
    for (int i = 0; i + 1 < n_axes; i++)
        fits = fits && hc_mul_size(runs, shape[axes[i]], &runs);
    if (!fits)
        return hc_fail(error, HC_VALUE, "shape: its sizes overflow");
    return hc_geometry_init(format, unit, rows, runs, shape[axes[n_axes - 1]], geometry, error);
}
