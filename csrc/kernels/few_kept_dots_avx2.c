/* few_kept_dots: codes of 8 bits; the file that is included says how. */
#include "kernels/few_kept_avx2.h"

void hc_few_kept_dots_avx2(const hc_few_kept_integers_args *args) { choose(args, false); }
