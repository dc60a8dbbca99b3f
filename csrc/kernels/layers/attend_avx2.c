/* hc_attend_avx2: kernels/layers/layers.h. */
#define HC_FLOATS 8
#include "kernels/layers/attend.h"

#include "kernels/kernel.h"

void hc_attend_avx2(const hc_attend *some) { hc_attend_body(some); }
