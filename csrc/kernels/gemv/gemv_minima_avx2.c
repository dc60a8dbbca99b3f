/* hc_gemv_minima_avx2: 16 rows in two registers. */
#include "base/lanes/avx2.h"

enum { LINES = 2 };

#include "kernels/gemv/gemv_minima.h"

HC_GEMV_MINIMA(avx2)
