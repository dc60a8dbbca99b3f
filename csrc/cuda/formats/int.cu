/* Kernels of the format family "int", from its definition. */
#include "cuda/chance.h"
#include "cuda/gemv.h"
#include "cuda/formats/known.h"

#define static HC_STATIC
namespace definition {
#include "formats/int/int.c"
}
namespace quick {
using namespace definition;
#undef HC_QUICK
#define HC_QUICK HC_QUICK_OR_UNSURE
#include "formats/int/int.c"
}
#undef static

namespace {
struct int_functions : hc_plain_format {
    HC_ENCODES(int_encode)
    HC_ENCODES_QUICKLY(int_encode)
    static constexpr bool is_quick_by_chunks = true;
    HC_DECODES(int)
    HC_HAS_CODES(int)
    static constexpr bool has_integers = true;
    static HC_DEVICE void decode_int(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,
                                     const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
        if (format->bits != 4) {
            definition::int_decode_int(format, geometry, parts, tile, mode, out);
            return;
        }
        hc_format of_4_bits = *format; /* of which compilers know the bits */
        of_4_bits.bits = 4;
        definition::int_decode_int(&of_4_bits, geometry, parts, tile, mode, out);
    }
    HC_STORED_SCALES(32 | 16, false, hc_gemv_float(bits, width))
};
} // namespace

HC_ENCODERS(int, int_functions)
HC_CODEC_KNOWN(int8, int_functions, 4)
HC_DECODERS(int, int_functions)
HC_CHANCE(int, int_functions)
HC_GEMV(int, int_functions, HC_BOTH)
HC_KEPT(int, int_functions, HC_BOTH)
HC_GEMV_WORDS(int, int_functions, HC_BOTH, 4, HC_GEMV_NIBBLES)
HC_GEMV_WORDS(int, int_functions, HC_BOTH, 8, HC_GEMV_BYTES)
HC_INTEGERS(int, int_functions)
