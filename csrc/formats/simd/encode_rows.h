/* Encoding rows at the speed of memory, for every SIMD set and every format with groups. A segment of a row (groups
 * that stay in L1) is read twice: for the largest magnitudes, and for the codes. RNE(x / s) is the integer nearest to
 * x * (1/s), unless x * (1/s) is within the error of three roundings of a midpoint (k + 1/2). Then four units of 16
 * values are encoded again, exactly. float64 becomes float32 first (formats/simd/values.h); the exact codes are those
 * of the float64. The SIMD set provides simd_maxima, simd_maximum, simd_codes, simd_corrected, simd_pack4, simd_odd.
 */
#ifndef HC_ENCODE_ROWS_H
#define HC_ENCODE_ROWS_H

#include "formats/simd/values.h"

enum {
    SEGMENT_GROUPS = 128,  /* a multiple of 16, so also of 8: segments start at a byte of every component */
    SEGMENT_VALUES = 1024, /* two segments of 4 KiB and their codes: a small part of L1 */
};

/* Number of groups whose divisors are kept: those of a segment, or more if a format defines it. */
#ifndef HC_KEPT_GROUPS
#define HC_KEPT_GROUPS SEGMENT_GROUPS
#endif

/* Divisors of a segment's groups. The divisor of group i is factor * multiple[i], exact in float64, and reciprocal[i]
 * is near its inverse. Both are 0 for groups of zeros. */
typedef struct {
    _Alignas(HC_CACHE_LINE) float maximum[SEGMENT_GROUPS + UNIT]; /* of the magnitudes */
    float multiple[HC_KEPT_GROUPS + UNIT], reciprocal[HC_KEPT_GROUPS + UNIT];
    int32_t zero[SEGMENT_GROUPS + UNIT];
    _Alignas(HC_CACHE_LINE) uint8_t codes[SLICE + HC_CACHE_LINE];
    uint8_t group_of[SLICE / UNIT];
    float factor;
    int64_t far;         /* bytes from the next segment to the values that are prefetched as well */
    bool divide;         /* codes must be computed by division: a reciprocal is not normal */
    float least;         /* codes of smaller scales are computed by division as well */
    const double *exact; /* float64 of the slice that is encoded; NULL: its values are float32 */
    hc_floats floats;
} hc_segment;

/* Packs n codes in bytes to `bits` bits each; reads up to 63 bytes more, writes only the bytes of the codes. */
static inline void pack_bytes(const uint8_t *codes, int64_t n, int bits, uint8_t *out) {
    if (bits == 8) {
        memcpy(out, codes, (size_t)n);
        return;
    }
    if (bits == 4) {
        simd_pack4(codes, n, out);
        return;
    }
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    const int64_t out_bytes = (n * bits + 7) / 8;
    for (int64_t i = 0; i * 8 < n; i++) {
        uint64_t word;
        memcpy(&word, codes + i * 8, sizeof word);
        if (n - i * 8 < 8) /* bytes after the last code are not codes */
            word &= ((uint64_t)1 << (8 * (n - i * 8))) - 1;
        const uint64_t packed = simd_extract_bits(word, mask);
        const int64_t left = out_bytes - i * bits;
        if (left >= 8)
            memcpy(out + i * bits, &packed, 8);
        else
            memcpy(out + i * bits, &packed, (size_t)(left < bits ? left : bits));
    }
}

/* The definition, for one unit. Here and below: exact is the float64 of x, or NULL. */
static __attribute__((noinline)) void divided_codes(const float *restrict x, const double *restrict exact,
                                                    double divisor, int32_t zero, const hc_code_range *range,
                                                    uint8_t *restrict codes) {
    const double low = range->low - zero, high = range->high - zero, by = divisor != 0 ? divisor : (double)INFINITY;
    int32_t code[UNIT];
    for (int i = 0; i < UNIT; i++) {
        double quotient = (exact ? exact[i] : (double)x[i]) / by;
        quotient = quotient < high ? quotient : high;
        quotient = quotient > low ? quotient : low;
        code[i] = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52) + zero;
    }
    for (int i = 0; i < UNIT; i++)
        codes[i] = (uint8_t)code[i];
}

/* Groups of a row per segment: a multiple of 8, so that every component continues at a byte. */
static inline int64_t segment_groups(const hc_geometry *geometry) {
    const int64_t wanted = SEGMENT_VALUES / geometry->group;
    return wanted >= SEGMENT_GROUPS ? SEGMENT_GROUPS : wanted < 16 ? 8 : wanted & ~(int64_t)15;
}

/* True if the groups of rows consist of whole units, or a row is one group. */
static inline bool serves(const hc_geometry *geometry) {
    return geometry->padded > 0 && (geometry->group % UNIT == 0 || geometry->groups == 1);
}

/* The largest of n numbers that are not negative, compared as integers: a float maximum would not be vectorized. */
static inline float largest_of(const float *values, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(values[i]);
        largest = largest > bits ? largest : bits;
    }
    return hc_f32_from_bits(largest);
}

/* Largest magnitudes of float64 groups, in parts that fit into `floats`. */
static __attribute__((noinline)) void double_maxima(const double *x, int64_t n_groups, int64_t length, int which,
                                                    hc_floats *floats, float *maxima) {
    const hc_values values = {.doubles = x};
    const int64_t together = hc_min(SLICE / length, n_groups);
    for (int64_t group = 0; group < n_groups && together == 0; group++)
        maxima[group] = values_maximum(values_from(values, group * length), length, which, floats);
    for (int64_t group = 0, n; group < n_groups && together > 0; group += n) {
        n = hc_min(together, n_groups - group);
        simd_maxima(round_values(values_from(values, group * length), n * length, floats), n, length / UNIT, which,
                    maxima + group);
    }
    for (int64_t group = n_groups; group < hc_round_up(n_groups, UNIT); group++)
        maxima[group] = 0;
}

/* Largest magnitudes of groups; false if a value is NaN or infinite. */
static inline __attribute__((always_inline)) bool group_maxima(const hc_geometry *geometry, hc_values x,
                                                               int64_t n_groups, int which, hc_segment *segment,
                                                               float *maxima) {
    if (geometry->groups == 1) {
        memset(maxima, 0, UNIT * sizeof *maxima);
        maxima[0] = values_maximum(x, geometry->group, which, &segment->floats);
    } else if (x.doubles) {
        double_maxima(x.doubles, n_groups, geometry->group, which, &segment->floats, maxima);
    } else {
        simd_maxima(x.singles, n_groups, geometry->group / UNIT, which, maxima);
    }
    return is_finite(largest_of(maxima, n_groups));
}

/* Quotients rounded to odd: rounded again to fewer bits, they give the same results as float64 quotients. */
static __attribute__((noinline)) void odd_quotients(const float *restrict x, const double *restrict exact,
                                                    double divisor, float *restrict out) {
    const double by = divisor != 0 ? divisor : (double)INFINITY;
    double quotients[UNIT];
    for (int i = 0; i < UNIT; i++)
        quotients[i] = (exact ? exact[i] : (double)x[i]) / by;
    simd_odd(quotients, out);
}

/* The definition of levels, for one unit. */
static __attribute__((noinline)) void nearest_levels(const float *restrict x, const double *restrict exact,
                                                     double divisor, const double *restrict midpoints,
                                                     uint8_t *restrict codes) {
    const double by = divisor != 0 ? divisor : (double)INFINITY;
    int code[UNIT] = {0};
    double quotients[UNIT];
    for (int i = 0; i < UNIT; i++)
        quotients[i] = (exact ? exact[i] : (double)x[i]) / by;
    for (int j = 0; j < HC_LEVELS - 1; j++)
        for (int i = 0; i < UNIT; i++)
            code[i] += quotients[i] > midpoints[j];
    for (int i = 0; i < UNIT; i++)
        codes[i] = (uint8_t)code[i];
}

/* Encodes four units with exact rounding. */
static inline __attribute__((always_inline)) void exact_codes(const float *from, const double *exact,
                                                              const uint8_t *groups, int64_t group,
                                                              const hc_segment *segment, const hc_code_range *range,
                                                              hc_code_mode mode, uint8_t *codes) {
    if (is_small_float(mode)) {
        static const uint8_t same[4] = {0};
        const float one = 1;
        float quotients[4 * UNIT];
        for (int j = 0; j < 4 && !is_exact(mode); j++)
            odd_quotients(from + j * UNIT, exact ? exact + j * UNIT : NULL,
                          (double)segment->multiple[group + groups[j]], quotients + j * UNIT);
        if (is_exact(mode))
            simd_codes(from, groups, segment->reciprocal + group, segment->zero, range, 0, mode, codes);
        else
            simd_codes(quotients, same, &one, segment->zero, range, 0, mode | HC_EXACT, codes);
        return;
    }
    for (int j = 0; j < 4; j++) {
        const int64_t here = group + groups[j];
        const int32_t zero = mode == HC_CODES_SHIFTED ? segment->zero[here] : 0;
        const double *unit = exact ? exact + j * UNIT : NULL;
        if (mode == HC_CODES_LEVELS)
            nearest_levels(from + j * UNIT, unit, (double)segment->multiple[here], range->midpoints, codes + j * UNIT);
        else if (segment->divide || segment->factor != 1 || exact)
            divided_codes(from + j * UNIT, unit, (double)segment->factor * (double)segment->multiple[here], zero, range,
                          codes + j * UNIT);
        else
            simd_corrected(from + j * UNIT, segment->multiple[here], segment->reciprocal[here], zero, range,
                           codes + j * UNIT);
    }
}

/* Codes of a slice of at most SLICE values from group `group` of the segment on; `ahead`: see encode_groups. */
static inline __attribute__((always_inline)) void encode_slice(const float *x, int64_t n, int64_t group,
                                                               hc_segment *segment, const hc_code_range *range,
                                                               hc_code_mode mode, int64_t ahead) {
    const float *reciprocals = segment->reciprocal + group;
    const int32_t *zeros = mode == HC_CODES_SHIFTED ? segment->zero + group : segment->zero;
    const float near = range->near;
    const char *next = (const char *)((uintptr_t)x + (uintptr_t)ahead); /* prefetched while this slice is computed */
    const int64_t far = segment->far;
    const bool soon = ahead <= SEGMENT_VALUES * (int64_t)sizeof *x;
    float last[4 * UNIT]; /* four units that are not whole: zeros follow, of the first unit's group */
    double exact_last[4 * UNIT];
    uint8_t groups_last[4];
    for (int64_t i = 0; i < n; i += 4 * UNIT, next += 4 * HC_CACHE_LINE) {
        const float *from = x + i;
        const double *exact = segment->exact ? segment->exact + i : NULL;
        const uint8_t *groups = segment->group_of + i / UNIT;
        for (int j = 0; j < 4 && soon; j++)
            __builtin_prefetch(next + j * HC_CACHE_LINE, 0, 3);
        for (int j = 0; j < 4 && (far || !soon); j++)
            __builtin_prefetch(next + far + j * HC_CACHE_LINE, 0, 2);
        if (n - i < 4 * UNIT) {
            const int64_t count = n - i;
            memset(last, 0, sizeof last);
            from = memcpy(last, from, (size_t)count * sizeof *last);
            if (exact) {
                memset(exact_last, 0, sizeof exact_last);
                exact = memcpy(exact_last, exact, (size_t)count * sizeof *exact_last);
            }
            for (int j = 0; j < 4; j++)
                groups_last[j] = groups[j * UNIT < count ? j : 0];
            groups = groups_last;
        }
        if (__builtin_expect(segment->divide ||
                                 !simd_codes(from, groups, reciprocals, zeros, range, near, mode, segment->codes + i),
                             0))
            exact_codes(from, exact, groups, group, segment, range, mode, segment->codes + i);
    }
}

/* One function per mode: a common function would have too few registers. */
#define HC_SLICE(name, mode)                                                                                           \
    static __attribute__((noinline)) void name(const float *x, int64_t n, int64_t group, hc_segment *segment,          \
                                               const hc_code_range *range, int64_t ahead) {                            \
        encode_slice(x, n, group, segment, range, mode, ahead);                                                        \
    }
typedef void hc_slice_fn(const float *, int64_t, int64_t, hc_segment *, const hc_code_range *, int64_t);

/* The group of each unit of a slice, counted from the first group of the slice. */
static inline void init_segment(const hc_geometry *geometry, hc_segment *segment) {
    const int64_t units = geometry->group < SLICE && geometry->groups > 1 ? geometry->group / UNIT : SLICE;
    int64_t group = 0, next = units;
    segment->least = 0;
    segment->exact = NULL;
    init_floats(HC_NEAREST, &segment->floats);
    /* Prefetching continues while the next maxima and scales are computed: 0.56 to 0.67 of the memory limit with mxfp4,
     * 0.58 to 0.71 with vsq4-g16 (Zen 4, 2026-11). */
    segment->far = 2 * SEGMENT_VALUES * (int64_t)sizeof(float);
    for (int64_t i = 0; i < SLICE / UNIT; i++) {
        if (i == next)
            group++, next += units;
        segment->group_of[i] = (uint8_t)group;
    }
}

/* Encodes n_groups groups from group first_group of the segment on; `ahead`: distance in bytes to the values that are
 * encoded next. */
static inline void encode_groups(const hc_geometry *geometry, hc_values x, int64_t first_group, int64_t n_groups,
                                 hc_segment *segment, const hc_code_range *range, hc_slice_fn *encode, int64_t ahead,
                                 int bits, uint8_t *out) {
    const int64_t length = geometry->group, values = n_groups * length;
    const int64_t slice_groups = length < SLICE ? SLICE / length : 1,
                  slice = length < SLICE ? slice_groups * length : SLICE;
    for (int64_t group = 0, first = 0, end; first < values; first = end) {
        end = hc_min(first + slice, length < SLICE ? values : (group + 1) * length);
        segment->exact = x.doubles && segment->floats.rounding == HC_NEAREST ? x.doubles + first : NULL;
        encode(round_values(values_from(x, first), end - first, &segment->floats), end - first, first_group + group,
               segment, range, x.doubles ? 0 : ahead);
        pack_bytes(segment->codes, end - first, bits, out + first / 8 * bits);
        if (length < SLICE || end == (group + 1) * length)
            group += slice_groups;
    }
}

/* Distances from an integer at which a midpoint is within twice the error of reciprocal and product. */
static inline hc_code_range code_range(int32_t low, int32_t high) {
    return (hc_code_range){.near = 0.5f - (float)(high - low + 2) * 0x1p-22f, .low = low, .high = high};
}

/* Whether the reciprocal of a scale is normal: 2^-126 to 2^126, and 0, whose reciprocal counts as 0. */
static inline bool is_plain(float scale) {
    const uint32_t bits = hc_f32_bits(scale);
    return (bits == 0) | (bits - 0x00800000 <= 0x7e800000 - 0x00800000);
}

/* A float64 that is subnormal in float32 is rounded with a large relative error. Small floats have no midpoint between
 * 0 and 2^-17, and scales of 2^-100 and more have no such quotient there. */
static inline void set_least(const hc_float_rows *x, hc_segment *segment) {
    segment->least = x->dtype == HC_F64 ? 0x1p-100f : 0;
}

/* Reciprocals of n scales; returns whether codes must be computed by division. */
static inline void invert_scales(const float *scales, int64_t n, float *reciprocals, hc_segment *segment) {
    int divide = 0;
    for (int64_t i = 0; i < n; i++) {
        const float reciprocal = 1.0f / scales[i];
        divide |= (int)!is_plain(scales[i]) | ((scales[i] < segment->least) & (scales[i] != 0));
        reciprocals[i] = scales[i] != 0 ? reciprocal : 0.0f;
    }
    segment->divide = divide;
}

/* Codes 0 for the groups of the segment whose scale is 0. */
static inline void clear_zero_groups(const hc_geometry *geometry, const hc_segment *segment, int64_t n, int bits,
                                     uint8_t *codes) {
    int any = 0;
    for (int64_t i = 0; i < n; i++)
        any |= segment->multiple[i] == 0;
    for (int64_t i = 0; i < n && any; i++)
        if (segment->multiple[i] == 0) /* a group starts at a byte, or it is the whole row */
            memset(codes + i * geometry->group / 8 * bits, 0, (size_t)(geometry->group * bits + 7) / 8);
}

#endif
