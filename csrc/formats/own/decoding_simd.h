/* Decoding of formats that sentences define, many values at a time; own_simd.c includes this.
 *
 * A table of float32, or the fields of an integer or a float. Products of levels that are not float32 and of integer
 * scales are float64, and are rounded once.
 */
#ifndef HC_OWN_DECODING_SIMD_H
#define HC_OWN_DECODING_SIMD_H

#include "formats/own/known.h"
#include "formats/own/own.h"
#include "formats/own/scales.h"
#include "formats/own/wide.h"
#include "formats/simd/planes.h"
#include "formats/simd/unpack.h"

typedef struct {
    float scale[CHUNK + 8];
    uint8_t codes[CHUNK + 64];
    uint16_t wide[CHUNK + 8]; /* codes of more than 8 bits */
} own_chunk;

/* 16-bit scales without a second level; NaN loses its payload. */
static void load_wide_factors(hc_own_scale type, const uint8_t *from, int64_t n, float *scales) {
    int64_t i = 0;
    for (; type == OWN_F16 && i + 8 <= n; i += 8)
        simd_from_halves(from + 2 * i, scales + i);
    for (; i < n; i++) {
        const uint16_t stored = hc_load_u16(from + 2 * i);
        scales[i] = type == OWN_F16 ? hc_f16_to_f32(stored) : hc_f32_from_bits((uint32_t)stored << 16);
    }
    for (i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(scales[i]);
        scales[i] = hc_f32_from_bits((bits & INT32_MAX) > 0x7f800000 ? (bits & 0x80000000u) | 0x7fc00000 : bits);
    }
}

static void load_factors(const own_known *known, const hc_geometry *geometry, const hc_components *components,
                         int64_t row, int64_t first, int64_t n, float *scales) {
    const hc_sentence *own = &known->sentence;
    const uint8_t *from = hc_part(components, HC_SCALES, row);
    if (own->sharing == OWN_GROUP && own->scale == OWN_F32)
        memcpy(scales, from + 4 * first, (size_t)n * sizeof *scales);
    else if (own->sharing == OWN_GROUP && own->scale == OWN_E8M0)
        for (int64_t i = 0; i < n; i++)
            scales[i] = e8m0_scale(from[first + i]);
    else if (own->sharing == OWN_GROUP && own->scale == OWN_FLOAT) {
        const bool has_second = own->second != OWN_ONE_LEVEL;
        const float second = has_second ? hc_load_f32(hc_part(components, HC_COARSE, row)) : 1.0f;
        for (int64_t i = 0; i < n; i++)
            scales[i] = known->scale[from[first + i]];
        for (int64_t i = 0; has_second && i < n; i++)
            scales[i] = hc_saturated_product(scales[i], second);
    } else if (own->sharing == OWN_GROUP && own->second == OWN_ONE_LEVEL &&
               (own->scale == OWN_F16 || own->scale == OWN_BF16))
        load_wide_factors((hc_own_scale)own->scale, from + 2 * first, n, scales);
    else
        for (int64_t i = 0; i < n; i++)
            scales[i] = load_factor(own, geometry, components, row, first + i);
}

/* The scales and codes of a chunk; signed integers are extended. */
static void load_own(const own_known *known, const hc_geometry *geometry, const hc_components *components,
                     const hc_chunk *chunk, bool is_signed, own_chunk *loaded) {
    const hc_sentence *own = &known->sentence;
    const int64_t last_group = (chunk->column + chunk->n - 1) / geometry->group;
    load_factors(known, geometry, components, chunk->row, chunk->first_group, last_group + 1 - chunk->first_group,
                 loaded->scale);
    if (own->bits > 8) {
        const uint8_t *codes = hc_part(components, HC_CODES, chunk->row),
                      *first = codes + chunk->column / 8 * own->bits;
        const int64_t row_bytes = (geometry->padded * own->bits + 7) / 8;
        const int64_t done =
            own->bits < 16 ? simd_unpack16(first, codes + row_bytes, chunk->n, own->bits, loaded->wide) : 0;
        unpack_wide(codes, row_bytes, chunk->column + done, chunk->n - done, own->bits, loaded->wide + done);
        return;
    }
    unpack_codes(hc_part(components, HC_CODES, chunk->row), (geometry->padded * own->bits + 7) / 8, chunk->column,
                 chunk->n, own->bits, is_signed, loaded->codes);
}

#define HC_FOR_OWN(i, is_signed_)                                                                                      \
    for (hc_chunk chunk = {.row = tile->first_row + (i), .column = tile->first_column};                                \
         chunk.column < tile->first_column + tile->columns &&                                                          \
         (chunk.n = hc_min(CHUNK, tile->first_column + tile->columns - chunk.column),                                  \
         chunk.first_group = chunk.column / geometry->group,                                                           \
         load_own(known, geometry, components, &chunk, is_signed_, &loaded), true);                                    \
         chunk.column += chunk.n)

/* for every group g of the chunk, counted from its first: columns [c, end) of the chunk */
#define HC_FOR_PARTS(g)                                                                                                \
    for (int64_t g = 0, c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);        \
         c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))

/* One function per kind, so that the loop contains only the code of its kind. */
#define HC_LOOKUP(name, kind)                                                                                          \
    static __attribute__((noinline)) void name(const uint8_t *codes, int64_t n, const float *table, bool scaled,       \
                                               float scale, float *to) {                                               \
        if (scaled)                                                                                                    \
            simd_elements(codes, n, kind, load_table16(table), table, true, scale, to);                                \
        else                                                                                                           \
            simd_elements(codes, n, kind, load_table16(table), table, false, 1, to);                                   \
    }
typedef void hc_lookup_fn(const uint8_t *, int64_t, const float *, bool, float, float *);
HC_LOOKUP(lookup_table16, HC_BY_TABLE16)
HC_LOOKUP(lookup_levels16, HC_BY_LEVELS16)
HC_LOOKUP(lookup_table, HC_BY_TABLE)
HC_LOOKUP(lookup_levels, HC_BY_LEVELS)

static hc_lookup_fn *lookup_of(const hc_sentence *own) {
    if (own->bits <= 4)
        return own->minus_zero >= 0 ? lookup_table16 : lookup_levels16;
    return own->minus_zero >= 0 ? lookup_table : lookup_levels;
}

/* Values that are float64 products, rounded once. */
static __attribute__((noinline)) void rounded_products(const hc_sentence *own, const uint8_t *restrict codes, int64_t n,
                                                       double factor, double gamma, float *restrict to) {
    const double *restrict level = own->level;
    const float zero = own->minus_zero >= 0 ? -0.0f : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)(gamma * (factor * level[codes[i]]));
        to[i] = (value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value) + zero;
    }
}

/* The same products of exact elements. */
static __attribute__((noinline)) void multiply_elements(float *restrict to, int64_t n, double factor, double gamma) {
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)(gamma * (factor * (double)to[i]));
        to[i] = value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;
    }
}

/* Elements times a scale, of which the infinite ones stay so. */
static __attribute__((noinline)) void scale_elements(float *restrict to, int64_t n, float scale, bool has_minus_zero) {
    const float zero = has_minus_zero ? -0.0f : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float element = to[i], value = scale * element;
        const float cut = value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;
        to[i] = (fabsf(element) > FLT_MAX ? value : cut) + zero;
    }
}

/* Float32 numbers of the codes of a chunk. */
static void elements_of(const own_known *known, const own_chunk *loaded, int64_t n, float *to) {
    if (known->planes.blocks > 0)
        simd_planes(&known->planes, loaded->codes, n, known->level, to);
    else if (known->sentence.ranks > 0)
        lookup_of (&known->sentence)(loaded->codes, n, known->level, false, 1, to);
    else
        wide_elements(&known->sentence, loaded->wide, n, to);
}

static int64_t values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      const hc_tile *tile, float *out, int64_t ld) {
    const own_known *known = hc_own_known_find(own_number(format));
    const hc_sentence *own = &known->sentence;
    const bool is_wide = own->ranks == 0, has_minus_zero = is_wide || own->minus_zero >= 0;
    const bool is_scaled = own->sharing != OWN_UNSCALED, has_integers = is_scaled && own->scale == OWN_INTEGER;
    const bool is_double = has_integers || !(is_wide || known->is_single);
    if (is_wide != (own->bits > 8) || (is_wide && !wide_decodes(own)) || (is_double && known->has_infinity))
        return HC_DECLINED;
    hc_lookup_fn *lookup = lookup_of(own);
    own_chunk loaded;
    for (int64_t i = 0; i < tile->rows; i++) {
        const double gamma = (double)load_gamma(own, components, tile->first_row + i);
        HC_FOR_OWN(i, false) {
            float *to = out + i * ld + chunk.column - tile->first_column;
            const bool is_direct =
                !is_wide && !is_double && is_scaled && !known->has_infinity && known->planes.blocks == 0;
            if (is_direct || (is_double && !is_wide)) {
                HC_FOR_PARTS(g) {
                    if (is_direct)
                        lookup(loaded.codes + c, end - c, known->level, true, loaded.scale[g], to + c);
                    else
                        rounded_products(own, loaded.codes + c, end - c, (double)loaded.scale[g], gamma, to + c);
                }
                continue;
            }
            elements_of(known, &loaded, chunk.n, to);
            if (!is_scaled && !has_minus_zero)
                scale_elements(to, chunk.n, 1, false);
            HC_FOR_PARTS(g) {
                if (has_integers)
                    multiply_elements(to + c, end - c, (double)loaded.scale[g], gamma);
                else if (is_scaled)
                    scale_elements(to + c, end - c, loaded.scale[g], has_minus_zero);
            }
        }
    }
    return HC_DONE;
}

static int64_t codes_of(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, const hc_code_tile *out) {
    const own_known *known = hc_own_known_find(own_number(format));
    const hc_sentence *own = &known->sentence;
    own_chunk loaded;
    if ((own->ranks == 0) != (own->bits > 8) || (own->ranks == 0 && !wide_decodes(own)))
        return HC_DECLINED;
    for (int64_t i = 0; i < tile->rows; i++) {
        out->row_scale[i] = load_gamma(own, components, tile->first_row + i);
        HC_FOR_OWN(i, false) {
            const int64_t last_group = (chunk.column + chunk.n - 1) / geometry->group;
            if (own_has_groups(own))
                memcpy(out->scales + i * out->scales_ld + chunk.first_group - tile->first_column / geometry->group,
                       loaded.scale, (size_t)(last_group + 1 - chunk.first_group) * sizeof *loaded.scale);
            else
                out->row_scale[i] = loaded.scale[0];
            elements_of(known, &loaded, chunk.n, out->codes + i * out->codes_ld + chunk.column - tile->first_column);
        }
    }
    return HC_DONE;
}

/* Integers of bytes that are levels: looked up, or the codes themselves. */
static void whole_levels(const own_known *known, const uint8_t *restrict codes, int64_t n, int8_t *restrict to) {
    int64_t i = known->sentence.bits <= 4 ? simd_lookup16(codes, n, known->integer, to) : 0;
    for (; i < n; i++)
        to[i] = known->integer[codes[i]];
}

/* A limb of codes of more than 8 bits, in 16 bits. */
static inline void store_limb(const uint16_t *restrict from, int64_t n, uint16_t sign, int shift, int8_t *restrict to) {
    for (int64_t j = 0; j < n; j++) {
        const int16_t code = (int16_t)(uint16_t)((from[j] ^ sign) - sign);
        to[j] = (int8_t)(uint8_t)((uint16_t)(code >> shift) & 0xff);
    }
}

/* Limbs of codes of more than 8 bits, times an integer. */
static void store_wide(const hc_sentence *own, const uint16_t *restrict from, int64_t n, int32_t times, int n_limbs,
                       const hc_int_tile *out, int64_t place) {
    const int32_t sign = own->is_signed ? 1 << (own->bits - 1) : 0;
    if (times == 1 && own->is_signed && n_limbs == 2) {
        store_limb(from, n, (uint16_t)sign, 0, out->limb[0] + place);
        store_limb(from, n, (uint16_t)sign, 8, out->limb[1] + place);
        return;
    }
    for (int limb = 0; limb < n_limbs; limb++) {
        int8_t *restrict to = out->limb[limb] + place;
        for (int64_t j = 0; j < n; j++)
            to[j] = (int8_t)(uint8_t)((uint32_t)(times * ((from[j] ^ sign) - sign)) >> (8 * limb) & 0xff);
    }
}

static void store_products(const int8_t *restrict from, int64_t n, int32_t times, int n_limbs, const hc_int_tile *out,
                           int64_t place) {
    for (int limb = 0; limb < n_limbs; limb++) {
        int8_t *restrict to = out->limb[limb] + place;
        for (int64_t j = 0; j < n; j++)
            to[j] = (int8_t)(uint8_t)((uint32_t)(times * from[j]) >> (8 * limb) & 0xff);
    }
}

static int64_t integers(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {
    const own_known *known = hc_own_known_find(own_number(format));
    const hc_sentence *own = &known->sentence;
    const bool is_integer = own->codes == HC_CODES_INTEGER;
    hc_int_form form;
    hc_format_find(format->family)->int_form(format, mode, &form);
    if ((own->ranks == 0) != (own->bits > 8) || (is_integer && !own->is_signed && own->bits == 8))
        return HC_DECLINED;
    const double place = ldexp(1, -form.fraction_bits);
    own_chunk loaded;
    for (int64_t i = 0; i < tile->rows; i++) {
        const double gamma = (double)load_gamma(own, components, tile->first_row + i);
        HC_FOR_OWN(i, is_integer && own->is_signed) {
            const int64_t first = i * out->ld + chunk.column - tile->first_column;
            const int64_t last_group = (chunk.column + chunk.n - 1) / geometry->group;
            int8_t whole[CHUNK + 64];
            const int8_t *from = (const int8_t *)loaded.codes;
            const bool is_plain_limb = mode != HC_INT_FOLDED || own->scale != OWN_INTEGER;
            if (mode != HC_INT_GROUPED)
                out->row_scale[i] =
                    (float)(own->scale == OWN_INTEGER ? gamma * place : (double)loaded.scale[0] * place);
            if (mode != HC_INT_FOLDED) {
                float *scales =
                    out->group_scale + i * out->groups_ld + chunk.first_group - tile->first_column / geometry->group;
                const int64_t n = last_group + 1 - chunk.first_group;
                for (int64_t g = 0; mode != HC_INT_SPLIT && own->scale == OWN_INTEGER && g < n; g++)
                    scales[g] = (float)((double)hc_saturated(gamma * (double)loaded.scale[g]) * place);
                for (int64_t g = 0; mode != HC_INT_SPLIT && own->scale != OWN_INTEGER && g < n; g++)
                    scales[g] = hc_saturated_product(loaded.scale[g], 1) * (float)place; /* a power of two */
                if (mode == HC_INT_SPLIT)
                    memcpy(scales, loaded.scale, (size_t)n * sizeof *scales);
            }
            if (own->bits > 8) {
                HC_FOR_PARTS(g)
                store_wide(own, loaded.wide + c, end - c, is_plain_limb ? 1 : (int32_t)loaded.scale[g], form.n_limbs,
                           out, first + c);
                continue;
            }
            if (!is_integer) {
                whole_levels(known, loaded.codes, chunk.n,
                             is_plain_limb && form.n_limbs == 1 ? out->limb[0] + first : whole);
                from = whole;
            }
            if (!is_plain_limb) {
                HC_FOR_PARTS(g)
                store_products(from + c, end - c, (int32_t)loaded.scale[g], form.n_limbs, out, first + c);
            } else if (form.n_limbs > 1) {
                store_products(from, chunk.n, 1, form.n_limbs, out, first);
            } else if (is_integer) {
                memcpy(out->limb[0] + first, from, (size_t)chunk.n);
            }
        }
    }
    return HC_DONE;
}

#endif
