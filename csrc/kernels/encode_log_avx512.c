/* Log number encoding, 16 values at a time. */
#include "kernels/encode_avx512.h"

#define HC_ENCODE hc_encode_log_avx512
#include "kernels/encode_log.h"
