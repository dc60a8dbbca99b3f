/* gemv_nm_folded: codes of 4 bits and scales; the file that is included says how. */
#include "kernels/sparse/gemv_nm_avx2.h"

void hc_gemv_nm_folded_avx2(const hc_gemv_nm_integers_args *args) { choose(args, true); }
