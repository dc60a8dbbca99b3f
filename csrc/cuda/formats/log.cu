/* Kernels of the format family "log" that encode, from its definition; those of own.cu decode. */
#include "cuda/chance.h"

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
HC_CHANCE(log, log_functions)
