/* Kernels of the format family "nf4", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"

#define static HC_STATIC
namespace definition {
#include "formats/nf4/nf4.c"
}
#undef static

namespace {
struct nf4_functions : hc_plain_format {
    HC_ENCODES(nf4_encode)
    HC_DECODES(nf4)
    HC_HAS_CODES(nf4)
    HC_STORED_SCALES(32 | HC_DECODED_SCALES, false, hc_f32_from_bits(bits))
};
} // namespace

HC_ENCODERS(nf4, nf4_functions)
HC_DECODERS(nf4, nf4_functions)
HC_CHANCE(nf4, nf4_functions)
HC_GEMV(nf4, nf4_functions, HC_WITH_GROUPS)
HC_KEPT(nf4, nf4_functions, HC_WITH_GROUPS)
HC_GEMV_WORDS(nf4, nf4_functions, HC_WITH_GROUPS, 4, HC_GEMV_TABLE)
