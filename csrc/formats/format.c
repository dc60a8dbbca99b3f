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

hc_status hc_geometry_init(const hc_format *format, int64_t rows, int64_t runs, int64_t run_length,
                           hc_geometry *geometry, hc_error *error) {
    HC_ASSUME(rows >= 0 && runs >= 0 && run_length >= 0);
    hc_geometry g = {.rows = rows, .runs = runs, .run_length = run_length};
    int64_t values, bits;
    bool fits = hc_mul_size(runs, run_length, &g.columns);
    if (format->group == 0) {
        g.group = g.columns;
        g.groups_per_run = g.groups = 1; /* one for the whole row, though it has several runs */
        g.padded = g.columns;
    } else {
        g.group = hc_max(hc_min(format->group, run_length), 1);
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
