/* Kernels of the format family "log", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"

#define HC_DEFINITION "formats/log/log.c"
#include "cuda/formats/define.h"

namespace {
struct log_functions : hc_plain_format {
    HC_ENCODES(log_encode)
    HC_DECODES(log)
    HC_HAS_CODES(log)
};
} // namespace

HC_ENCODERS(log, log_functions)
HC_FAMILY(log, log_functions, HC_BOTH)
