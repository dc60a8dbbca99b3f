/* hc_attend_scalar: kernels/layers/layers.h. */
#include "kernels/layers/attend.h"

#include "kernels/kernel.h"

void hc_attend_scalar(const hc_attend *some) { hc_attend_body(some); }
