/* gemv_nm_folded: 4-bit codes and scales; the included file describes it. */
#include "kernels/sparse/gemv_nm_avx2.h"

void hc_gemv_nm_folded_avx2(const hc_gemv_nm_integers_args *args) { choose(args, true); }
