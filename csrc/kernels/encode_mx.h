/* Microscaling's powers of two for kernels/encode_rows.h; the definition and the options are in formats/mx.c. The
 * ISA's file names the function by HC_ENCODE. */
#include "kernels/encode_rows.h"

enum { RULE_FLOOR = 0, RULE_CEIL, RULE_RCEIL, RULE_EVEN };
enum { NAN_BYTE = 0xff };

HC_SLICE(e4m3_slice, HC_CODES_E4M3 | HC_EXACT)
HC_SLICE(e5m2_slice, HC_CODES_E5M2 | HC_EXACT)
HC_SLICE(e3m2_slice, HC_CODES_E3M2 | HC_EXACT)
HC_SLICE(e2m3_slice, HC_CODES_E2M3 | HC_EXACT)
HC_SLICE(e2m1_slice, HC_CODES_E2M1 | HC_EXACT)
HC_SLICE(int8_slice, HC_CODES_SIGNED)

/* By option[0], from fp8_e4m3fn on. */
typedef struct {
    hc_slice_fn *encode;
    float largest;
    int fraction_bits;
} hc_mx_element;

static inline const hc_mx_element *element_of(const hc_format *format) {
    static const hc_mx_element elements[] = {
        {e4m3_slice, 448, 3},  {e5m2_slice, 57344, 2}, {e3m2_slice, 28, 2},
        {e2m3_slice, 7.5f, 3}, {e2m1_slice, 6, 1},     {int8_slice, 127.0f / 64, 6},
    };
    return &elements[format->option[0] - 4];
}

/* Bytes of `whole` groups, and what multiplies their values: 2^-e, or 2^(6 - e) of int8's codes. */
static inline void group_powers(const hc_format *format, const hc_mx_element *element, int64_t whole,
                                hc_segment *segment, uint8_t *bytes) {
    const uint32_t fraction = 0x7fffff, largest = hc_f32_bits(element->largest);
    const uint32_t half = format->option[1] == RULE_EVEN ? (uint32_t)1 << (22 - element->fraction_bits) : 0;
    const uint32_t over = format->option[1] == RULE_CEIL    ? 0
                          : format->option[1] == RULE_RCEIL ? largest & fraction
                                                            : fraction; /* no fraction is larger */
    const int32_t top = (int32_t)(largest >> 23);
    for (int64_t i = 0; i < whole; i++) {
        const float absmax = segment->maximum[i];
        const bool subnormal = hc_f32_bits(absmax) < 0x00800000;
        const uint32_t bits = (subnormal ? hc_f32_bits(absmax * 0x1p24f) : hc_f32_bits(absmax)) + half;
        int32_t e = (int32_t)(bits >> 23) - top - (subnormal ? 24 : 0) + ((bits & fraction) > over);
        e = e < -127 ? -127 : e > 127 ? 127 : e;
        bytes[i] = (uint8_t)(e + 127);
        segment->reciprocal[i] = hc_f32_from_bits(e == 127 ? 0x00400000 : (uint32_t)(127 - e) << 23);
    }
    segment->factor = 1;
    segment->divide = false;
    if (element->fraction_bits != 6)
        return;
    int divide = 0;
    for (int64_t i = 0; i < whole; i++) {
        const bool tiny = segment->reciprocal[i] > 0x1p121f && segment->maximum[i] != 0;
        segment->multiple[i] = 0x1p-6f / segment->reciprocal[i]; /* down to 2^-133: exact */
        segment->reciprocal[i] = segment->maximum[i] != 0 ? 64 * segment->reciprocal[i] : 0;
        divide |= tiny;
    }
    segment->divide = divide;
}

/* Groups that hold a NaN or an infinity. */
static __attribute__((noinline)) void mark_groups(const hc_segment *segment, int64_t n, int64_t length, int bits,
                                                  uint8_t *scales, uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        if (!is_finite(segment->maximum[i])) {
            scales[i] = NAN_BYTE;
            memset(codes + i * length / 8 * bits, 0, (size_t)(length * bits + 7) / 8);
        }
}

int64_t HC_ENCODE(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                  const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)state, (void)thresholds;
    if (!serves(geometry, x))
        return HC_DECLINED;
    const int bits = format->bits;
    const hc_mx_element *element = element_of(format);
    /* products with powers of two are exact: no distance from a midpoint is too small */
    const hc_code_range range = {.near = 1, .low = -127, .high = 127, .limit = element->largest};
    const int64_t step = segment_groups(geometry);
    hc_segment segment;
    init_segment(geometry, &segment);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        const float *from = (const float *)x->data + i * x->row_stride;
        uint8_t *scales = hc_part(out, HC_SCALES, row), *codes = hc_part(out, HC_CODES, row);
        for (int64_t group = 0; group < geometry->groups; group += step) {
            const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
            uint8_t bytes[SEGMENT_GROUPS + UNIT];
            const bool finite = group_maxima(geometry, from + first, n, HC_ABSOLUTE, segment.maximum);
            group_powers(format, element, hc_round_up(n, UNIT), &segment, bytes);
            memcpy(scales + group, bytes, (size_t)n);
            encode_groups(geometry, from + first, 0, n, &segment, &range, element->encode, step * geometry->group * 4,
                          bits, codes + first / 8 * bits);
            if (!finite)
                mark_groups(&segment, n, geometry->group, bits, scales + group, codes + first / 8 * bits);
        }
    }
    return HC_DONE;
}
