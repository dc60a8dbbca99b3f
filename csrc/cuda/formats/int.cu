/* Kernels of the format family "int", from its definition. */
#include "cuda/chance.h"
#include "cuda/formats/kept_words.h"
#include "cuda/formats/known.h"
#include "cuda/formats/words.h"

#define HC_DEFINITION "formats/int/int.c"
#define HC_QUICKLY
#include "cuda/formats/define.h"

namespace {
struct int_functions : hc_plain_format {
    HC_ENCODES(int_encode)
    HC_ENCODES_QUICKLY(int_encode)
    static constexpr bool is_quick_by_chunks = true;
    HC_DECODES(int)
    HC_HAS_CODES(int)
    HC_HAS_INTEGERS(int)
    HC_STORED_SCALES(32 | 16, false, hc_gemv_float(bits, width))
};
} // namespace

HC_ENCODERS(int, int_functions)
HC_CODEC_KNOWN(int8, int_functions, 4)
HC_FAMILY(int, int_functions, HC_BOTH)
HC_GEMV_WORDS(int, int_functions, HC_BOTH, 4, HC_GEMV_NIBBLES)
HC_GEMV_WORDS(int, int_functions, HC_BOTH, 8, HC_GEMV_BYTES)
HC_KEPT_WORDS(int, int_functions, HC_BOTH, 4, HC_GEMV_NIBBLES)
HC_KEPT_WORDS(int, int_functions, HC_BOTH, 8, HC_GEMV_BYTES)
HC_INTEGERS(int, int_functions)
