/* Properties of formats, and the tables of formats and kernels, as hc.h declares them. */
#include "formats/format.h"
#include "formats/own/own.h"
#include "hc.h"
#include "kernels/kernel.h"

#include <string.h>

bool hc_family(int32_t number, const char **name, const char **description) {
    const hc_format_ops *ops = hc_format_find(number);
    if (!ops)
        return false;
    *name = ops->name;
    *description = ops->description;
    return true;
}

hc_status hc_define(const hc_sentence *own, int32_t *number, hc_error *error) {
    return hc_sentence_define(own, number, error);
}
hc_status hc_format_check(const hc_format *format, hc_error *error) { return hc_format_legal(format, error); }

hc_status hc_layout(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                    hc_geometry *geometry, hc_component_layout layout[HC_N_COMPONENTS], hc_error *error) {
    const hc_status status = hc_format_geometry(format, ndim, shape, n_axes, axes, geometry, error);
    if (status != HC_OK)
        return status;
    memset(layout, 0, HC_N_COMPONENTS * sizeof *layout);
    hc_format_layout(format, geometry, layout);
    return HC_OK;
}

hc_stored_form hc_format_form(const hc_format *format, int *n_levels, double levels[HC_MAX_CODES]) {
    const hc_stored_form form = hc_form_of(format);
    *n_levels = form.level && form.bits <= 8 ? 1 << form.bits : 0;
    for (int code = 0; code < *n_levels; code++)
        levels[code] = form.level(format, (uint32_t)code);
    return form;
}

bool hc_kernel_line(int number, const char **family, const char **isa, uint32_t *needs) {
    int count;
    const hc_kernel *table = hc_kernels(&count);
    const hc_format_simd *set;
    if (number < 0)
        return false;
    if (number >= count) {
        if (!hc_format_kernel(number - count, family, &set))
            return false;
        *isa = set->isa;
        *needs = set->needs;
        return true;
    }
    *family = table[number].name;
    *isa = table[number].isa;
    *needs = table[number].needs | table[number].also;
    return true;
}
