/* VS-Quant's scales for kernels/encode_rows.h; the definition and the options are in formats/vsq.c. The ISA's file
 * names the function by HC_ENCODE. */
#include "kernels/encode_rows.h"

/* n scales of `bits` bits, little end first. */
static inline void pack_scales(const int32_t *codes, int64_t n, int bits, uint8_t *out) {
    if (bits <= 8) {
        uint8_t bytes[SEGMENT_GROUPS + 64];
        for (int64_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)codes[i];
        pack_bytes(bytes, n, bits, out);
        return;
    }
    uint64_t pending = 0;
    int n_pending = 0;
    for (int64_t i = 0; i < n; i++) {
        pending |= (uint64_t)codes[i] << n_pending;
        for (n_pending += bits; n_pending >= 8 || (i + 1 == n && n_pending > 0); n_pending -= 8, pending >>= 8)
            *out++ = (uint8_t)pending;
    }
}

/* clip(RNE(s / gamma)); by the reciprocal where no quotient is near a midpoint. */
static inline void scale_codes(const float *scales, int64_t n, float coarse, int32_t largest, int32_t *codes) {
    const hc_code_range range = code_range(0, largest);
    const float reciprocal = 1.0f / coarse;
    int near = coarse == 0 || !is_plain(coarse);
    for (int64_t i = 0; i < n; i++) {
        const float quotient = scales[i] * reciprocal, code = (quotient + 0x1.8p23f) - 0x1.8p23f;
        near |= fabsf(quotient - code) > range.near;
        codes[i] = (int32_t)(code < (float)largest ? code : (float)largest);
    }
    for (int64_t i = 0; i < n && near; i++) {
        double quotient = coarse == 0 ? 0 : (double)scales[i] / (double)coarse;
        quotient = quotient > largest ? largest : quotient;
        codes[i] = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52);
    }
}

/* Scales of a segment: what is stored, and what codes are made with. */
static inline void segment_scales(const hc_format *format, int64_t n, int32_t largest, float coarse,
                                  hc_segment *segment, uint8_t *out) {
    const int scale_bits = format->option[0];
    const int64_t whole = hc_round_up(n, UNIT);
    float *scale = segment->multiple;
    for (int64_t i = 0; i < whole; i++)
        scale[i] = segment->maximum[i] / (float)largest;
    segment->factor = 1;
    if (scale_bits == 0) {
        memcpy(out, scale, (size_t)n * sizeof *scale);
        invert_scales(scale, whole, segment);
        return;
    }
    int32_t codes[SEGMENT_GROUPS + UNIT];
    scale_codes(scale, whole, coarse, (1 << scale_bits) - 1, codes);
    pack_scales(codes, n, scale_bits, out);
    if (!format->option[3]) {
        for (int64_t i = 0; i < whole; i++) /* a scale that became 0 makes its group 0 */
            scale[i] = hc_f32_from_bits(hc_f32_bits(scale[i]) & (codes[i] != 0 ? ~0u : 0));
        invert_scales(scale, whole, segment);
        return;
    }
    float product[SEGMENT_GROUPS + UNIT]; /* refit: rounded for the reciprocals only */
    for (int64_t i = 0; i < whole; i++) {
        scale[i] = (float)codes[i];
        product[i] = coarse * scale[i];
    }
    segment->factor = coarse;
    invert_scales(product, whole, segment);
}

HC_SLICE(plain_slice, HC_CODES_PLAIN)
HC_SLICE(signed_slice, HC_CODES_SIGNED)
HC_SLICE(unsigned_slice, HC_CODES_UNSIGNED)

int64_t HC_ENCODE(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                  const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const int bits = format->bits, scale_bits = format->option[0];
    const bool is_unsigned = format->option[1] != 0, tensor = format->option[2] != 0, refit = format->option[3] != 0;
    if (!serves(geometry, x))
        return HC_DECLINED;
    const int32_t largest = (1 << (is_unsigned ? bits : bits - 1)) - 1;
    const hc_code_range range = code_range(is_unsigned ? 0 : -largest, largest);
    hc_slice_fn *encode = is_unsigned ? unsigned_slice : refit || thresholds ? signed_slice : plain_slice;
    const bool row_coarse = scale_bits != 0 && !tensor, once = row_coarse && geometry->groups <= SEGMENT_GROUPS;
    const int64_t step = once ? geometry->groups : segment_groups(geometry);
    hc_segment segment;
    number_units(geometry, &segment);
    if (tensor && x->first_row == 0)
        hc_store_f32(hc_part(out, HC_COARSE, 0), state->coarse);
    for (int64_t i = 0; i < x->rows; i++) {
        const float *row = (const float *)x->data + i * x->row_stride;
        uint8_t *codes = hc_part(out, HC_CODES, x->first_row + i), *scales = hc_part(out, HC_SCALES, x->first_row + i);
        float coarse = tensor ? state->coarse : 0;
        /* A row scale needs the maxima of all groups: those of one segment are kept, those of several made again. */
        for (int pass = row_coarse ? 0 : 1; pass < 2; pass++) {
            float row_maximum = 0;
            for (int64_t group = 0; group < geometry->groups; group += step) {
                const int64_t n = hc_min(step, geometry->groups - group), first = group * geometry->group;
                if (pass == 0 || !once) {
                    const bool legal =
                        group_maxima(geometry, row + first, n, is_unsigned ? HC_POSITIVE : HC_ABSOLUTE, segment.maximum);
                    if (!legal || (is_unsigned && !is_finite(line_maximum(row + first, n * geometry->group, HC_NEGATIVE))))
                        return x->first_row + i;
                    if (thresholds)
                        memcpy(segment.maximum, thresholds + i * geometry->groups + group, (size_t)n * sizeof(float));
                }
                if (pass == 0) {
                    row_maximum = fmaxf(row_maximum, largest_of(segment.maximum, n));
                    continue;
                }
                segment_scales(format, n, largest, coarse, &segment,
                               scales + (scale_bits ? group / 8 * scale_bits : group * 4));
                encode_groups(geometry, row + first, n, &segment, &range, encode, step * geometry->group * 4, bits,
                              codes + first / 8 * bits);
            }
            if (pass == 0) {
                coarse = row_maximum / (float)largest / (float)((1 << scale_bits) - 1);
                hc_store_f32(hc_part(out, HC_COARSE, x->first_row + i), coarse);
            }
        }
    }
    return HC_DONE;
}
