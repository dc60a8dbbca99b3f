/* The part of minima in a matmul of integers. */
#ifndef HC_MINIMA_H
#define HC_MINIMA_H

#include "ops/product/product.h"

/* Adds the part of minima to the result of a path; does nothing if no side has minima. Can fail with HC_MEMORY. */
hc_status hc_add_minima(const hc_product *product, hc_error *error);

#endif
