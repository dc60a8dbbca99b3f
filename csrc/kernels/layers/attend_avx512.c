/* hc_attend_avx512: kernels/layers/layers.h. */
#define HC_FLOATS 16
#include "kernels/layers/attend.h"

#include "kernels/kernel.h"

void hc_attend_avx512(const hc_attend *some) { hc_attend_body(some); }
