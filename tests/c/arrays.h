/* Arrays for the checks, in guarded memory. */
#ifndef HC_TEST_ARRAYS_H
#define HC_TEST_ARRAYS_H

#include "hc.h"

/* Values that bfloat16 holds. Seed 0: zeros; 1: one magnitude; otherwise random, with zeros and tiny values. */
double *random_values(int64_t n, uint32_t seed);
void *converted(const double *x, int64_t n, hc_dtype dtype);

/* A C-ordered view. */
hc_view view_of(void *data, hc_dtype dtype, int ndim, const int64_t *shape);

/* A packed array of this shape, not yet encoded. */
bool make_packed(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                 hc_packed *packed, hc_geometry *geometry, hc_error *error);

#endif
