/* hc_gemv_minima_neon: 16 rows in four registers. */
#include "base/lanes/neon.h"

enum { LINES = 1 };

#include "kernels/gemv/gemv_minima.h"

HC_GEMV_MINIMA(neon)
