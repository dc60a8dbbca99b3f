/* Kernels of the format family "ggml", from its definition. */
#include "cuda/formats/words.h"

#define HC_GGML_GROUPS 1 /* types with blocks of 256 values are encoded by the host */
#define HC_DEFINITION "formats/ggml/ggml.c"
#include "cuda/formats/define.h"

namespace {
struct ggml_functions : hc_plain_format {
    HC_ENCODES(encode)
    HC_DECODES(ggml)
    HC_HAS_CODES(ggml)
    HC_STORED_SCALES(16, false, hc_f16_to_f32((uint16_t)bits))
    HC_HAS_INTEGERS(ggml)
};
} // namespace

HC_ENCODERS(ggml, ggml_functions)
HC_DECODERS(ggml, ggml_functions)
HC_GEMV(ggml, ggml_functions, HC_BOTH)
HC_GEMV_WORDS(ggml, ggml_functions, HC_WITH_GROUPS, 4, HC_GEMV_TABLE)
HC_GEMV_WORDS(ggml, ggml_functions, HC_WITH_GROUPS, 8, HC_GEMV_BYTES)
HC_INTEGERS(ggml, ggml_functions)

/* A thread a segment, which lies in one group. */
HC_KERNEL(hc_minima_ggml, hc_cuda_minima, 128) {
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = index / p.segments;
    if (row >= p.geometry.rows)
        return;
    const int64_t group = (index - row * p.segments) * p.group / p.geometry.group;
    p.minima[index] = definition::ggml_minimum(definition::ggml_kind(&p.format), &p.parts, row, group);
}
