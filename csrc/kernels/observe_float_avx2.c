/* Small floats with one scale: the largest magnitude of the array, 8 values at a time. */
#include "kernels/encode_avx2.h"

#define HC_OBSERVE hc_observe_float_avx2
#include "kernels/observe_rows.h"
