/* NVFP4 encoding, 16 values at a time. */
#include "kernels/encode_avx512.h"

#define HC_ENCODE hc_encode_nvfp4_avx512
#include "kernels/encode_nvfp4.h"
