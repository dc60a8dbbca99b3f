/* Log number encoding, 8 values at a time. */
#include "kernels/encode_avx2.h"

#define HC_ENCODE hc_encode_log_avx2
#include "kernels/encode_log.h"
