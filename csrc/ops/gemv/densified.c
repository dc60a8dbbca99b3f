/* Weights in a pattern as dense rows for gemv_floats.c: codes go back to their places, codes of 0 between them.
 *
 * This gives the bits of sparse_gemv.c where no sum can be -0, the one number that a product of 0 changes: every x is
 * finite, and the last bits of x and of c together are not below float32's, so that nothing but 0 rounds to 0.
 */
#include "base/convert.h"
#include "ops/gemv/stored.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { ROW_BYTES = 1 << 20, UNKNOWN = 1 << 20 };

/* The exponent of the last bit of the smallest number but 0; large where all are 0. */
static int last_bit(const float *values, int n) {
    int last = 0;
    for (int i = 0; i < n; i++)
        last = values[i] != 0 && isfinite(values[i]) ? (int)hc_min(last, ilogbf(values[i]) - 23) : last;
    return last;
}

/* All c are multiples of 2 to the answer. */
static int last_bit_of_codes(const hc_format_ops *ops, const hc_packed *packed, const hc_geometry *geometry) {
    hc_stored_form form;
    if (!ops->stored_form || !ops->stored_form(&packed->format, &form))
        return ops->decode_int ? 0 : UNKNOWN;
    if (form.exponent_bits) /* of a subnormal float: 2 - bias - the bits of the fraction */
        return 2 - (1 << form.exponent_bits) / 2 - (7 - form.exponent_bits);
    if (form.has_table)
        return last_bit(form.table, 16);
    if (!form.has_row_tables)
        return -form.fraction_bits;
    int last = 0;
    for (int64_t row = 0; row < geometry->rows; row++) {
        float table[16];
        memcpy(table, hc_part(&packed->components, HC_CODEBOOK, row), sizeof table);
        last = (int)hc_min(last, last_bit(table, 16));
        if (packed->components.part[HC_CODEBOOK].row_stride == 0)
            break;
    }
    return last;
}

/* Every x is 0, or finite and at least 2^exponent. */
static bool are_within(const float *x, int64_t columns, int exponent) {
    const uint32_t least = (uint32_t)(exponent + 127) << 23;
    uint32_t outside = 0;
    for (int64_t k = 0; k < columns; k++) {
        uint32_t bits;
        memcpy(&bits, x + k, sizeof bits);
        bits &= 0x7fffffff;
        outside |= (uint32_t)(bits - least >= 0x7f800000 - least) & (uint32_t)(bits != 0);
    }
    return outside == 0;
}

int hc_gemv_zero_code(const hc_stored_form *form) {
    if (form->has_zero_points || form->has_row_tables)
        return -1;
    for (int code = 0; code < 16 && form->has_table; code++)
        if (form->table[code] == 0)
            return code;
    return form->has_table ? -1 : 0;
}

bool hc_gemv_densified_init(hc_gemv_densified *whole, const hc_gemv_weights *weights, const float *x, int64_t ldx,
                            int64_t n_vectors) {
    const hc_packed *packed = weights->packed;
    const hc_geometry *kept = weights->geometry;
    const hc_format_ops *ops = hc_format_find(packed->format.family);
    const bool has_groups = ops->has_groups(&packed->format);
    whole->geometry = *kept;
    whole->geometry.columns = kept->whole_length;
    whole->geometry.group = has_groups ? kept->group / packed->format.n * packed->format.m : kept->whole_length;
    whole->words = hc_ceil_div(kept->whole_length, 64);
    /* Kernels read the last group whole, and the words of the pattern may go on behind it. */
    const int64_t codes = hc_max(whole->words * 64, kept->groups * whole->geometry.group);
    whole->row_bytes = hc_round_up(codes * weights->bits / 8, HC_CACHE_LINE);
    if (whole->words * 256 > ROW_BYTES || (weights->decodes && !has_groups))
        return false;
    const int last = last_bit_of_codes(ops, packed, kept);
    if (last == UNKNOWN || last < -100)
        return false;
    for (int64_t v = 0; v < n_vectors; v++)
        if (!are_within(x + v * ldx, kept->whole_length, -126 - (int)hc_min(last, 0)))
            return false;
    const hc_run *run = weights->run;
    whole->spread = weights->bits == 4   ? HC_PICK(expand_x4, run)
                    : weights->bits == 8 ? HC_PICK(expand_x8, run)
                                         : HC_PICK(expand_x32, run);
    whole->fill = weights->bits == 4 ? (uint8_t)(hc_gemv_zero_code(&weights->form) * 0x11) : 0;
    hc_sparse_masks_init(&whole->masks, weights->run, packed->format.n, packed->format.m);
    return true;
}

int64_t hc_gemv_densified_bytes(const hc_gemv_densified *whole, const hc_gemv_weights *weights) {
    return hc_round_up(whole->words * 8, HC_CACHE_LINE) + whole->row_bytes +
           (whole->fill ? hc_round_up(weights->row_bytes, HC_CACHE_LINE) : 0);
}

static void flip(const uint8_t *codes, int64_t n, uint8_t bits, uint8_t *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = codes[i] ^ bits;
}

void hc_gemv_densified_row(const hc_gemv_densified *whole, const hc_gemv_weights *weights, int64_t row,
                           uint8_t *scratch, hc_gemv_row *io) {
    uint64_t *masks = (uint64_t *)(void *)scratch;
    uint8_t *codes = scratch + hc_round_up(whole->words * 8, HC_CACHE_LINE), *turned = codes + whole->row_bytes;
    const uint8_t *metadata = hc_part(&weights->packed->components, HC_METADATA, weights->first_row + row);
    hc_sparse_masks_of(&whole->masks, metadata, weights->geometry->columns, 0, whole->geometry.columns, masks);
    const uint8_t *kept = io->codes;
    if (whole->fill) { /* of 4 bits: 0 where the code of 0 is */
        flip(kept, weights->row_bytes, whole->fill, turned);
        kept = turned;
    }
    whole->spread(whole->words, masks, kept, codes);
    if (whole->fill)
        flip(codes, whole->row_bytes, whole->fill, codes);
    io->codes = codes;
}
