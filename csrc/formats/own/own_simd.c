/* Formats that sentences define, many values at a time; formats/own/own.c is the definition.
 *
 * Encoding: the magnitude of the quotient float32(x * (1 / S)) names a bucket with at most one bound (search.h). If a quotient of
 * a block is near its bound, the definition encodes the block. Quotients by powers of two are exact, and are near none.
 * Loops over UNIT values are vectorized by the compiler.
 * Decoding: a table of float32, or the fields of an integer or a float. Products of levels that are not float32 and of
 * integer scales are float64, and are rounded once.
 */
#include "formats/own/known.h"
#include "formats/own/own.h"
#include "formats/own/scales.h"
#include "formats/own/wide.h"
#include "formats/simd/encode_rows.h"
#include "formats/simd/planes.h"
#include "formats/simd/unpack.h"

enum { BLOCK = 4 * UNIT, PARTS = SLICE / 8 /* groups of up to 8 values: of PARTS groups codes end at a byte */ };

/* --- encoding --- */

/* The largest of the masked bits as integers with a sign, or 0. */
static inline uint32_t largest_bits(const float *restrict x, int64_t n, uint32_t mask) {
    int32_t lane[UNIT] = {0}, largest = 0;
    int64_t c = 0;
    for (; c + UNIT <= n; c += UNIT)
        for (int i = 0; i < UNIT; i++) {
            const int32_t bits = (int32_t)(hc_f32_bits(x[c + i]) & mask);
            lane[i] = bits > lane[i] ? bits : lane[i];
        }
    for (; c < n; c++) {
        const int32_t bits = (int32_t)(hc_f32_bits(x[c]) & mask);
        largest = bits > largest ? bits : largest;
    }
    for (int i = 0; i < UNIT; i++)
        largest = lane[i] > largest ? lane[i] : largest;
    return (uint32_t)largest;
}

static inline double maximum_of(const hc_sentence *own, const hc_float_rows *x, int64_t i, int64_t first, int64_t n,
                                bool *legal) {
    if (x->dtype != HC_F32)
        return defined_maximum(own, x, i, first, n, legal);
    const float *from = row_values(x, i).singles + first;
    const uint32_t largest = largest_bits(from, n, INT32_MAX);
    if (largest >= 0x7f800000) {
        *legal = *legal && own->scale == OWN_E8M0;
        return (double)NAN;
    }
    return (double)hc_f32_from_bits(own->is_signed ? largest : largest_bits(from, n, UINT32_MAX));
}

static inline double sum_of(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, bool *legal) {
    if (x->dtype != HC_F32)
        return defined_sum(x, i, first, n, legal);
    const float *from = row_values(x, i).singles + first;
    if (largest_bits(from, n, INT32_MAX) >= 0x7f800000) {
        *legal = false;
        return (double)NAN;
    }
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)fabsf(from[c]);
    return sum;
}

/* The definition. */
static __attribute__((noinline)) void defined_codes(const hc_sentence *own, hc_values x, int64_t n, double scale,
                                                    uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)own_encode_element(own, (x.doubles ? x.doubles[i] : (double)x.singles[i]) / scale);
}

/* Values of one group, or of one part of a longer group, in a slice. */
typedef struct {
    int64_t first, n;
    double scale;
    bool by_definition; /* the reciprocal of the scale is not normal */
} own_part;

/* Columns of a row that are encoded together. */
typedef struct {
    int64_t n, parts;
    bool is_exact; /* quotients are the float64 ones */
    own_part part[PARTS];
    _Alignas(HC_CACHE_LINE) float quotient[SLICE + BLOCK];
    _Alignas(HC_CACHE_LINE) uint8_t codes[SLICE + BLOCK];
} own_slice;

/* Quotients of n values. Those below `tiny` become NaN, which the search leaves to the definition: they may have been rounded to 0. */
static inline void divide(hc_values x, int64_t n, float reciprocal, float tiny, float *restrict to) {
    if (x.doubles)
        for (int64_t c = 0; c < n; c++)
            to[c] = (float)x.doubles[c] * reciprocal;
    else if (tiny == 0)
        for (int64_t c = 0; c < n; c++)
            to[c] = x.singles[c] * reciprocal;
    else
        for (int64_t c = 0; c < n; c++) {
            const float quotient = x.singles[c] * reciprocal;
            to[c] = ((fabsf(quotient) < tiny) & (x.singles[c] != 0)) ? NAN : quotient;
        }
}

static inline void add_part(const own_known *known, hc_values x, int64_t n, double scale, own_slice *slice) {
    const float divisor = (float)scale;
    const bool is_zero = scale == 0 || isnan(scale);
    const bool by_definition = !is_zero && (!is_plain(divisor) || (x.doubles && divisor < 0x1p-100f));
    float *quotients = slice->quotient + slice->n;
    slice->part[slice->parts++] = (own_part){slice->n, n, is_zero ? 0 : scale, by_definition};
    slice->is_exact = slice->is_exact && !x.doubles && (is_zero || (hc_f32_bits(divisor) & 0x7fffff) == 0);
    if (is_zero || by_definition)
        memset(quotients, 0, (size_t)n * sizeof *quotients);
    else
        divide(x, n, 1.0f / divisor, known->search.tiny, quotients);
    slice->n += n;
}

/* Encodes the values of a slice by the definition, from `first` to `last`; x: of the slice's first column. */
static __attribute__((noinline)) void defined_slice(const own_known *known, hc_values x, int64_t first, int64_t last,
                                                    own_slice *slice) {
    for (int64_t i = 0; i < slice->parts; i++) {
        const own_part *part = &slice->part[i];
        const int64_t from = hc_max(first, part->first), to = hc_min(last, part->first + part->n);
        if (from < to && part->scale != 0)
            defined_codes(&known->sentence, values_from(x, from), to - from, part->scale, slice->codes + from);
    }
}

static __attribute__((noinline)) void encode_slice_codes(const own_known *known, hc_values x, own_slice *slice) {
    const own_search *search = &known->search;
    const float doubt = slice->is_exact ? 0 : OWN_DOUBT;
    memset(slice->quotient + slice->n, 0, BLOCK * sizeof *slice->quotient);
    for (int64_t i = 0; i < slice->n; i += BLOCK)
        if (__builtin_expect(!simd_search(slice->quotient + i, search->bound, search->codes, search->n, search->shift,
                                          search->base, doubt, slice->codes + i),
                             0))
            defined_slice(known, x, i, hc_min(i + BLOCK, slice->n), slice);
    for (int64_t i = 0; i < slice->parts; i++) {
        const own_part *part = &slice->part[i];
        if (part->scale == 0)
            memset(slice->codes + part->first, 0, (size_t)part->n);
        else if (part->by_definition)
            defined_codes(&known->sentence, values_from(x, part->first), part->n, part->scale,
                          slice->codes + part->first);
    }
}

/* True if all values of a row are finite float32. */
static bool are_finite(const hc_float_rows *x, int64_t i, int64_t n) {
    const hc_values from = row_values(x, i);
    int beyond = 0;
    if (from.singles)
        return largest_bits(from.singles, n, INT32_MAX) < 0x7f800000;
    for (int64_t c = 0; c < n; c++)
        beyond |= !hc_is_legal(from.doubles[c]);
    return !beyond;
}

/* True if all values of a row without scales are legal. */
static bool are_legal(const hc_sentence *own, const hc_float_rows *x, int64_t i, int64_t n) {
    bool legal = true;
    if (are_finite(x, i, n))
        return true;
    for (int64_t c = 0; c < n; c++)
        legal = legal && legal_value(own, hc_row_value(x, i, c));
    return legal;
}

/* Codes of n values without a table. */
static __attribute__((noinline)) void wide_codes(const hc_sentence *own, hc_values x, int64_t n, double scale,
                                                 uint16_t *codes) {
    double quotients[SLICE + UNIT];
    float odd[SLICE + UNIT];
    HC_ASSUME(n <= SLICE);
    for (int64_t i = 0; i < n; i++)
        quotients[i] = (x.doubles ? x.doubles[i] : (double)x.singles[i]) / scale;
    if (own->codes == HC_CODES_INTEGER) {
        wide_integers(own, quotients, n, codes);
        return;
    }
    memset(quotients + n, 0, UNIT * sizeof *quotients);
    for (int64_t i = 0; i < n; i += UNIT)
        simd_odd(quotients + i, odd + i);
    wide_floats(own, odd, n, codes);
}

/* Formats without a table: as `encode`, group by group. */
static int64_t encode_wide(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                           const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const hc_sentence *own = hc_sentence_of(format);
    if (!wide_serves(own))
        return HC_DECLINED;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint16_t codes[SLICE + UNIT];
        uint8_t *to = hc_part(out, HC_CODES, row);
        hc_bit_writer integers = {hc_part(out, HC_SCALES, row), 0, 0};
        bool legal = own->sharing != OWN_UNSCALED || are_finite(x, i, geometry->padded);
        if (!legal)
            return HC_DECLINED;
        const float second = own->sharing == OWN_UNSCALED ? 1.0f : row_second(own, geometry, state, x, i, thresholds);
        if (own->second == OWN_SECOND_ROW)
            hc_store_f32(hc_part(out, HC_COARSE, row), second);
        hc_values values = row_values(x, i);
        int64_t filled = 0;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const double scale =
                encode_scale(own, geometry, state, x, i, group, thresholds, second, &integers, &legal, out);
            for (int64_t c = 0, n; c < geometry->group; c += n, values = values_from(values, n)) {
                n = hc_min(geometry->group - c, SLICE - filled);
                if (scale == 0 || isnan(scale))
                    memset(codes + filled, 0, (size_t)n * sizeof *codes);
                else
                    wide_codes(own, values, n, scale, codes + filled);
                filled += n;
                if (filled < SLICE)
                    continue;
                pack_wide(codes, SLICE, own->bits, to);
                to += SLICE / 8 * own->bits;
                filled = 0;
            }
        }
        pack_wide(codes, filled, own->bits, to);
        if (own->sharing != OWN_UNSCALED && own->scale == OWN_INTEGER)
            hc_flush_bits(&integers);
        if (!legal)
            return row;
    }
    return HC_DONE;
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const own_known *known = hc_own_known_find(own_number(format));
    const hc_sentence *own = &known->sentence;
    if (own->ranks == 0)
        return encode_wide(format, geometry, state, x, thresholds, out);
    if (known->search.n == 0 || (x->dtype != HC_F32 && (known->search.tiny > 0 || own->scale == OWN_E8M0)))
        return HC_DECLINED;
    own_slice slice;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *to = hc_part(out, HC_CODES, row);
        hc_bit_writer integers = {hc_part(out, HC_SCALES, row), 0, 0};
        bool legal = own->sharing != OWN_UNSCALED || are_legal(own, x, i, geometry->padded);
        const float second = own->sharing == OWN_UNSCALED ? 1.0f : row_second(own, geometry, state, x, i, thresholds);
        if (own->second == OWN_SECOND_ROW)
            hc_store_f32(hc_part(out, HC_COARSE, row), second);
        slice.n = slice.parts = 0;
        slice.is_exact = true;
        hc_values values = row_values(x, i), start = values;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const double scale =
                encode_scale(own, geometry, state, x, i, group, thresholds, second, &integers, &legal, out);
            for (int64_t c = 0, n; c < geometry->group; c += n, values = values_from(values, n)) {
                n = hc_min(geometry->group - c, SLICE - slice.n);
                add_part(known, values, n, scale, &slice);
                if (slice.n < SLICE && slice.parts < PARTS &&
                    !(group == geometry->groups - 1 && c + n == geometry->group))
                    continue;
                encode_slice_codes(known, start, &slice);
                pack_bytes(slice.codes, slice.n, own->bits, to);
                to += slice.n / 8 * own->bits;
                start = values_from(start, slice.n);
                slice.n = slice.parts = 0;
                slice.is_exact = true;
            }
        }
        if (own->sharing != OWN_UNSCALED && own->scale == OWN_INTEGER)
            hc_flush_bits(&integers);
        if (!legal)
            return row;
    }
    return HC_DONE;
}

/* --- decoding --- */

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

static void scales_of(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                      int64_t row, float *scales) {
    load_factors(hc_own_known_find(own_number(format)), geometry, components, row, 0, geometry->groups, scales);
}

static int64_t observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                       const float *thresholds, hc_encode_state *state) {
    (void)pass;
    return observe_limits(hc_sentence_of(format), geometry, x, thresholds, state);
}

HC_SIMD_TABLE(own, .observe = observe, .encode = encode, .values = values, .integers = integers, .codes = codes_of,
              .scales = scales_of);
