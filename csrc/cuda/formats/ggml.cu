/* Kernels of the format family "ggml", from its definition. */
#include "cuda/codec.h"

#define HC_GGML_GROUPS 1 /* types with blocks of 256 values are encoded by the host */
#define static HC_STATIC
namespace definition {
#include "formats/ggml/ggml.c"
}
#undef static

namespace {
struct ggml_functions : hc_plain_format {
    HC_ENCODES(encode)
    HC_DECODES(ggml)
    HC_HAS_CODES(ggml)
    HC_HAS_INTEGERS(ggml)
};
} // namespace

HC_ENCODERS(ggml, ggml_functions)
HC_DECODERS(ggml, ggml_functions)
HC_GEMV(ggml, ggml_functions)
HC_GEMV_WORDS(ggml, ggml_functions, 4)
HC_GEMV_WORDS(ggml, ggml_functions, 8)
HC_INTEGERS(ggml, ggml_functions)
