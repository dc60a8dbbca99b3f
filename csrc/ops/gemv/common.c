/* Weight rows in the form of the kernels for few vectors: read as they are stored, unpacked, or decoded a row at a
 * time. */
#include "base/convert.h"
#include "formats/bits.h"
#include "ops/codec/decode.h"
#include "ops/gemv/gemv.h"

#include <math.h>
#include <string.h>

enum { ROW_BYTES = 1 << 20 };

const char *hc_gemv_refuses(const hc_product *p) {
    HC_ASSUME(p->order == HC_ORDER_GEMV && p->x->rows <= (p->w->sparse ? HC_GEMV_MOST : HC_GEMV_BLOCK));
    return !p->w_packed || p->w_packed->geometry->runs != 1 ? "the weights are no packed rows of one run" : NULL;
}

const char *hc_gemv_few_refuse(const hc_product *p) {
    return p->x->rows > HC_GEMV_MOST ? "x has more than 8 rows" : hc_gemv_int_sides_refuse(p);
}

const char *hc_gemv_int_sides_refuse(const hc_product *p) {
    if (!p->w_packed || !p->x_packed || p->w_packed->geometry->runs != 1 || p->x_packed->geometry->runs != 1)
        return "an operand is not a packed matrix with one reduction axis";
    return p->x->sparse ? "x has a pattern" : NULL;
}

int hc_gemv_zero_code(const hc_stored_form *form) {
    if (form->has_zero_points || hc_form_has_codebook(form))
        return -1;
    for (int code = 0; code < 16 && hc_form_has_table(form); code++)
        if (form->table[code] == 0)
            return code;
    return hc_form_has_table(form) ? -1 : 0;
}

/* The form of packed rows. Tables of up to 3 bits become those of 4-bit codes. */
static hc_stored_form form_of(const hc_format *format) {
    hc_stored_form form = hc_form_of(format);
    const uint32_t mask = (1u << form.bits % 4) - 1;
    if (form.bits > 3 || !form.level || hc_form_has_codebook(&form))
        return form;
    for (uint32_t code = 0; code < 16; code++)
        form.table[code] = (float)form.level(format, code & mask);
    form.codes = HC_CODES_TABLE;
    form.bits = 4;
    return form;
}

/* True if gemv_values reads rows with minima: products of codes and scales, float16 or of blocks, are exact. */
static bool has_values(const hc_packed_context *packed, const hc_stored_form *form) {
    const hc_geometry *geometry = packed->geometry;
    const int64_t group = geometry->group;
    return form->has_minima && packed->format->m == 0 && HC_PICK(gemv_values, packed->run) &&
           (form->scale == HC_SCALE_F16 || form->scale == HC_SCALE_OWN) &&
           (geometry->groups == 1 || group == 16 || group == 32 || group % 64 == 0);
}

/* True for codes that are float16 or bfloat16, without a scale. A format that has numbers where float16 has infinity and
 * NaN, such as e5m10fn, is neither. */
static bool is_halves(const hc_stored_form *form) {
    const bool is_float16 = form->precision == 11 && form->smallest == -14 && form->maximum == 65504;
    return form->codes == HC_CODES_FLOAT && form->bits == 16 && (is_float16 || form->precision == 8) &&
           form->scale == HC_SCALE_NONE && form->second == HC_SECOND_NONE;
}

bool hc_gemv_decodes(const hc_packed_context *packed, bool may_decode, hc_stored_form *form) {
    const hc_format *format = packed->format;
    const bool is_expanded = may_decode && format->m > 0; /* nonzero codes expanded to their columns */
    const int64_t group = is_expanded ? packed->geometry->group / format->n * format->m : packed->geometry->group;
    *form = form_of(format);
    if (may_decode && is_halves(form) && format->m == 0)
        return false;
    return !hc_form_is_read(form) || (may_decode && form->has_minima && !has_values(packed, form)) ||
           (may_decode && hc_has_groups(format) && group * (form->bits == 4 ? 4 : 8) % 32 != 0) ||
           (is_expanded && hc_gemv_zero_code(form) < 0);
}

/* Whether codes, or what `table` makes of them, are the integers of the format. */
static bool set_integers(hc_gemv_weights *weights, const hc_product *product) {
    enum { MOST = 63 /* four products of such bytes and int8 fit into 16 bits */ };
    const hc_stored_form *form = &weights->form;
    const bool is_folded = product->order == HC_ORDER_FOLDED;
    if (!is_folded && form->scale == HC_SCALE_NONE) /* segments have no scales */
        return false;
    if (form->codes == HC_CODES_INTEGER)
        return true;
    weights->as_integers = weights->is_short = true;
    weights->flip = 0;
    if (form->e2_bits) {
        weights->zero = (float)hc_e2_zero(form->e2_bits);
        for (int code = 0; code < 16; code++)
            weights->table[code] = hc_e2_integer((uint8_t)code, form->e2_bits);
        return true;
    }
    if (!hc_form_has_table(form))
        return false;
    hc_int_form integers;
    hc_format_find(weights->packed->format->family)
        ->int_form(weights->packed->format, is_folded ? HC_INT_FOLDED : HC_INT_GROUPED, &integers);
    double level[16], lowest = 0, most = 0;
    for (int code = 0; code < 16; code++) {
        level[code] = ldexp((double)form->table[code], integers.fraction_bits);
        lowest = fmin(lowest, level[code]);
        most = fmax(most, fabs(level[code]));
    }
    weights->zero = (float)-lowest;
    weights->is_short = most <= 15;
    for (int code = 0; code < 16; code++) {
        const double byte = level[code] - lowest;
        if (!(byte <= MOST && byte == floor(byte)))
            return false;
        weights->table[code] = (uint8_t)byte;
    }
    return true;
}

bool hc_gemv_weights_init(hc_gemv_weights *weights, const hc_product *product, bool may_decode) {
    const hc_packed_context *packed = product->w_packed;
    const hc_geometry *geometry = packed->geometry;
    const int64_t numbers = hc_round_up(geometry->groups, 16) * (int64_t)sizeof(float);
    *weights = (hc_gemv_weights){.packed = packed, .rows = product->w->rows};
    hc_stored_form *form = &weights->form;
    if (hc_gemv_decodes(packed, may_decode, form)) {
        const int64_t codes = geometry->padded * (int64_t)sizeof(float);
        *form = (hc_stored_form){.bits = 32};
        weights->decodes = true;
        weights->bits = 32;
        weights->row_bytes = codes;
        weights->scratch_bytes = hc_round_up(codes, HC_CACHE_LINE) + numbers;
        return may_decode && codes <= ROW_BYTES;
    }
    HC_ASSUME(form->bits == 4 || !hc_form_has_codebook(form));
    weights->has_minima = may_decode && form->has_minima;
    weights->bits = form->bits == 4 || form->bits == 16 ? form->bits : 8;
    if (form->bits == 16)
        form->exponent_bits = 16 - form->precision;
    weights->flip = form->is_signed ? 1 << (form->bits - 1) : 0;
    weights->zero = (float)weights->flip;
    const int stored_bits = packed->format->bits;
    weights->unpacks = stored_bits != weights->bits;
    weights->row_bytes = hc_ceil_div(geometry->padded * stored_bits, 8);
    if (product->x_packed && !may_decode && !set_integers(weights, product))
        return false;
    const int64_t codes = weights->unpacks ? hc_round_up(geometry->padded + 8, HC_CACHE_LINE) : 0;
    weights->scratch_bytes = 3 * numbers + codes + HC_CACHE_LINE; /* scales, zero points, and bytes before conversion */
    weights->scales = HC_PICK(gemv_scales, packed->run);
    weights->minima = weights->has_minima ? hc_minima_fn(packed->run, packed->format) : NULL;
    weights->unpack = HC_PICK(gemv_unpack, packed->run);
    if (weights->unpacks && weights->bits == 4)
        weights->nibbles = HC_PICK(gemv_nibbles, packed->run);
    if (hc_form_has_row_scales(form))
        form->row_scales = hc_row_scales_fn(packed->run, packed->format, form);
    return true;
}

const uint8_t *hc_gemv_row_codes(const hc_gemv_weights *weights, int64_t row) {
    return hc_part(weights->packed->components, HC_CODES, weights->packed->first_row + hc_min(row, weights->rows - 1));
}

/* n unsigned integers of 2 to 10 bits as float32. */
static void load_numbers(const hc_gemv_weights *weights, const uint8_t *stored, int bits, int64_t n, uint8_t *bytes,
                         float *out) {
    if (bits == 4 || bits == 8) {
        weights->scales(stored, bits, 1, n, out);
    } else if (bits < 8) {
        weights->unpack(stored, hc_ceil_div(n * bits, 8), bits, n, bytes);
        weights->scales(bytes, HC_SCALES_U8, 1, n, out);
    } else {
        for (int64_t i = 0; i < n; i++) {
            const int64_t bit = i * bits;
            const uint32_t word = stored[bit / 8] | (uint32_t)stored[bit / 8 + 1] << 8;
            out[i] = (float)(word >> (bit % 8) & ((1u << bits) - 1));
        }
    }
}

static __attribute__((noinline)) void prefetch(const uint8_t *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += HC_CACHE_LINE)
        __builtin_prefetch(from + at, 0, 2);
}

/* Decodes a row by the functions of its format. Not inlined: the loops over codes of other rows are then vectorized. */
static __attribute__((noinline)) void decode_row(const hc_gemv_weights *weights, int64_t row, uint8_t *scratch,
                                                 hc_gemv_row *out) {
    const hc_packed_context *packed = weights->packed;
    const hc_geometry *geometry = packed->geometry;
    const hc_tile tile = {row, 1, 0, geometry->padded};
    float *codes = (float *)scratch, *scales = (float *)(scratch + hc_round_up(weights->row_bytes, HC_CACHE_LINE));
    const hc_code_tile decoded = {codes, geometry->padded, scales, geometry->groups, &out->row_scale};
    prefetch(hc_gemv_row_codes(weights, row - packed->first_row + HC_GEMV_ROWS),
             geometry->padded * packed->format->bits / 8);
    hc_decode_codes_tile(packed->run, packed->format, geometry, packed->components, &tile, &decoded);
    const bool has_groups = hc_has_groups(packed->format);
    out->codes = scratch;
    out->scales = has_groups ? scales : NULL;
}

/* Eight codes at a time, whose upper `lift` bits are 0; up to 7 bytes after them change, too. */
static void lift_codes(uint8_t *codes, int64_t n, int lift) {
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, codes + i, sizeof word);
        word <<= lift;
        memcpy(codes + i, &word, sizeof word);
    }
}

static void e2_integers(uint8_t *codes, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = hc_e2_integer(codes[i], 3);
}

void hc_gemv_row_load(const hc_gemv_weights *weights, int64_t row, bool want_scales, uint8_t *scratch, float *scales,
                      hc_gemv_row *out) {
    const hc_stored_form *form = &weights->form;
    const hc_components *components = weights->packed->components;
    const hc_geometry *geometry = weights->packed->geometry;
    const int64_t groups = geometry->groups, numbers = hc_round_up(groups, 16);
    const bool anywhere = !scales;
    float *zeros = (float *)scratch + numbers;
    scales = anywhere ? (float *)scratch : scales;
    uint8_t *bytes = (uint8_t *)(zeros + numbers);
    row = weights->packed->first_row + hc_min(row, weights->rows - 1);
    out->zeros = out->minima = out->table = NULL;
    if (weights->decodes) {
        decode_row(weights, row, scratch, out);
        return;
    }
    const uint8_t *stored = hc_part(components, HC_SCALES, row);
    const float coarse = form->second ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
    out->coarse = coarse;
    out->row_scale = form->second == HC_SECOND_SCALE ? 1.0f : coarse;
    out->scales = scales;
    if (!want_scales || form->scale == HC_SCALE_NONE)
        out->scales = NULL;
    else if (form->scale == HC_SCALE_INTEGER)
        load_numbers(weights, stored, form->scale_bits, groups, bytes, scales);
    else if (form->scale == HC_SCALE_F16)
        weights->scales(stored, HC_SCALES_F16, 1, groups, scales);
    else if (form->scale == HC_SCALE_E8M0)
        weights->scales(stored, HC_SCALES_E8M0, 1, groups, scales);
    else if (form->scale == HC_SCALE_E4M3)
        weights->scales(stored, HC_SCALES_E4M3, form->second == HC_SECOND_SCALE ? coarse : 1, groups, scales);
    else if (hc_form_has_row_scales(form))
        form->row_scales(weights->packed->format, geometry, components, row, scales);
    else if (anywhere && (uintptr_t)stored % sizeof(float) == 0)
        out->scales = (const float *)(const void *)stored;
    else
        memcpy(scales, stored, (size_t)groups * sizeof(float));
    if (form->has_zero_points) {
        load_numbers(weights, hc_part(components, HC_ZERO_POINTS, row), form->bits, groups, bytes, zeros);
        out->zeros = zeros;
    }
    if (weights->has_minima) {
        const int64_t ahead = hc_min(row + HC_GEMV_ROWS, weights->packed->first_row + weights->rows - 1);
        for (int id = HC_SCALES; id <= HC_MINIMA; id++)
            if (components->part[id].data)
                prefetch(hc_part(components, (hc_component_id)id, ahead), components->part[id].row_stride);
        weights->minima(weights->packed->format, geometry, components, row, zeros);
        out->minima = zeros;
    }
    if (hc_form_has_codebook(form))
        memcpy(out->row_tables, hc_part(components, HC_CODEBOOK, row), sizeof out->row_tables);
    out->table = hc_form_has_codebook(form) ? out->row_tables : hc_form_has_table(form) ? form->table : NULL;
    out->codes = hc_part(components, HC_CODES, row);
    if (weights->unpacks && !weights->keeps_codes) {
        uint8_t *codes = bytes + numbers * (int64_t)sizeof(float);
        const int bits = weights->packed->format->bits;
        if (weights->nibbles)
            weights->nibbles(out->codes, weights->row_bytes, bits, geometry->padded, codes);
        else
            weights->unpack(out->codes, weights->row_bytes, bits, geometry->padded, codes);
        if (weights->as_integers && bits == 6)
            e2_integers(codes, geometry->padded);
        else if (form->lift)
            lift_codes(codes, geometry->padded, form->lift);
        out->codes = codes;
    }
}

void hc_gemv_store(const hc_rows *out, int64_t row, int64_t vector, float value) {
    *(float *)(hc_row(out, vector) + row * out->column_stride) = value == value ? value : NAN;
}

float hc_gemv_fold(float *lanes, int n) {
    if (n == 64) { /* loops of constant length */
        for (int i = 0; i < 32; i++)
            lanes[i] = lanes[i] + lanes[i + 32];
        for (int i = 0; i < 16; i++)
            lanes[i] = lanes[i] + lanes[i + 16];
    }
    for (int i = 0; i < 8; i++)
        lanes[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        lanes[i] = lanes[i] + lanes[i + 4];
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

void hc_gemv_order_groups(const hc_run *run, const float *x, int64_t ldx, int64_t columns, int64_t group, int n,
                          int n_vectors, float *out) {
    const int lanes = 16;
    hc_pack_x32_fn *transpose = HC_PICK(pack_x32, run);
    const int64_t whole = columns / group;
    for (int v = 0; v < n; v++) {
        const float *from = x + v * ldx;
        for (int64_t g = 0; g < whole; g += lanes)
            transpose(from + g * group, group * (int64_t)sizeof(float), (int)hc_min(whole - g, lanes), group,
                      out + (g * group * n_vectors + v * lanes), n_vectors * lanes, 0);
        float *to = out + (whole / lanes * group * n_vectors + v) * lanes + whole % lanes;
        for (int64_t i = 0; i < columns - whole * group; i++)
            to[i * n_vectors * lanes] = from[whole * group + i];
    }
}

int hc_gemv_scale_bits(const hc_stored_form *form) {
    return form->scale == HC_SCALE_F32                                ? 32
           : form->scale == HC_SCALE_F16                              ? 16
           : form->scale == HC_SCALE_INTEGER && form->scale_bits == 4 ? 4
                                                                      : 0;
}

void hc_gemv_load_vector(const hc_packed_context *x, hc_int_mode mode, int64_t v, int n_signed_limbs,
                         const hc_gemv_vector *to) {
    const hc_geometry *geometry = x->geometry;
    const int64_t padded = geometry->padded;
    hc_int_form form;
    hc_format_find(x->format->family)->int_form(x->format, mode, &form);
    const hc_tile tile = {x->first_row + v, 1, 0, padded};
    const hc_int_tile limbs = {.limb = {to->memory, to->memory + padded, to->memory + 2 * padded},
                               .ld = padded,
                               .group_scale = to->group_scales,
                               .groups_ld = geometry->groups,
                               .row_scale = to->row_scale};
    hc_decode_int_tile(x->run, x->format, geometry, x->components, &tile, mode, &limbs);
    if (n_signed_limbs == 1 && form.n_limbs == 1)
        memcpy(to->limbs, to->memory, (size_t)geometry->columns);
    else
        for (int64_t k = 0; k < geometry->columns; k++) {
            int32_t value = hc_gemv_value(to->memory + k, padded, form.n_limbs);
            for (int i = 0; i < n_signed_limbs; i++)
                to->limbs[i * to->ld + k] = hc_gemv_limb(&value);
        }
}
