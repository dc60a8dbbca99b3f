/* hc_gemv_dense_neon: 4 rows in lanes, 16 at a time. */
#include "base/lanes/neon.h"

enum { GROUPS = 4, AHEAD = 0 };

#include "kernels/gemv/gemv_dense.h"

HC_GEMV_DENSE(neon)
