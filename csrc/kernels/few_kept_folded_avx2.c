/* few_kept_folded: codes of 4 bits and scales; the file that is included says how. */
#include "kernels/few_kept_avx2.h"

void hc_few_kept_folded_avx2(const hc_few_kept_integers_args *args) { choose(args, true); }
