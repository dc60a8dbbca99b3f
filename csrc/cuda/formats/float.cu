/* Kernels of the format family "float", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"
#include "cuda/formats/known.h"

#define HC_DEFINITION "formats/float/float.c"
#define HC_QUICKLY
#include "cuda/formats/define.h"

namespace {
struct float_functions : hc_plain_format {
    HC_MAXIMUM(float)
    HC_ENCODES(float_encode)
    HC_ENCODES_QUICKLY(float_encode)
    HC_DECODES(float)
    HC_HAS_CODES(float)
    static HC_DEVICE uint32_t lost(const hc_format *format, const hc_float_rows *x, int n) {
        using namespace definition;
        uint32_t found = 0; /* n <= 32, as a chunk without groups has */
        HC_SHORT_LOOP
        for (int c = 0; c < n && float_scaling(format) == FLOAT_UNSCALED; c++)
            found |= (uint32_t)!float_legal(format, hc_row_value(x, 0, c)) << c;
        return found;
    }
};
} // namespace

HC_ENCODERS(float, float_functions)
HC_CODEC_KNOWN(fp8_e4m3fn_row, float_functions, 4)
HC_FAMILY(float, float_functions, HC_WITHOUT_GROUPS)
