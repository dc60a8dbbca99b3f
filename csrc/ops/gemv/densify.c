/* Makes rows of a pattern dense: codes are expanded to their columns, with codes of 0 between them. */
#include "ops/gemv/gemv.h"

enum { ROW_BYTES = 1 << 20 };

bool hc_gemv_densified_init(hc_gemv_densified *whole, const hc_gemv_weights *weights) {
    const hc_packed_context *packed = weights->packed;
    const hc_format *format = packed->format;
    const hc_geometry *kept = packed->geometry;
    const hc_run *run = packed->run;
    const bool has_groups = hc_has_groups(format);
    whole->geometry = *kept;
    whole->geometry.columns = kept->whole_length;
    whole->geometry.group = has_groups ? kept->group / format->n * format->m : kept->whole_length;
    whole->words = hc_ceil_div(kept->whole_length, 64);
    /* Kernels read the whole last group, and the words of the pattern may extend beyond it. */
    const int64_t codes = hc_max(whole->words * 64, kept->groups * whole->geometry.group);
    whole->row_bytes = hc_round_up(codes * weights->bits / 8, HC_CACHE_LINE);
    whole->expand = weights->bits == 4   ? HC_PICK(expand_x4, run)
                    : weights->bits == 8 ? HC_PICK(expand_x8, run)
                                         : HC_PICK(expand_x32, run);
    whole->fill = weights->bits == 4 ? (uint8_t)(hc_gemv_zero_code(&weights->form) * 0x11) : 0;
    hc_sparse_masks_init(&whole->masks, run, format->n, format->m);
    return whole->words * 256 <= ROW_BYTES;
}

static int64_t nibble_bytes(const hc_gemv_weights *weights) {
    return hc_ceil_div(weights->packed->geometry->padded, 2);
}

int64_t hc_gemv_densified_bytes(const hc_gemv_densified *whole, const hc_gemv_weights *weights) {
    return hc_round_up(whole->words * 8, HC_CACHE_LINE) + whole->row_bytes +
           (whole->fill ? hc_round_up(nibble_bytes(weights), HC_CACHE_LINE) : 0);
}

static void flip_codes(const uint8_t *codes, int64_t n, uint8_t bits, uint8_t *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = codes[i] ^ bits;
}

void hc_gemv_densified_row(const hc_gemv_densified *whole, const hc_gemv_weights *weights, int64_t row,
                           uint8_t *scratch, hc_gemv_row *io) {
    uint64_t *masks = (uint64_t *)(void *)scratch;
    uint8_t *codes = scratch + hc_round_up(whole->words * 8, HC_CACHE_LINE), *transposed = codes + whole->row_bytes;
    const hc_packed_context *packed = weights->packed;
    const uint8_t *metadata = hc_part(packed->components, HC_METADATA, packed->first_row + row);
    hc_sparse_masks_of(&whole->masks, metadata, packed->geometry->columns, 0, whole->geometry.columns, masks);
    const uint8_t *kept = io->codes;
    if (whole->fill) { /* 4-bit codes: 0 if the code of 0 is 0 */
        flip_codes(kept, nibble_bytes(weights), whole->fill, transposed);
        kept = transposed;
    }
    whole->expand(whole->words, masks, kept, codes);
    if (whole->fill)
        flip_codes(codes, whole->row_bytes, whole->fill, codes);
    io->codes = codes;
}
