/* hc_gemv_dense_avx512: 16 rows in lanes. More rows at a time would hide the latency of fma, but rows that are 4 KiB apart share
 * the sets of L1: 64 rows take twice as long (2048 x 2048, one vector, Zen 5, 2026-11). */
#include "base/lanes/avx512.h"

enum { AHEAD = 128 }; /* columns: 4096 x 4096 in 2.5 ms, 2.8 without (one thread, Zen 5, 2026-11) */

#include "kernels/gemv/gemv_dense.h"

HC_GEMV_DENSE(avx512)
