/* Products with few vectors whose weights are read as they are stored, without a decoded tile. */
#ifndef HC_FEW_STORED_H
#define HC_FEW_STORED_H

#include "ops/source.h"

/* Folds lanes[i] with lanes[i + n / 2], and so on down to one; n is a power of two. */
float hc_few_fold(float *lanes, int n);

#endif
