/* Which product two sources take, shared by matmul.c and conv.c. */
#ifndef HC_PRODUCT_H
#define HC_PRODUCT_H

#include "ops/product/source.h"

/* Integers where both sides have them, folded before grouped; else floats. */
hc_product_kind hc_product_choose(const hc_source *a, const hc_source *b);

/* Exact integer sums must fit int64, by any way that a product takes. */
hc_status hc_product_check_sums(hc_product_kind kind, const hc_source *a, const hc_source *b, hc_error *error);

#endif
