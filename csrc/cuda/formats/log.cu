/* Kernels of the format family "log", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"

#define static HC_STATIC
namespace definition {
#include "formats/log/log.c"
}
#undef static

namespace {
struct log_functions : hc_plain_format {
    HC_ENCODES(log_encode)
    HC_DECODES(log)
    HC_HAS_CODES(log)
};
} // namespace

HC_ENCODERS(log, log_functions)
HC_DECODERS(log, log_functions)
HC_CHANCE(log, log_functions)
HC_GEMV(log, log_functions, HC_BOTH)
HC_KEPT(log, log_functions, HC_BOTH)
