/* gemv_nm_dots: 8-bit codes; the included file describes it. */
#include "kernels/sparse/gemv_nm_avx2.h"

void hc_gemv_nm_dots_avx2(const hc_gemv_nm_integers_args *args) { choose(args, false); }
