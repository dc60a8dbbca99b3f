/* The table of formats.def, and the geometry that all formats share. */
#include "formats/format.h"

#include <string.h>

#define HC_FORMAT(name) extern const hc_format_ops hc_format_##name;
#include "formats/formats.def"
#undef HC_FORMAT

static const hc_format_ops *const FORMATS[] = {
#define HC_FORMAT(name) &hc_format_##name,
#include "formats/formats.def"
#undef HC_FORMAT
};
enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

const hc_format_ops *hc_format_find(int32_t family) {
    return family >= 0 && family < N_FORMATS ? FORMATS[family] : NULL;
}

int32_t hc_format_index(const char *name) {
    for (int32_t i = 0; i < N_FORMATS; i++)
        if (strcmp(FORMATS[i]->name, name) == 0)
            return i;
    return -1;
}

hc_status hc_format_legal(const hc_format *format, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(format->family);
    if (!ops)
        return hc_fail(error, HC_VALUE, "format: there is no family %d", (int)format->family);
    const hc_status status = ops->check(format, error);
    if (status != HC_OK || (format->n == 0 && format->m == 0))
        return status;
    if (format->n < 1 || format->n > format->m || format->m > HC_MAX_M)
        return hc_fail(error, HC_VALUE, "format: keeps %d of every %d values, wanted 1 <= N <= M <= %d", (int)format->n,
                       (int)format->m, HC_MAX_M);
    if (format->group % format->n != 0)
        return hc_fail(error, HC_VALUE, "format: group %d is no multiple of the %d values kept of every %d",
                       (int)format->group, (int)format->n, (int)format->m);
    return HC_OK;
}

void hc_format_layout(const hc_format *format, const hc_geometry *geometry,
                      hc_component_layout layout[HC_N_COMPONENTS]) {
    hc_format_find(format->family)->layout(format, geometry, layout);
    if (format->m > 0)
        layout[HC_METADATA] = (hc_component_layout){
            true, true, HC_U8, 1, {hc_ceil_div(geometry->columns * hc_position_bits(format->m), 8), 0}};
}

hc_status hc_geometry_init(const hc_format *format, int64_t rows, int64_t runs, int64_t run_length,
                           hc_geometry *geometry, hc_error *error) {
    HC_ASSUME(rows >= 0 && runs >= 0 && run_length >= 0);
    hc_geometry g = {.rows = rows, .runs = runs, .run_length = run_length, .whole_length = run_length};
    int64_t values, bits;
    bool fits = hc_mul_size(runs, run_length, &g.whole_columns);
    if (format->m > 0)
        g.run_length = run_length = (run_length / format->m + (run_length % format->m != 0)) * format->n;
    fits = fits && hc_mul_size(runs, run_length, &g.columns);
    const hc_format_ops *ops = hc_format_find(format->family);
    const int unit = ops && ops->unit ? ops->unit(format) : 1;
    if (format->group == 0 && unit == 1) {
        g.group = g.columns;
        g.groups_per_run = g.groups = 1; /* one for the whole row, though it has several runs */
        g.padded = g.columns;
    } else {
        const int64_t group = format->group == 0 ? run_length : hc_min(format->group, run_length);
        g.group = hc_round_up(hc_max(group, 1), unit);
        g.groups_per_run = hc_ceil_div(run_length, g.group);
        fits = fits && hc_mul_size(g.groups_per_run, runs, &g.groups) && hc_mul_size(g.groups, g.group, &g.padded);
    }
    /* 64 bits a value covers codes and every scale; what passes that is no array anyone has. */
    fits = fits && hc_mul_size(rows, hc_max(g.padded, 1), &values) && hc_mul_size(values, 64, &bits);
    if (!fits)
        return hc_fail(error, HC_VALUE, "shape: %lld rows of %lld x %lld values overflow the size of an array",
                       (long long)rows, (long long)runs, (long long)run_length);
    *geometry = g;
    return HC_OK;
}
