/* Log numbers for kernels/encode_rows.h; the definition and the options are in formats/log.c. The ISA's file names the
 * function by HC_ENCODE. Loops over BLOCK values, which the compiler turns into this ISA's vectors.
 *
 * The bits of the quotient float32(x * (1 / s)) tell the octave, and the first STEPS bits of its fraction an interval
 * with one threshold at most; where one is near, the block is made again by the definition.
 */
#include "kernels/encode_rows.h"

enum { BLOCK = 64, STEPS = 6, FRACTION = 0x7fffff, NEAR = 4 };

typedef struct {
    int gamma, bits;
    int32_t zero;               /* the exponent code of zero */
    double least;               /* half the smallest magnitude */
    uint32_t least_bits;        /* near it, of a float32 */
    uint32_t table[1 << STEPS]; /* the threshold's fraction, and how many are above the interval's end << 23 */
} hc_log_table;

static inline double octave(int32_t octaves) {
    const uint64_t bits = (uint64_t)(1023 - octaves) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Where the fraction of 2^(1 - (r + 1/2) / gamma) is in bits of float32, r descending. */
static inline uint32_t threshold_bits(int gamma, int r) {
    const double power = 2 * hc_octave_powers[HC_OCTAVE_POWERS / gamma / 2 + r * (HC_OCTAVE_POWERS / gamma)];
    return (uint32_t)((power - 1) * 0x1p23 + 0.5);
}

/* False where quotients leave the normal numbers of float32. */
static inline bool fill_table(const hc_format *format, hc_log_table *log) {
    const int gamma = format->option[0];
    const int32_t zero = (1 << (format->bits - 1)) - 1, last = zero - 1;
    log->gamma = gamma;
    log->bits = format->bits;
    log->zero = zero;
    log->least = hc_octave_powers[last % gamma * (HC_OCTAVE_POWERS / gamma)] * octave(last / gamma) / 2;
    log->least_bits = hc_f32_bits((float)log->least);
    for (int i = 0; i < 1 << STEPS; i++) {
        const uint32_t low = (uint32_t)i << (23 - STEPS), high = (uint32_t)(i + 1) << (23 - STEPS);
        uint32_t found = 0, above = 0; /* a fraction is not below 0 */
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
static inline uint32_t defined_code(const hc_log_table *log, float x, double scale) {
    const uint32_t sign = hc_f32_bits(x) >> 31 << (log->bits - 1);
    const double quotient = fabs((double)x) / scale;
    if (!(quotient >= log->least))
        return sign | (uint32_t)log->zero;
    int32_t e = 0;
    if (quotient < 1) {
        uint64_t bits;
        memcpy(&bits, &quotient, sizeof bits);
        const int32_t octaves = 1022 - (int32_t)(bits >> 52);
        const double rest = quotient / octave(octaves); /* 1/2 to 1 */
        const int step = HC_OCTAVE_POWERS / log->gamma;
        e = octaves * log->gamma;
        for (int i = step / 2; i < HC_OCTAVE_POWERS; i += step)
            e += rest < hc_octave_powers[i];
    }
    return sign | (uint32_t)(e < log->zero ? e : log->zero - 1);
}

static __attribute__((noinline)) void defined_codes(const hc_log_table *log, const float *x, int64_t n, double scale,
                                                    uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(scale != 0 ? defined_code(log, x[i], scale) : 0);
}

/* BLOCK values with one scale; false where one is near a threshold. */
static inline bool block_codes(const hc_log_table *log, const float *restrict x, float reciprocal,
                               uint8_t *restrict codes) {
    const uint32_t *restrict table = log->table, least = log->least_bits;
    const int32_t gamma = log->gamma, last = log->zero - 1, zero = log->zero;
    const int shift = 32 - log->bits;
    const uint32_t sign = 1u << (log->bits - 1);
    int32_t code[UNIT];
    uint32_t nearest = UINT32_MAX;
    for (int first = 0; first < BLOCK; first += UNIT) {
        for (int i = 0; i < UNIT; i++) {
            const uint32_t signed_bits = hc_f32_bits(x[first + i] * reciprocal);
            int32_t bits = (int32_t)(signed_bits & 0x7fffffff);
            bits = bits < 0x3f800000 ? bits : 0x3f800000;
            const uint32_t fraction = (uint32_t)bits & FRACTION, entry = table[fraction >> (23 - STEPS)];
            const uint32_t threshold = entry & FRACTION;
            const uint32_t apart = threshold ? fraction - threshold + NEAR : UINT32_MAX;
            const uint32_t from_zero = (uint32_t)bits - least + NEAR;
            nearest = nearest < apart ? nearest : apart;
            nearest = nearest < from_zero ? nearest : from_zero;
            int32_t e = (126 - (bits >> 23)) * gamma + (int32_t)(entry >> 23) + (fraction < threshold);
            e = e < last ? e : last;
            e = (uint32_t)bits < least ? zero : e;
            code[i] = (int32_t)((signed_bits >> shift & sign) | (uint32_t)e);
        }
        for (int i = 0; i < UNIT; i++)
            codes[first + i] = (uint8_t)code[i];
    }
    return nearest > 2 * NEAR;
}

/* n values of one group, to bytes. */
static inline void group_codes(const hc_log_table *log, const float *x, int64_t n, float scale, float reciprocal,
                               bool divide, uint8_t *codes) {
    const char *next = (const char *)((uintptr_t)x + SEGMENT_VALUES * sizeof *x);
    int64_t i = 0;
    for (; i + UNIT <= n && !divide; i += BLOCK) {
        float values[BLOCK];
        const int64_t count = hc_min(n - i, BLOCK);
        const float *from = x + i;
        if (count < BLOCK) { /* what lies beyond is written, then made again by who it belongs to */
            memcpy(values, from, (size_t)count * sizeof *values);
            memset(values + count, 0, (size_t)(BLOCK - count) * sizeof *values);
            from = values;
        }
        for (int j = 0; j < BLOCK * 4; j += HC_CACHE_LINE)
            __builtin_prefetch(next + i * 4 + j, 0, 3);
        if (!block_codes(log, from, reciprocal, codes + i))
            defined_codes(log, from, count, (double)scale, codes + i);
    }
    if (i < n)
        defined_codes(log, x + i, n - i, (double)scale, codes + i);
}

int64_t HC_ENCODE(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                  const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state;
    hc_log_table log;
    if (!serves(geometry, x) || !fill_table(format, &log))
        return HC_DECLINED;
    const int64_t step = segment_groups(geometry), length = geometry->group;
    hc_segment segment;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const float *from = (const float *)x->data + i * x->row_stride;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * length;
            float *scale = segment.multiple;
            if (!group_maxima(geometry, from + first, n, HC_ABSOLUTE, segment.maximum))
                return row;
            memcpy(scale, segment.maximum, (size_t)hc_round_up(n, UNIT) * sizeof *scale);
            if (thresholds)
                memcpy(scale, thresholds + i * geometry->groups + group, (size_t)n * sizeof *scale);
            memcpy(scales + group * 4, scale, (size_t)n * sizeof *scale);
            invert_scales(scale, hc_round_up(n, UNIT), segment.reciprocal, &segment);
            /* as many groups as a slice holds, then a part of one, before they are packed */
            for (int64_t j = 0; j < n;) {
                int64_t in_slice = 0, begin = first + j * length, end = begin;
                for (; j < n && (in_slice + length <= SLICE || in_slice == 0); j++) {
                    const bool divide = !is_plain(scale[j]);
                    for (int64_t c = 0, part; c < length; c += part) {
                        part = hc_min(length - c, SLICE);
                        if (length > SLICE)
                            in_slice = 0, begin = end;
                        group_codes(&log, from + end, part, scale[j], segment.reciprocal[j], divide,
                                    segment.codes + in_slice);
                        in_slice += part, end += part;
                        if (length > SLICE)
                            pack_bytes(segment.codes, part, log.bits, codes + begin / 8 * log.bits);
                    }
                }
                if (length <= SLICE)
                    pack_bytes(segment.codes, in_slice, log.bits, codes + begin / 8 * log.bits);
            }
            clear_zero_groups(geometry, &segment, n, log.bits, codes + first / 8 * log.bits);
        }
    }
    return HC_DONE;
}
