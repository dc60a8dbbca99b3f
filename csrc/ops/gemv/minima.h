/* The share of minima in a product of integers. */
#ifndef HC_MINIMA_H
#define HC_MINIMA_H

#include "ops/product/product.h"

/* Adds it to what a path has stored; nothing where no side has minima. HC_MEMORY. */
hc_status hc_add_minima(const hc_product *product, hc_error *error);

#endif
