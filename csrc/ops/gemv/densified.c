/* Weights with a pattern as dense rows for float.c: codes are expanded to their columns, with codes of 0 between them.
 * This gives the bits of nonzeros.c if no sum can be -0, the only number that adding a product of 0 changes. The
 * condition is that every x is finite, and that the product of the last bits of x and c is not below float32's smallest
 * number, so that only 0 rounds to 0.
 */
#include "base/convert.h"
#include "ops/gemv/gemv.h"
#include "ops/product/sparse.h"

#include <math.h>
#include <string.h>

enum { UNKNOWN = 1 << 20, NEAR_BYTES = 32 << 10 }; /* of x, which fit into L1 together with a row */

/* The exponent of the last bit of the smallest nonzero number; large if all are 0. */
static int last_bit(const float *values, int n) {
    int last = 0;
    for (int i = 0; i < n; i++)
        last = values[i] != 0 && isfinite(values[i]) ? (int)hc_min(last, ilogbf(values[i]) - 23) : last;
    return last;
}

/* All c are multiples of 2 to the power of the result. */
static int last_bit_of_codes(const hc_packed_context *packed) {
    const hc_format_ops *ops = hc_format_find(packed->format->family);
    const hc_stored_form form = hc_form_of(packed->format);
    if (!hc_form_is_read(&form)) {
        int last = -form.fraction_bits;
        if (!ops->decode_int)
            return UNKNOWN;
        if (form.codes == HC_CODES_FLOAT && form.bits > 8) /* the last bit of subnormal numbers */
            return form.smallest - form.precision + 1;
        for (uint32_t code = 0; form.level && code >> form.bits == 0; code++) {
            const float level = (float)form.level(packed->format, code);
            last = (int)hc_min(last, last_bit(&level, 1));
        }
        return last;
    }
    if (form.exponent_bits) /* of a subnormal float: 2 - bias - fraction bits */
        return 2 - (1 << form.exponent_bits) / 2 - (7 - form.exponent_bits);
    if (hc_form_has_table(&form))
        return last_bit(form.table, 16);
    if (!hc_form_has_codebook(&form))
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

/* Whether every x is 0, or finite and at least 2^exponent. */
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

const char *hc_gemv_densified_refuses(const hc_product *p) {
    const char *reason = hc_gemv_refuses(p);
    hc_gemv_weights weights;
    hc_gemv_densified densified;
    if (reason)
        return reason;
    if (!p->w->sparse)
        return "the weights have no pattern";
    const hc_stored_form form = hc_form_of(p->w_packed->format);
    if (!hc_gemv_weights_init(&weights, p, true) || !hc_gemv_densified_init(&densified, &weights) ||
        !hc_gemv_fits(p, &densified.geometry))
        return "rows too long to keep one in the cache";
    const int last = last_bit_of_codes(p->w_packed);
    return !hc_form_is_plain(&form) && (last == UNKNOWN || last < -100) ? "codes whose last bit may lie below float32's"
                                                                        : NULL;
}

const char *hc_gemv_densified_differs(const hc_product *p) {
    const hc_stored_form form = hc_form_of(p->w_packed->format);
    if (hc_form_is_plain(&form)) /* codes are the values */
        return hc_zeros_differ(p->run, p->x, p->w);
    const int last = last_bit_of_codes(p->w_packed);
    for (int64_t v = 0; v < p->x->rows; v++)
        if (!are_within(p->vectors + v * p->ld_vectors, p->w->columns, -126 - (int)hc_min(last, 0)))
            return "x has values that are not finite, or so small that a zero might change its sign";
    return NULL;
}

hc_work hc_gemv_densified_work(const hc_product *p) {
    const hc_geometry *g = p->w_packed->geometry;
    hc_stored_form form;
    const bool has_groups = hc_has_groups(p->w_packed->format);
    /* groups are in 16 lanes, of which the last may be empty */
    const double filled = has_groups ? (double)g->groups / (double)hc_round_up(g->groups, 16) : 1;
    const double whole = (double)p->w->rows * (double)g->whole_length, vectors = (double)p->x->rows;
    const double kept = (double)p->w->rows * (double)g->columns;
    const bool decodes = hc_gemv_decodes(p->w_packed, true, &form), is_short = !decodes && form.bits == 4;
    const bool flips = is_short && hc_gemv_zero_code(&form) > 0;
    const double x_bytes = (double)g->whole_length * hc_min(p->x->rows, HC_GEMV_VECTORS) * sizeof(float);
    return (hc_work){.codes = is_short ? whole : 0,
                     .decoded = decodes ? kept : 0,
                     .unpacked = (hc_unpacked(p) ? kept : 0) + (flips ? whole : 0),
                     .spread = whole,
                     .products = whole * vectors / filled,
                     .wide =
                         /* columns are processed one by one if x does not fit into L1 */
                     has_groups && x_bytes < NEAR_BYTES ? 0 : whole * vectors,
                     .groups = hc_groups(p) * vectors,
                     .values = hc_values_and_results(p, vectors, 40)};
}

hc_status hc_gemv_densified_run(const hc_product *p, hc_error *error) {
    hc_gemv_weights weights;
    hc_gemv_densified densified;
    hc_gemv_weights_init(&weights, p, true);
    hc_gemv_densified_init(&densified, &weights);
    return hc_gemv_multiply(p, &weights, &densified, error);
}
