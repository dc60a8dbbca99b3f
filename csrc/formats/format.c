/* The tables of formats.def, and the code that does not depend on the format: patterns, geometry. */
#include "formats/format.h"

#include "base/layout.h"

/* SIMD sets of this machine, best first (setup.py: SIMD_SETS). */
#if HC_X86
#define SIMD_SETS(DO, name) DO(name, avx512) DO(name, avx2)
#elif HC_ARM
#define SIMD_SETS(DO, name) DO(name, neon)
#else
#define SIMD_SETS(DO, name)
#endif
enum { MAX_SIMD_SETS = 2 };

#define DECLARE(name, set) extern const hc_format_simd hc_##name##_##set;
#define HC_FORMAT(name) extern const hc_format_ops hc_format_##name;
#define HC_SIMD(name) SIMD_SETS(DECLARE, name)
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD

enum {
#define HC_FORMAT(name) FAMILY_##name,
#define HC_SIMD(name)
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD
    N_FORMATS
};

static const hc_format_ops *const FORMATS[N_FORMATS] = {
#define HC_FORMAT(name) &hc_format_##name,
#define HC_SIMD(name)
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD
};

#define REFER(name, set) &hc_##name##_##set,
static const hc_format_simd *const SIMD[N_FORMATS][MAX_SIMD_SETS + 1] = {
#define HC_FORMAT(name)
#define HC_SIMD(name) [FAMILY_##name] = {SIMD_SETS(REFER, name) NULL},
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD
};

enum { N_KINDS = 9 };
static const char *const KERNEL_NAMES[N_FORMATS][N_KINDS] = {
#define HC_FORMAT(name)                                                                                                \
    {"observe_" #name, "encode_" #name, "values_" #name, "doubles_" #name, "integers_" #name,                          \
     "codes_" #name,   "learn_" #name,  "scales_" #name, "minima_" #name},
#define HC_SIMD(name)
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD
};

const hc_format_ops *hc_format_find(int32_t family) {
    return family >= 0 && family < N_FORMATS ? FORMATS[family] : NULL;
}

const hc_format_simd *const *hc_format_simd_sets(int32_t family) {
    HC_ASSUME(family >= 0 && family < N_FORMATS);
    return SIMD[family];
}

bool hc_format_kernel(int number, const char **name, const hc_format_simd **set) {
    for (int family = 0; family < N_FORMATS; family++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int i = 0; SIMD[family][i]; i++) {
                const hc_format_simd *simd = SIMD[family][i];
                const bool has[N_KINDS] = {simd->observe, simd->encode, simd->values, simd->doubles, simd->integers,
                                           simd->codes,   simd->learn,  simd->scales, simd->minima};
                if (!has[kind] || number-- > 0)
                    continue;
                *name = KERNEL_NAMES[family][kind];
                *set = simd;
                return true;
            }
    return false;
}

hc_status hc_format_legal(const hc_format *format, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(format->family);
    if (!ops)
        return hc_fail(error, HC_VALUE, "format: there is no family %d", (int)format->family);
    const hc_status status = ops->check(format, error);
    if (status != HC_OK || (format->n == 0 && format->m == 0))
        return status;
    if (format->n < 1 || format->n > format->m || format->m > HC_MAX_M)
        return hc_fail(error, HC_VALUE, "format: keeps %d of every %d values, expected 1 <= N <= M <= %d",
                       (int)format->n, (int)format->m, HC_MAX_M);
    if (format->group % format->n != 0)
        return hc_fail(error, HC_VALUE, "format: group %d is not a multiple of the %d values kept of every %d",
                       (int)format->group, (int)format->n, (int)format->m);
    return HC_OK;
}

hc_stored_form hc_form_of(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    hc_stored_form form = {0};
    if (ops->stored_form)
        ops->stored_form(format, &form);
    return form;
}

void hc_format_layout(const hc_format *format, const hc_geometry *geometry,
                      hc_component_layout layout[HC_N_COMPONENTS]) {
    hc_format_find(format->family)->layout(format, geometry, layout);
    if (format->m > 0)
        layout[HC_METADATA] = (hc_component_layout){
            true, true, HC_U8, 1, {hc_ceil_div(geometry->columns * hc_position_bits(format->m), 8), 0}};
}

hc_status hc_format_geometry(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                             hc_geometry *geometry, hc_error *error) {
    const hc_status status = hc_format_legal(format, error);
    if (status != HC_OK)
        return status;
    const hc_format_ops *ops = hc_format_find(format->family);
    return hc_geometry_of_axes(format, ops->unit ? ops->unit(format) : 1, ndim, shape, n_axes, axes, geometry, error);
}
