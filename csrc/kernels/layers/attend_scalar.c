/* hc_attend_scalar: kernels/layers/layers.h. */
#define HC_FLOATS 4
#include "kernels/layers/attend.h"

#include "kernels/kernel.h"

void hc_attend_scalar(const hc_attend *some) { hc_attend_body(some); }
