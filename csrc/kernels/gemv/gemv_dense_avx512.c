/* hc_gemv_dense_avx512: 16 rows in lanes, one group of one vector at a time: a second chain of sums is not faster, and
 * rows that are 4 KiB apart share the sets of L1. */
#include "base/lanes/avx512.h"

enum { GROUPS = 1 };
enum { AHEAD = 128 }; /* columns: 4096 x 4096 in 2.5 ms, 2.8 without (one thread, Zen 5, 2026-11) */

#define HC_STAGES /* rows a page apart */
#include "kernels/gemv/gemv_dense.h"

HC_GEMV_DENSE(avx512)
