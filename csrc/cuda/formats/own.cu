/* Kernels of the formats that sentences define, family "own", from its definition. The record of a format is in memory of the device,
 * where the planner has written it (HC_CUDA_RECORD_AT).
 */
#include "base/sentence.h"
#include "cuda/gemv.h"

#define HC_DEFINITION "formats/own/own.c"
#define HC_SENTENCE_OF
static inline HC_DEVICE const hc_sentence *hc_sentence_of(const hc_format *format) {
    const hc_sentence *own;
    memcpy(&own, format->option + HC_CUDA_RECORD_AT, sizeof own);
    return own;
}
namespace definition {
/* By a product: the definition asks for few places, and for powers of two that are normal. */
static inline HC_DEVICE double ldexp(double value, int places) {
    const uint64_t bits = (uint64_t)(1023 + places) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return value * power;
}
} // namespace definition
#include "cuda/formats/define.h"

namespace {
/* The parts of a chunk where its blocks have the scales: chunks are rows of their own, and what rows share lies where all have it. */
HC_DEVICE hc_components parts_of(const hc_format *format, const hc_components *parts) {
    static constexpr int BYTES[] = {4, 2, 2, 1, 1, 1}; /* hc_own_scale */
    const hc_sentence *own = hc_sentence_of(format);
    hc_components of_chunk = *parts;
    if (own->sharing == OWN_BLOCK) {
        const int64_t groups = (uint32_t)format->option[HC_CUDA_RECORD_GROUPS];
        const int64_t row = parts->first_row / groups, group = parts->first_row - row * groups;
        of_chunk.part[HC_SCALES].data += (row / own->block_rows * groups + group) * BYTES[own->scale];
        of_chunk.first_row = 0;
    }
    return of_chunk;
}

struct own_functions : hc_plain_format {
    static constexpr bool is_rolled = true, is_kept_rolled = true, has_kept_integers = false;
    static constexpr bool has_integers = true;
    static HC_DEVICE void decode_int(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,
                                     const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
        const hc_components of_chunk = parts_of(format, parts);
        definition::own_decode_int(format, geometry, &of_chunk, tile, mode, out);
    }
    static HC_DEVICE void decode(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,
                                 const hc_tile *tile, float *values, int64_t ld) {
        const hc_components of_chunk = parts_of(format, parts);
        definition::own_decode(format, geometry, &of_chunk, tile, values, ld);
    }
    static HC_DEVICE void decode_f64(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,
                                     const hc_tile *tile, double *values, int64_t ld) {
        const hc_components of_chunk = parts_of(format, parts);
        definition::own_decode_f64(format, geometry, &of_chunk, tile, values, ld);
    }
    static HC_DEVICE void decode_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,
                                       const hc_tile *tile, const hc_code_tile *out) {
        definition::own_decode_codes(format, geometry, parts, tile, out);
    }
};
} // namespace

HC_DECODERS(own, own_functions)
HC_GEMV(own, own_functions, HC_BOTH)
HC_KEPT(own, own_functions, HC_BOTH)
HC_INTEGERS(own, own_functions)
