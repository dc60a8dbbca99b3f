/* hc_gemv_dense_avx2: 8 rows in lanes, 32 at a time. */
#include "base/lanes/avx2.h"

enum { GROUPS = 4, AHEAD = 128 /* columns, as in gemv_dense_avx512.c */ };

#define HC_WEAVES
#include "kernels/gemv/gemv_dense.h"

HC_GEMV_DENSE(avx2)
