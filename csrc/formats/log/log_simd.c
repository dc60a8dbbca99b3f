/* Log numbers, many values at a time; formats/log/log.c is the definition.
 *
 * Encoding: the bits of the quotient float32(x * (1 / s)) give the octave. The first STEPS bits of its fraction give an
 * interval with at most one threshold. With few thresholds, each is compared. If a quotient is near a threshold, the
 * groups of the slice are encoded again by the definition. Loops over UNIT values are vectorized by the compiler.
 * Decoding: a value is rounded once from float64. So magnitudes are multiplied by a scale in float64, by a table for
 * each long group, or one by one. Up to 8 steps per octave: the magnitudes of one octave are looked up, and the others
 * are these times a power of two, as long as none is subnormal.
 */
#include "formats/log/log.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/encode_rows.h"

enum {
    STEPS = 6,
    FRACTION = 0x7fffff,
    NEAR = 4,
    FEW = 4,   /* thresholds per octave that are compared one by one */
    OCTAVE = 8 /* steps of an octave that are looked up */
};

typedef struct {
    int gamma, bits;
    int32_t zero;        /* the exponent code of zero */
    double least;        /* half the smallest magnitude */
    uint32_t least_bits; /* near it, of a float32 */
    float least_scale;   /* magnitudes of smaller scales can be subnormal numbers of float32 */
    /* the threshold's fraction, and (number of thresholds above the end of the interval) << 23 */
    uint32_t table[1 << STEPS];
    uint32_t few[FEW]; /* fractions of the thresholds if gamma is at most FEW */
} hc_log_table;

/* Fraction of 2^(1 - (r + 1/2) / gamma) in bits of float32, r descending. */
static inline uint32_t threshold_bits(int gamma, int r) {
    const double power = 2 * LOG_POWER[LOG_STEPS / gamma / 2 + r * (LOG_STEPS / gamma)];
    return (uint32_t)((power - 1) * 0x1p23 + 0.5);
}

/* Fills the table; false if quotients leave the normal numbers of float32. */
static inline bool fill_table(const hc_format *format, hc_log_table *log) {
    const int gamma = log_gamma_of(format);
    const int32_t zero = log_zero_code(format), last = zero - 1;
    log->gamma = gamma;
    log->bits = format->bits;
    log->zero = zero;
    log->least = log_magnitude(gamma, last) / 2;
    log->least_bits = hc_f32_bits((float)log->least);
    log->least_scale = (float)(0x1p-125 / log->least);
    for (int r = 0; r < gamma && r < FEW; r++)
        log->few[r] = threshold_bits(gamma, r);
    for (int i = 0; i < 1 << STEPS; i++) {
        const uint32_t low = (uint32_t)i << (23 - STEPS), high = (uint32_t)(i + 1) << (23 - STEPS);
        uint32_t found = 0, above = 0; /* a fraction is never negative */
        for (int r = 0; r < gamma; r++) {
            const uint32_t threshold = threshold_bits(gamma, r);
            above += threshold >= high;
            found = threshold >= low && threshold < high ? threshold : found;
        }
        log->table[i] = above << 23 | found;
    }
    return last / gamma < 100;
}

/* The definition, of one value. */
static inline uint32_t defined_code(const hc_log_table *log, double x, double scale) {
    const uint32_t sign = signbit(x) ? 1u << (log->bits - 1) : 0;
    const double quotient = fabs(x) / scale;
    if (!(quotient >= log->least))
        return sign | (uint32_t)log->zero;
    int32_t e = 0;
    if (quotient < 1) {
        uint64_t bits;
        memcpy(&bits, &quotient, sizeof bits);
        const int32_t octaves = 1022 - (int32_t)(bits >> 52);
        const double rest = quotient / log_octave(octaves); /* 1/2 to 1 */
        const int step = LOG_STEPS / log->gamma;
        e = octaves * log->gamma;
        for (int i = step / 2; i < LOG_STEPS; i += step)
            e += rest < LOG_POWER[i];
    }
    return sign | (uint32_t)(e < log->zero ? e : log->zero - 1);
}

static __attribute__((noinline)) void defined_codes(const hc_log_table *log, hc_values x, int64_t n, double scale,
                                                    uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        codes[i] =
            (uint8_t)(scale != 0 ? defined_code(log, x.doubles ? x.doubles[i] : (double)x.singles[i], scale) : 0);
}

/* Codes of n values with one scale, a multiple of UNIT; gamma: the one with few thresholds, or 0. nearest: the smallest
 * distances from thresholds so far, in UNIT lanes. */
static inline __attribute__((always_inline)) void block_codes(const hc_log_table *log, const float *restrict x,
                                                              int64_t n, float reciprocal, int gamma,
                                                              uint32_t *restrict nearest, uint8_t *restrict codes) {
    const uint32_t *restrict table = log->table, least = log->least_bits;
    const int32_t steps = gamma ? gamma : log->gamma, last = log->zero - 1, zero = log->zero;
    const int shift = 32 - log->bits;
    const uint32_t sign = 1u << (log->bits - 1);
    int32_t code[UNIT];
    uint32_t near[UNIT];
    memcpy(near, nearest, sizeof near);
    for (int64_t first = 0; first < n; first += UNIT) {
        for (int i = 0; i < UNIT; i++) {
            const uint32_t signed_bits = hc_f32_bits(x[first + i] * reciprocal);
            int32_t bits = (int32_t)(signed_bits & 0x7fffffff);
            bits = bits < 0x3f800000 ? bits : 0x3f800000;
            const uint32_t fraction = (uint32_t)bits & FRACTION, from_zero = (uint32_t)bits - least + NEAR;
            int32_t e = (126 - (bits >> 23)) * steps;
            near[i] = near[i] < from_zero ? near[i] : from_zero;
            for (int r = 0; r < gamma; r++) {
                const uint32_t apart = fraction - log->few[r] + NEAR;
                near[i] = near[i] < apart ? near[i] : apart;
                e += fraction < log->few[r];
            }
            if (gamma == 0) {
                const uint32_t entry = table[fraction >> (23 - STEPS)], threshold = entry & FRACTION;
                const uint32_t apart = threshold ? fraction - threshold + NEAR : UINT32_MAX;
                near[i] = near[i] < apart ? near[i] : apart;
                e += (int32_t)(entry >> 23) + (fraction < threshold);
            }
            e = e < last ? e : last;
            e = (uint32_t)bits < least ? zero : e;
            code[i] = (int32_t)((signed_bits >> shift & sign) | (uint32_t)e);
        }
        for (int i = 0; i < UNIT; i++)
            codes[first + i] = (uint8_t)code[i];
    }
    memcpy(nearest, near, sizeof near);
}

static inline bool is_near(const uint32_t *nearest) {
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < UNIT; i++)
        least = least < nearest[i] ? least : nearest[i];
    return least <= 2 * NEAR;
}

/* n values of one group, to bytes. */
static inline __attribute__((always_inline)) void group_codes(const hc_log_table *log, const float *x, hc_values exact,
                                                              int64_t n, float scale, float reciprocal, int gamma,
                                                              uint32_t *nearest, uint8_t *codes) {
    const char *next = (const char *)((uintptr_t)x + SEGMENT_VALUES * sizeof *x);
    const int64_t units = is_plain(scale) && !(exact.doubles && scale < log->least_scale) ? n / UNIT * UNIT : 0;
    for (int64_t j = 0; j < units * 4; j += HC_CACHE_LINE)
        __builtin_prefetch(next + j, 0, 3);
    block_codes(log, x, units, reciprocal, gamma, nearest, codes);
    if (units < n)
        defined_codes(log, values_from(exact, units), n - units, (double)scale, codes + units);
}

/* The same codes, for which four units at a time are computed by the definition if one of their values is near a
 * threshold. */
static inline __attribute__((always_inline)) void settled_codes(const hc_log_table *log, const float *x,
                                                                hc_values exact, int64_t n, float scale,
                                                                float reciprocal, int gamma, uint8_t *codes) {
    for (int64_t j = 0; j < n; j += 4 * UNIT) {
        const int64_t count = hc_min(4 * UNIT, n - j);
        uint32_t nearest[UNIT];
        memset(nearest, 0xff, sizeof nearest);
        group_codes(log, x + j, values_from(exact, j), count, scale, reciprocal, gamma, nearest, codes + j);
        if (is_near(nearest))
            defined_codes(log, values_from(exact, j), count, (double)scale, codes + j);
    }
}

/* Contiguous groups of equal length. */
static inline __attribute__((always_inline)) void groups_codes(const hc_log_table *log, const float *x, hc_values exact,
                                                               int64_t groups, int64_t length, const float *scale,
                                                               const float *reciprocal, int gamma, uint8_t *codes) {
    uint32_t nearest[UNIT];
    memset(nearest, 0xff, sizeof nearest);
    for (int64_t g = 0; g < groups; g++)
        group_codes(log, x + g * length, values_from(exact, g * length), length, scale[g], reciprocal[g], gamma,
                    nearest, codes + g * length);
    for (int64_t g = 0; g < groups && is_near(nearest); g++)
        settled_codes(log, x + g * length, values_from(exact, g * length), length, scale[g], reciprocal[g], gamma,
                      codes + g * length);
}

/* exact: the values that x has as float32. */
static void slice_codes(const hc_log_table *log, const float *x, hc_values exact, int64_t groups, int64_t length,
                        const float *scale, const float *reciprocal, uint8_t *codes) {
    if (log->gamma == 1)
        groups_codes(log, x, exact, groups, length, scale, reciprocal, 1, codes);
    else if (log->gamma == 2)
        groups_codes(log, x, exact, groups, length, scale, reciprocal, 2, codes);
    else if (log->gamma == 4)
        groups_codes(log, x, exact, groups, length, scale, reciprocal, 4, codes);
    else
        groups_codes(log, x, exact, groups, length, scale, reciprocal, 0, codes);
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state;
    hc_log_table log;
    if (!serves(geometry) || !fill_table(format, &log))
        return HC_DECLINED;
    const int64_t step = segment_groups(geometry), length = geometry->group;
    hc_segment segment;
    init_segment(geometry, &segment);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const hc_values from = row_values(x, i);
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * length;
            float *scale = segment.multiple;
            if (!group_maxima(geometry, values_from(from, first), n, HC_ABSOLUTE, &segment, segment.maximum))
                return row;
            memcpy(scale, segment.maximum, (size_t)hc_round_up(n, UNIT) * sizeof *scale);
            if (thresholds)
                memcpy(scale, thresholds + i * geometry->groups + group, (size_t)n * sizeof *scale);
            memcpy(scales + group * 4, scale, (size_t)n * sizeof *scale);
            invert_scales(scale, hc_round_up(n, UNIT), segment.reciprocal, &segment);
            /* as many groups as fit into a slice, or parts of one group, are packed together */
            const int64_t together = hc_max(SLICE / length, 1), parts = hc_min(length, SLICE);
            for (int64_t j = 0; j < n; j += together) {
                const int64_t groups = hc_min(together, n - j), begin = first + j * length, all = groups * length;
                for (int64_t c = 0, part; c < length; c += parts) {
                    part = hc_min(length - c, parts);
                    const hc_values exact = values_from(from, begin + c);
                    slice_codes(&log, round_values(exact, groups * part, &segment.floats), exact, groups, part,
                                scale + j, segment.reciprocal + j, segment.codes);
                    pack_bytes(segment.codes, groups > 1 ? all : part, log.bits, codes + (begin + c) / 8 * log.bits);
                }
            }
            clear_zero_groups(geometry, &segment, n, log.bits, codes + first / 8 * log.bits);
        }
    }
    return HC_DONE;
}

HC_CHUNK_VALUES(by_table16, HC_BY_TABLE16)
HC_CHUNK_VALUES(by_table, HC_BY_TABLE)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    return kind == HC_BY_TABLE16 ? by_table16 : by_table;
}

/* True if codes are decoded by `octave_values`. */
static inline bool has_short_octaves(const hc_format *format) {
    return log_gamma_of(format) <= OCTAVE && format->bits > 4;
}

/* Values of n codes, at most CHUNK: entry[i] is the magnitude of step i of octave 0, entry[OCTAVE + i] its negative. */
static inline __attribute__((always_inline)) void octave_values(const hc_format *format, const float *entry,
                                                                const uint8_t *restrict codes, int64_t n,
                                                                float *restrict values) {
    const int gamma = log_gamma_of(format);
    const uint8_t sign = (uint8_t)(1 << (format->bits - 1)), in_octave = (uint8_t)(gamma - 1);
    const uint32_t zero = (uint32_t)log_zero_code(format);
    uint8_t step[CHUNK + 8]; /* simd_elements reads up to 7 codes too many */
    int shift = 0;
    while (1 << shift < gamma)
        shift++;
    for (int64_t i = 0; i < n; i++)
        step[i] = (uint8_t)((codes[i] & in_octave) | (codes[i] >= sign ? OCTAVE : 0));
    memset(step + n, 0, 8);
    simd_elements(step, n, HC_BY_TABLE16, load_table16(entry), entry, false, 1, values);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t e = codes[i] & zero, bits = hc_f32_bits(values[i]);
        values[i] = hc_f32_from_bits(e == zero ? bits & 0x80000000 : bits - (e >> shift << 23));
    }
}

/* T_e of every code without its sign, 0 for the code of zero; returns their number. */
static inline int fill_magnitudes(const hc_format *format, double *magnitudes) {
    const int half = 1 << (format->bits - 1), gamma = log_gamma_of(format), step = LOG_STEPS / gamma;
    double octave = 1;
    for (int e = 0; e < half; octave /= 2)
        for (int i = 0; i < gamma && e < half; i++, e++)
            magnitudes[e] = LOG_POWER[i * step] * octave;
    magnitudes[half - 1] = 0;
    return half;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    double magnitudes[128];
    const int half = fill_magnitudes(format, magnitudes);
    (void)components, (void)row;
    elements->kind = format->bits <= 4 ? HC_BY_TABLE16 : HC_BY_TABLE;
    elements->unscaled = false;
    memset(elements->table, 0, 16 * sizeof *elements->table);
    for (int e = 0; e < half; e++) {
        elements->table[e] = (float)magnitudes[e];
        elements->table[half + e] = -(float)magnitudes[e];
    }
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)format, (void)geometry;
    memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
           (size_t)n * sizeof *elements->scale);
}

static inline void group_values(const double *restrict magnitudes, int n_codes, double scale,
                                const uint8_t *restrict codes, int64_t n, float *restrict values) {
    if (n_codes <= 16) {
        const float unused[1] = {0};
        simd_elements(codes, n, HC_BY_TABLE16, scaled_table16(magnitudes, scale), unused, false, 1, values);
        return;
    }
    for (int64_t i = 0; i < n && n < n_codes; i++)
        values[i] = hc_saturated(scale * magnitudes[codes[i]]);
    if (n < n_codes)
        return;
    float table[256];
    for (int i = 0; i < n_codes; i++)
        table[i] = hc_saturated(scale * magnitudes[i]);
    simd_elements(codes, n, HC_BY_TABLE, load_table16(table), table, false, 1, values);
}

/* The entries of `octave_values` for a scale, each rounded once from float64; false if a value of the format can be
 * subnormal or is none. */
static inline bool scaled_octave(const hc_format *format, float scale, float *entry) {
    const int gamma = log_gamma_of(format), octaves = (log_zero_code(format) - 1) / gamma;
    if (!(scale <= FLT_MAX && (double)scale * log_octave(octaves + 1) >= FLT_MIN))
        return false;
    memset(entry, 0, 2 * OCTAVE * sizeof *entry);
    for (int i = 0; i < gamma; i++) {
        entry[i] = (float)((double)scale * LOG_POWER[i * (LOG_STEPS / gamma)]);
        entry[OCTAVE + i] = -entry[i];
    }
    return true;
}

static inline int64_t codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                            const hc_tile *tile, const hc_code_tile *out) {
    float entry[2 * OCTAVE];
    hc_elements elements;
    if (!has_short_octaves(format) || !scaled_octave(format, 1, entry))
        return decode_codes(format, geometry, components, tile, out);
    elements.kind = HC_BY_TABLE; /* unsigned bytes */
    elements.unscaled = false;
    for (int64_t i = 0; i < tile->rows; i++) {
        out->row_scale[i] = 1;
        HC_FOR_CHUNKS(i, elements) {
            store_scales(format, geometry, tile, i, &chunk, &elements, out);
            octave_values(format, entry, elements.codes, chunk.n,
                          out->codes + i * out->codes_ld + chunk.column - tile->first_column);
        }
    }
    return HC_DONE;
}

static inline int64_t decode_products(const hc_format *format, const hc_geometry *geometry,
                                      const hc_components *components, const hc_tile *tile, float *values, int64_t ld) {
    hc_elements elements;
    double magnitudes[256] = {0};
    const int half = fill_magnitudes(format, magnitudes), n_codes = 2 * half;
    for (int e = 0; e < half; e++)
        magnitudes[half + e] = -magnitudes[e];
    elements.kind = HC_BY_TABLE;
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, elements) {
            float *to = values + i * ld + chunk.column - tile->first_column;
            int64_t c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);
            for (int64_t g = 0; c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group)) {
                float entry[2 * OCTAVE];
                if (has_short_octaves(format) && scaled_octave(format, elements.scale[g], entry))
                    octave_values(format, entry, elements.codes + c, end - c, to + c);
                else
                    group_values(magnitudes, n_codes, (double)elements.scale[g], elements.codes + c, end - c, to + c);
            }
        }
    return HC_DONE;
}

static int64_t doubles(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                       const hc_tile *tile, double *values, int64_t ld) {
    hc_elements elements;
    double magnitudes[256] = {0};
    const int half = fill_magnitudes(format, magnitudes);
    for (int e = 0; e < half; e++)
        magnitudes[half + e] = -magnitudes[e];
    elements.kind = HC_BY_TABLE; /* unsigned bytes */
    for (int64_t i = 0; i < tile->rows; i++)
        HC_FOR_CHUNKS(i, elements) {
            double *to = values + i * ld + chunk.column - tile->first_column;
            int64_t c = 0, end = hc_min(chunk.n, (chunk.first_group + 1) * geometry->group - chunk.column);
            for (int64_t g = 0; c < chunk.n; g++, c = end, end = hc_min(chunk.n, end + geometry->group))
                for (int64_t j = c; j < end; j++)
                    to[j] = (double)elements.scale[g] * magnitudes[elements.codes[j]];
        }
    return HC_DONE;
}

HC_SIMD_TABLE(log, .encode = encode, .values = decode_products, .doubles = doubles, .codes = codes);
