/* Kernels of the format family "vsq", from its definition. */
#include "cuda/chance.h"
#include "cuda/formats/kept_words.h"
#include "cuda/formats/known.h"
#include "cuda/formats/words.h"

#define HC_DEFINITION "formats/vsq/vsq.c"
#define HC_QUICKLY
#include "cuda/formats/define.h"

namespace {
struct vsq_functions : hc_plain_format {
    HC_MAXIMUM(vsq)
    static HC_DEVICE bool maximum_is_coarse(const hc_format *) { return true; }
    static HC_DEVICE hc_format of_chunk(const hc_format *format) { return definition::vsq_with_tensor_coarse(format); }
    HC_ENCODES(vsq_encode)
    HC_ENCODES_QUICKLY(vsq_encode)
    HC_DECODES(vsq)
    HC_HAS_CODES(vsq)
    HC_HAS_INTEGERS(vsq)
    HC_STORED_SCALES(bits | HC_DECODED_SCALES, false, (float)bits)
};
} // namespace

HC_ENCODERS(vsq, vsq_functions)
HC_CODEC_KNOWN(vsq4_g16_s4, vsq_functions, 3)
HC_FAMILY(vsq, vsq_functions, HC_WITH_GROUPS)
HC_GEMV_WORDS(vsq, vsq_functions, HC_WITH_GROUPS, 4, HC_GEMV_NIBBLES)
HC_GEMV_WORDS(vsq, vsq_functions, HC_WITH_GROUPS, 8, HC_GEMV_BYTES)
HC_KEPT_WORDS(vsq, vsq_functions, HC_WITH_GROUPS, 4, HC_GEMV_NIBBLES)
HC_INTEGERS(vsq, vsq_functions)
