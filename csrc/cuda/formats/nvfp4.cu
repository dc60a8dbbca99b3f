/* Kernels of the format family "nvfp4", from its definition. */
#include "cuda/chance.h"
#include "cuda/formats/words.h"
#include "cuda/formats/known.h"

#define HC_DEFINITION "formats/nvfp4/nvfp4.c"
#define HC_QUICKLY
#include "cuda/formats/define.h"

namespace {
struct nvfp4_functions : hc_plain_format {
    static constexpr bool has_thresholds = false, has_row_maximum = false, is_rolled = true;
    HC_MAXIMUM(nvfp4)
    HC_ENCODES(nvfp4_encode)
    HC_ENCODES_QUICKLY(nvfp4_encode)
    HC_DECODES(nvfp4)
    HC_HAS_CODES(nvfp4)
    HC_STORED_SCALES(8, true, definition::group_scale((uint8_t)bits, coarse))
    HC_HAS_INTEGERS(nvfp4)
};
} // namespace

HC_ENCODERS(nvfp4, nvfp4_functions)
HC_CODEC_KNOWN(nvfp4, nvfp4_functions, 4)
HC_FAMILY(nvfp4, nvfp4_functions, HC_WITH_GROUPS)
HC_GEMV_WORDS(nvfp4, nvfp4_functions, HC_WITH_GROUPS, 4, HC_GEMV_TABLE)
HC_INTEGERS(nvfp4, nvfp4_functions)
