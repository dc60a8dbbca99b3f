/* NVFP4: the largest magnitude of the array, 16 values at a time. */
#include "kernels/encode_avx512.h"

#define HC_OBSERVE hc_observe_nvfp4_avx512
#include "kernels/observe_rows.h"
