/* hc_gemv_dense_neon: 4 rows in lanes. */
#include "base/lanes/neon.h"

enum { AHEAD = 0 };

#include "kernels/gemv/gemv_dense.h"

HC_GEMV_DENSE(neon)
