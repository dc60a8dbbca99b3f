/* Kernels of the format family "mx", from its definition. */
#include "cuda/chance.h"
#include "cuda/formats/words.h"
#include "cuda/formats/known.h"

#define HC_DEFINITION "formats/mx/mx.c"
#include "cuda/formats/define.h"

namespace {
struct mx_functions : hc_plain_format {
    static constexpr bool has_thresholds = false, has_row_maximum = false;
    HC_ENCODES(mx_encode)
    HC_DECODES(mx)
    HC_HAS_CODES(mx)
    HC_STORED_SCALES(8, false, definition::mx_scale((uint8_t)bits))
    HC_HAS_INTEGERS(mx)
};
} // namespace

HC_ENCODERS(mx, mx_functions)
HC_CODEC_KNOWN(mxfp4, mx_functions, 4)
HC_FAMILY(mx, mx_functions, HC_WITH_GROUPS)
HC_GEMV_WORDS(mx, mx_functions, HC_WITH_GROUPS, 4, HC_GEMV_TABLE)
HC_INTEGERS(mx, mx_functions)
