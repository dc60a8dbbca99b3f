/* NVFP4: the largest magnitude of the array, 8 values at a time. */
#include "kernels/encode_avx2.h"

#define HC_OBSERVE hc_observe_nvfp4_avx2
#include "kernels/observe_rows.h"
