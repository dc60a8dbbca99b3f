/* Kernels of the format family "float", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"
#include "cuda/formats/known.h"

#define static HC_STATIC
namespace definition {
#include "formats/float/float.c"
}
namespace quick {
using namespace definition;
#undef HC_QUICK
#define HC_QUICK HC_QUICK_OR_UNSURE
#include "formats/float/float.c"
}
#undef static

namespace {
struct float_functions : hc_plain_format {
    HC_MAXIMUM(float)
    HC_ENCODES(float_encode)
    HC_ENCODES_QUICKLY(float_encode)
    HC_DECODES(float)
    HC_HAS_CODES(float)
};
} // namespace

HC_FINDS_MAXIMA(float, float_functions)
HC_ENCODERS(float, float_functions)
HC_CODEC_KNOWN(fp8_e4m3fn_row, float_functions, 4)
HC_DECODERS(float, float_functions)
HC_CHANCE(float, float_functions)
HC_GEMV(float, float_functions, HC_WITHOUT_GROUPS)
HC_KEPT(float, float_functions, HC_WITHOUT_GROUPS)
