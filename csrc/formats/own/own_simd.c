/* Formats that sentences define, many values at a time; formats/own/own.c is the definition.
 *
 * The magnitude of the quotient float32(x * (1 / S)) names a bucket with at most one bound (search.h). If a quotient of
 * a block is near its bound, the definition encodes the block. Quotients by powers of two are exact, and are near none.
 * Loops over UNIT values are vectorized by the compiler.
 */
#include "formats/own/decoding_simd.h"
#include "formats/simd/encode_rows.h"

enum { BLOCK = 4 * UNIT, PARTS = SLICE / 8 /* groups of up to 8 values: of PARTS groups codes end at a byte */ };

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
