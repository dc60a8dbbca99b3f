/* gemv_nm_dots: codes of 8 bits; the file that is included says how. */
#include "kernels/sparse/gemv_nm_avx2.h"

void hc_gemv_nm_dots_avx2(const hc_gemv_nm_integers_args *args) { choose(args, false); }
