/* Weights in a pattern as dense rows for float.c: codes go back to their places, codes of 0 between them.
 *
 * This gives the bits of nonzeros.c where no sum can be -0, the one number that a product of 0 changes: every x is
 * finite, and the last bits of x and of c together are not below float32's, so that nothing but 0 rounds to 0.
 */
#include "base/convert.h"
#include "ops/gemv/gemv.h"
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
static int last_bit_of_codes(const hc_packed_context *packed) {
    const hc_format_ops *ops = hc_format_find(packed->format->family);
    hc_stored_form form;
    if (!ops->stored_form || !ops->stored_form(packed->format, &form))
        return ops->decode_int ? 0 : UNKNOWN;
    if (form.exponent_bits) /* of a subnormal float: 2 - bias - the bits of the fraction */
        return 2 - (1 << form.exponent_bits) / 2 - (7 - form.exponent_bits);
    if (form.has_table)
        return last_bit(form.table, 16);
    if (!form.has_row_tables)
        return -form.fraction_bits;
    int last = 0;
    for (int64_t row = 0; row < packed->geometry->rows; row++) {
        float table[16];
        memcpy(table, hc_part(packed->components, HC_CODEBOOK, row), sizeof table);
        last = (int)hc_min(last, last_bit(table, 16));
        if (packed->components->part[HC_CODEBOOK].row_stride == 0)
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

bool hc_gemv_densified_init(hc_gemv_densified *whole, const hc_gemv_weights *weights) {
    const hc_packed_context *packed = weights->packed;
    const hc_format *format = packed->format;
    const hc_geometry *kept = packed->geometry;
    const hc_run *run = packed->run;
    const bool has_groups = hc_format_find(format->family)->has_groups(format);
    whole->geometry = *kept;
    whole->geometry.columns = kept->whole_length;
    whole->geometry.group = has_groups ? kept->group / format->n * format->m : kept->whole_length;
    whole->words = hc_ceil_div(kept->whole_length, 64);
    /* Kernels read the last group whole, and the words of the pattern may go on behind it. */
    const int64_t codes = hc_max(whole->words * 64, kept->groups * whole->geometry.group);
    whole->row_bytes = hc_round_up(codes * weights->bits / 8, HC_CACHE_LINE);
    whole->expand = weights->bits == 4   ? HC_PICK(expand_x4, run)
                    : weights->bits == 8 ? HC_PICK(expand_x8, run)
                                         : HC_PICK(expand_x32, run);
    whole->fill = weights->bits == 4 ? (uint8_t)(hc_gemv_zero_code(&weights->form) * 0x11) : 0;
    hc_sparse_masks_init(&whole->masks, run, format->n, format->m);
    return whole->words * 256 <= ROW_BYTES;
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
    uint8_t *codes = scratch + hc_round_up(whole->words * 8, HC_CACHE_LINE), *transposed = codes + whole->row_bytes;
    const hc_packed_context *packed = weights->packed;
    const uint8_t *metadata = hc_part(packed->components, HC_METADATA, packed->first_row + row);
    hc_sparse_masks_of(&whole->masks, metadata, packed->geometry->columns, 0, whole->geometry.columns, masks);
    const uint8_t *kept = io->codes;
    if (whole->fill) { /* of 4 bits: 0 where the code of 0 is */
        flip(kept, weights->row_bytes, whole->fill, transposed);
        kept = transposed;
    }
    whole->expand(whole->words, masks, kept, codes);
    if (whole->fill)
        flip(codes, whole->row_bytes, whole->fill, codes);
    io->codes = codes;
}

const char *hc_gemv_densified_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    hc_gemv_weights weights;
    hc_gemv_densified densified;
    if (reason)
        return reason;
    if (!p->w->sparse)
        return "the weights have no pattern";
    const hc_format *format = p->w_packed->format;
    const hc_format_ops *ops = hc_format_find(format->family);
    if (!hc_gemv_weights_init(&weights, p, true) || !hc_gemv_densified_init(&densified, &weights) ||
        !hc_gemv_fits(p, &densified.geometry))
        return "rows too long to keep one in the cache";
    if (ops->is_plain && ops->is_plain(format))
        return "codes are float32 as they are: nothing is gained";
    if (weights.decodes && !ops->has_groups(format))
        return "codes that are decoded a row at a time, without groups";
    const int last = last_bit_of_codes(p->w_packed);
    return last == UNKNOWN || last < -100 ? "codes whose last bit may lie below float32's" : NULL;
}

const char *hc_gemv_densified_differs(const hc_product *p) {
    const int last = last_bit_of_codes(p->w_packed);
    for (int64_t v = 0; v < p->x->rows; v++)
        if (!are_within(p->vectors + v * p->ld_vectors, p->w->columns, -126 - (int)hc_min(last, 0)))
            return "x has values that are not finite, or so small that a zero might change its sign";
    return NULL;
}

hc_work hc_gemv_densified_work(const hc_product *p) {
    const hc_geometry *g = p->w_packed->geometry;
    hc_stored_form form;
    const bool has_groups = hc_format_find(p->w_packed->format->family)->has_groups(p->w_packed->format);
    /* groups go in 16 lanes, which the last ones need not fill */
    const double filled = has_groups ? (double)g->groups / (double)hc_round_up(g->groups, 16) : 1;
    const double codes = (double)p->w->rows * (double)g->whole_length, vectors = (double)p->x->rows;
    const double decoded = hc_gemv_decodes(p->w_packed, true, &form) ? (double)p->w->rows * (double)g->columns : 0;
    return (hc_work){codes, decoded, codes * vectors / filled, vectors * (double)g->whole_length};
}

hc_status hc_gemv_densified_run(const hc_product *p, hc_error *error) {
    hc_gemv_weights weights;
    hc_gemv_densified densified;
    hc_gemv_weights_init(&weights, p, true);
    hc_gemv_densified_init(&densified, &weights);
    return hc_gemv_multiply(p, &weights, &densified, error);
}
