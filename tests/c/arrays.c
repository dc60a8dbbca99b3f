#include "arrays.h"

#include "guard.h"

#include <math.h>
#include <string.h>

/* A value that bfloat16 holds, so that every dtype can carry it: random, sometimes zero or tiny. */
static double random_value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    const uint32_t bits = *state >> 8;
    const double sign = bits & 1 ? -1 : 1, fraction = 1 + (double)(bits >> 1 & 127) / 128;
    switch (bits >> 8 & 15) {
    case 0:
        return 0;
    case 1:
        return sign * fraction * 0x1p-100;
    default:
        return sign * fraction * ldexp(1, (int)(bits >> 12 & 7) - 5);
    }
}

double *random_values(int64_t n, uint32_t seed) {
    double *x = guard_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = seed == 0 ? 0 : seed == 1 ? (i % 3 ? 1.5 : -1.5) : random_value(&seed);
    return x;
}

void *converted(const double *x, int64_t n, hc_dtype dtype) {
    unsigned char *out = guard_alloc((size_t)(n * hc_dtype_size(dtype)));
    for (int64_t i = 0; i < n; i++) {
        const float narrow = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        const uint16_t top = (uint16_t)(bits >> 16);
        if (dtype == HC_F64)
            memcpy(out + i * 8, &x[i], 8);
        else if (dtype == HC_BF16)
            memcpy(out + i * 2, &top, 2);
        else
            memcpy(out + i * 4, &narrow, 4);
    }
    return out;
}

hc_view view_of(void *data, hc_dtype dtype, int ndim, const int64_t *shape) {
    hc_view view = {.data = data, .dtype = dtype, .ndim = ndim};
    int64_t stride = hc_dtype_size(dtype);
    for (int i = ndim - 1; i >= 0; i--) {
        view.shape[i] = shape[i];
        view.strides[i] = stride;
        stride *= shape[i];
    }
    return view;
}

bool make_packed(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                 hc_packed *packed, hc_geometry *geometry, hc_error *error) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    *packed = (hc_packed){.format = *format, .ndim = ndim, .n_axes = n_axes};
    memcpy(packed->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(packed->axes, axes, (size_t)n_axes * sizeof *axes);
    if (hc_layout(format, ndim, shape, n_axes, axes, geometry, layout, error) != HC_OK)
        return false;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        int64_t bytes = hc_dtype_size(layout[i].dtype);
        for (int d = 0; d < layout[i].ndim; d++)
            bytes *= layout[i].shape[d];
        packed->components.part[i].row_stride = layout[i].per_row ? bytes : 0;
        packed->components.part[i].data = guard_alloc((size_t)(layout[i].per_row ? bytes * geometry->rows : bytes));
    }
    return true;
}
