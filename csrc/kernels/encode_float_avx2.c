/* Small float encoding, 8 values at a time. */
#include "kernels/encode_avx2.h"

#define HC_ENCODE hc_encode_float_avx2
#include "kernels/encode_float.h"
