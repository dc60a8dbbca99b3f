/* Dense float32 without panels: few rows of x, or small weights. */
#ifndef HC_FLAT_H
#define HC_FLAT_H

#include "ops/product/product.h"

bool hc_is_flat(const hc_product *product);
hc_status hc_flat(const hc_product *product, hc_error *error);

#endif
