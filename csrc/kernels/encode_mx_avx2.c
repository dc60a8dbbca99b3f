/* Microscaling encoding, 8 values at a time. */
#include "kernels/encode_avx2.h"

#define HC_ENCODE hc_encode_mx_avx2
#include "kernels/encode_mx.h"
