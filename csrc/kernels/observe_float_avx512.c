/* Small floats with one scale: the largest magnitude of the array, 16 values at a time. */
#include "kernels/encode_avx512.h"

#define HC_OBSERVE hc_observe_float_avx512
#include "kernels/observe_rows.h"
