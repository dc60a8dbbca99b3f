/* Encoding of blocks, GROUPS groups at a time, one per lane. Written once for the scalar definition and all SIMD sets:
 * the including file provides the lanes, base/lanes/scalar.h or the one of a SIMD set. The rules are those of
 * heterocompute/reference/formats/ggml/, operation by operation.
 *
 *   load (transposed, cut)   fit: eight candidates, least squares   blocks: integers, codes, fit once more, codes
 */
#ifndef HC_GGML_ENCODE_BLOCKS_H
#define HC_GGML_ENCODE_BLOCKS_H

#include "formats/format.h"
#include "formats/ggml/kinds.h"
#include "formats/ggml/tile.h"

#include "formats/ggml/plain.h"

#ifndef GGML_STOPS
#define GGML_STOPS false /* whether to end early (base/watch.h), where this is compiled for the host alone */
#endif

/* The level nearest to each lane; its index is written to *number. */
static inline __attribute__((always_inline)) lanes ggml_level(lanes quotient, lanes *number) {
    lanes level = lanes_of(GGML_LEVEL[0]), place = lanes_of(0);
#pragma GCC unroll 16
    for (int i = 1; i < GGML_LEVELS; i++) {
        const lanes_mask above = lanes_above(quotient, lanes_of((GGML_LEVEL[i - 1] + GGML_LEVEL[i]) / 2));
        level = lanes_select(above, lanes_of(GGML_LEVEL[i]), level);
        place = number ? lanes_select(above, lanes_of((float)i), place) : place;
    }
    if (number)
        *number = place;
    return level;
}

/* The code nearest to each lane as a number; for types with levels, the value of the level. */
static inline __attribute__((always_inline)) lanes ggml_nearest(bool has_levels, lanes quotient, lanes low,
                                                                lanes high) {
    if (has_levels)
        return ggml_level(quotient, NULL);
    return lanes_nearest(lanes_min(lanes_max(quotient, low), high));
}

static inline void ggml_range(const hc_ggml_kind *kind, lanes *low, lanes *high) {
    const float n = (float)(1 << (kind->bits - 1));
    *low = lanes_of(kind->is_signed ? -n : 0.0f);
    *high = lanes_of(kind->is_signed ? n - 1 : 2 * n - 1);
}

static inline lanes ggml_weight(const hc_ggml_tile *tile, bool weighted, int j, int lane) {
    return weighted ? lanes_load(&tile->w[j][lane]) : lanes_of(1);
}

/* sum + w q q. Without weights these are integers below 2^24, which need no intermediate rounding. */
static inline __attribute__((always_inline)) lanes ggml_add_square(bool weighted, lanes sum, lanes wq, lanes q) {
    return weighted ? lanes_add(sum, lanes_mul(wq, q)) : lanes_add_exact(sum, wq, q);
}

static inline __attribute__((always_inline)) void ggml_fit_signed(const hc_ggml_kind *kind, bool has_levels,
                                                                  bool weighted, int lane, hc_ggml_tile *tile) {
    const int n = kind->group;
    const float ends = has_levels ? 127.0f : (float)(1 << (kind->bits - 1)), step = has_levels ? 12.0f : 1.0f;
    const lanes largest = ggml_largest(tile, n, lane), zero = lanes_of(0);
    const lanes one_over = lanes_ratio(lanes_of(1), largest);
    lanes low, high, best = zero, scale = lanes_div(largest, lanes_of(-ends));
    ggml_range(kind, &low, &high);
    /* a value with a small weight may be beyond the levels */
    const int before = has_levels && weighted ? 20 : 4, candidates = has_levels && weighted ? 31 : CANDIDATES;
#pragma GCC unroll 8
    for (int candidate = 0; candidate < candidates; candidate++) {
        const float part = (float)(candidate - before) / 4;
        const lanes inverse = lanes_mul(lanes_of(-(ends + step * part)), one_over);
        lanes qq = zero, qx = zero;
        for (int j = 0; j < n; j++) {
            const lanes x = lanes_load(&tile->x[j][lane]), quotient = lanes_mul(x, inverse);
            lanes q;
            if (has_levels) {
                q = ggml_level(quotient, NULL);
            } else { /* within ends + (candidate - 4) / 4: few candidates exceed -ends or ends - 1 */
                q = lanes_nearest(quotient);
                q = candidate < 6 ? q : lanes_max(q, low);
                q = candidate < 2 ? q : lanes_min(q, high);
            }
            const lanes wq = weighted ? lanes_mul(lanes_load(&tile->w[j][lane]), q) : q;
            qq = ggml_add_square(weighted, qq, wq, q);
            qx = lanes_add(qx, lanes_mul(wq, x));
        }
        const lanes s = lanes_div(qx, qq), gain = lanes_mul(s, qx);
        const lanes_mask better = lanes_both(lanes_above(qq, zero), lanes_above(gain, best));
        best = lanes_select(better, gain, best);
        scale = lanes_select(better, s, scale);
    }
    lanes_store(&tile->scale[lane], scale);
    lanes_store(&tile->minimum[lane], zero);
}

static inline __attribute__((always_inline)) void ggml_fit_minimum(const hc_ggml_kind *kind, bool weighted, int lane,
                                                                   hc_ggml_tile *tile) {
    const int n = kind->group;
    const float most = (float)((1 << kind->bits) - 1);
    const lanes zero = lanes_of(0), high = lanes_of(most);
    lanes low, above, w_sum = zero, x_sum = zero;
    ggml_ends(tile, n, lane, &low, &above);
    low = lanes_min(low, zero);
    const lanes span = lanes_sub(lanes_max(above, low), low), one_over = lanes_ratio(lanes_of(1), span);
    for (int j = 0; j < n; j++) {
        const lanes w = ggml_weight(tile, weighted, j, lane);
        w_sum = lanes_add(w_sum, w);
        x_sum = lanes_add(x_sum, lanes_mul(w, lanes_load(&tile->x[j][lane])));
    }
    lanes best = zero, scale = lanes_div(span, high), minimum = low;
    for (int candidate = 0; candidate < CANDIDATES; candidate++) {
        const lanes inverse = lanes_mul(lanes_of(most + ((float)candidate - 4) / 4), one_over);
        lanes q_sum = zero, qq = zero, qx = zero;
        for (int j = 0; j < n; j++) {
            const lanes x = lanes_load(&tile->x[j][lane]);
            const lanes q = ggml_nearest(false, lanes_mul(lanes_sub(x, low), inverse), zero, high);
            const lanes wq = weighted ? lanes_mul(lanes_load(&tile->w[j][lane]), q) : q;
            q_sum = lanes_add(q_sum, wq);
            qq = ggml_add_square(weighted, qq, wq, q);
            qx = lanes_add(qx, lanes_mul(wq, x));
        }
        const lanes determinant = lanes_sub(lanes_mul(w_sum, qq), lanes_mul(q_sum, q_sum));
        lanes s = lanes_div(lanes_sub(lanes_mul(w_sum, qx), lanes_mul(x_sum, q_sum)), determinant);
        lanes m = lanes_div(lanes_sub(lanes_mul(qq, x_sum), lanes_mul(q_sum, qx)), determinant);
        const lanes_mask positive = lanes_above(m, zero);
        s = lanes_select(positive, lanes_div(qx, qq), s);
        m = lanes_select(positive, zero, m);
        const lanes gain = lanes_add(lanes_mul(s, qx), lanes_mul(m, x_sum));
        const lanes_mask better =
            lanes_both(lanes_both(lanes_above(determinant, zero), lanes_above(s, zero)), lanes_above(gain, best));
        best = lanes_select(better, gain, best);
        scale = lanes_select(better, s, scale);
        minimum = lanes_select(better, m, minimum);
    }
    lanes_store(&tile->scale[lane], scale);
    lanes_store(&tile->minimum[lane], lanes_sub(zero, minimum));
}

/* The sums for the next fit, over the codes that are nearest with the current factors of the tile. */
static inline __attribute__((always_inline)) void ggml_sums(const hc_ggml_kind *kind, bool has_levels, bool weighted,
                                                            hc_ggml_tile *tile) {
    const int n = kind->group;
    const lanes zero = lanes_of(0);
    lanes low, high;
    ggml_range(kind, &low, &high);
    for (int lane = 0; lane < GROUPS; lane += LANES) {
        const lanes scale = lanes_load(&tile->scale[lane]), minimum = lanes_load(&tile->minimum[lane]);
        const lanes inverse = lanes_ratio(lanes_of(1), scale);
        lanes w_sum = zero, x_sum = zero, q_sum = zero, qq = zero, qx = zero;
        const lanes_mask used = lanes_above(lanes_abs(scale), zero);
        for (int j = 0; j < n; j++) {
            const lanes x = lanes_load(&tile->x[j][lane]);
            lanes q = ggml_nearest(has_levels, lanes_mul(lanes_add(x, minimum), inverse), low, high);
            q = has_levels ? q : lanes_select(used, q, zero);
            const lanes w = ggml_weight(tile, weighted, j, lane), wq = weighted ? lanes_mul(w, q) : q;
            if (kind->has_minimum) {
                w_sum = lanes_add(w_sum, w);
                x_sum = lanes_add(x_sum, lanes_mul(w, x));
                q_sum = lanes_add(q_sum, wq);
            }
            qq = ggml_add_square(weighted, qq, wq, q);
            qx = lanes_add(qx, lanes_mul(wq, x));
        }
        lanes_store(&tile->sums.w[lane], w_sum);
        lanes_store(&tile->sums.x[lane], x_sum);
        lanes_store(&tile->sums.q[lane], q_sum);
        lanes_store(&tile->sums.qq[lane], qq);
        lanes_store(&tile->sums.qx[lane], qx);
    }
}

/* Writes the codes that are nearest with the current factors, in the order of the given values. */
static inline __attribute__((always_inline)) void ggml_codes(const hc_ggml_kind *kind, bool has_levels,
                                                             const float *values, int present, hc_ggml_tile *tile) {
    const int n = kind->group;
    const lanes zero = lanes_of(0);
    lanes low, high;
    ggml_range(kind, &low, &high);
    for (int lane = 0; lane < GROUPS; lane += LANES)
        lanes_store(&tile->inverse[lane], lanes_ratio(lanes_of(1), lanes_load(&tile->scale[lane])));
    for (int g = 0; g < present; g++) {
        const lanes minimum = lanes_of(tile->minimum[g]), inverse = lanes_of(tile->inverse[g]);
        const float scale = tile->scale[g];
        for (int j = g * n; j < (g + 1) * n; j += LANES) {
            const lanes quotient = lanes_mul(lanes_add(ggml_counted(lanes_load(values + j)), minimum), inverse);
            lanes q;
            if (has_levels)
                ggml_level(quotient, &q);
            else
                q = scale != 0 ? ggml_nearest(false, quotient, low, high) : zero;
            lanes_store_bytes(tile->rows + j, q);
        }
    }
}

static inline float ggml_cut(float value) { return value > 65504 ? 65504 : value < -65504 ? -65504 : value; }
static inline float ggml_rounded(float value) { return lanes_from_f16(lanes_to_f16(ggml_cut(value))); }

static inline float ggml_integer(float value, float inverse, float low, float high) {
    float quotient = value * inverse;
    quotient = quotient > low ? quotient : low;
    quotient = quotient < high ? quotient : high;
    return (quotient + 0x1.8p23f) - 0x1.8p23f;
}

/* Factors of the groups from the current factors of the block and its integers. */
static inline void ggml_scales(const hc_ggml_kind *kind, hc_ggml_tile *tile) {
    const int per = kind->block / kind->group;
    for (int g = 0; g < GROUPS; g++) {
        tile->scale[g] = tile->d[g / per] * tile->small[0][g];
        tile->minimum[g] = tile->e[g / per] * tile->small[1][g];
    }
}

/* d and e of every block, and the integers of its groups. */
static inline void ggml_integers(const hc_ggml_kind *kind, hc_ggml_tile *tile) {
    const int per = kind->block / kind->group;
    const bool has_minimum = kind->has_minimum;
    const float n = has_minimum ? (float)((1 << kind->scale_bits) - 1) : (float)(1 << (kind->scale_bits - 1));
    const float low = has_minimum ? 0 : -n, high = has_minimum ? n : n - 1;
    for (int block = 0; block < GROUPS / per; block++) {
        const float *scale = tile->scale + block * per, *minimum = tile->minimum + block * per;
        float d = scale[0], e = minimum[0];
        for (int g = 1; g < per; g++) {
            const bool larger = has_minimum ? scale[g] > d : fabsf(scale[g]) > fabsf(d);
            d = larger ? scale[g] : d;
            e = minimum[g] > e ? minimum[g] : e;
        }
        d = tile->d[block] = ggml_rounded(has_minimum ? d / n : d / -n);
        e = tile->e[block] = has_minimum ? ggml_rounded(e / n) : 0;
        const float d_inverse = d != 0 ? 1 / d : 0, e_inverse = e != 0 ? 1 / e : 0;
        for (int g = 0; g < per; g++) {
            tile->small[0][block * per + g] = ggml_integer(scale[g], d_inverse, low, high);
            tile->small[1][block * per + g] = has_minimum ? ggml_integer(minimum[g], e_inverse, low, high) : 0;
        }
    }
    ggml_scales(kind, tile);
}

/* d and e by least squares over all of a block, for the codes of `sums`. */
static inline void ggml_refit(const hc_ggml_kind *kind, hc_ggml_tile *tile) {
    const int per = kind->block / kind->group;
    for (int block = 0; block < GROUPS / per; block++) {
        float aa = 0, bb = 0, ab = 0, ax = 0, bx = 0;
        for (int g = block * per; g < (block + 1) * per; g++) {
            const float s = tile->small[0][g], m = tile->small[1][g];
            aa += s * s * tile->sums.qq[g];
            ax += s * tile->sums.qx[g];
            ab += s * m * tile->sums.q[g];
            bb += m * m * tile->sums.w[g];
            bx += m * tile->sums.x[g];
        }
        if (!kind->has_minimum) {
            const float d = ax / aa;
            tile->d[block] = aa > 0 && fabsf(d) <= 0x1p40f ? ggml_rounded(d) : tile->d[block];
            continue;
        }
        const float determinant = aa * bb - ab * ab;
        const float d = (ax * bb - ab * bx) / determinant, e = (ab * ax - aa * bx) / determinant;
        if (determinant > 0 && d > 0 && d <= 0x1p40f && e >= 0 && e <= 0x1p40f) {
            tile->d[block] = ggml_rounded(d);
            tile->e[block] = ggml_rounded(e);
        }
    }
    ggml_scales(kind, tile);
}

static inline __attribute__((always_inline)) void ggml_searched(const hc_ggml_kind *kind, bool has_levels,
                                                                bool weighted, const float *values, int present,
                                                                hc_ggml_tile *tile) {
    for (int lane = 0; lane < GROUPS; lane += LANES) {
        if (kind->has_minimum && !has_levels)
            ggml_fit_minimum(kind, weighted, lane, tile);
        else
            ggml_fit_signed(kind, has_levels, weighted, lane, tile);
    }
    if (kind->scale_bits == 0) {
        for (int g = 0; g < GROUPS; g++)
            tile->scale[g] = ggml_rounded(tile->scale[g]);
    } else {
        ggml_integers(kind, tile);
        ggml_sums(kind, has_levels, weighted, tile);
        ggml_refit(kind, tile);
    }
    ggml_codes(kind, has_levels, values, present, tile);
}

/* Encodes a loaded tile: fills tile->rows, ->scale and ->minimum, and for blocks ->d, ->e and ->small. */
static inline void ggml_encode_tile(const hc_ggml_kind *kind, bool weighted, const float *values, int present,
                                    hc_ggml_tile *tile) {
    if (GROUPS == 1) { /* the types without a search, as whoever chooses 1 sees to */
        ggml_plain(kind, values, present, tile);
    } else if (kind->has_levels) {
        ggml_searched(kind, true, weighted, values, present, tile);
    } else if (kind->scale_bits && weighted) {
        ggml_searched(kind, false, true, values, present, tile);
    } else if (kind->scale_bits) {
        ggml_searched(kind, false, false, values, present, tile);
    } else {
        ggml_plain(kind, values, present, tile);
    }
}

/* Packs n codes of one byte each to `bits` bits; n is a multiple of 8. */
static inline void ggml_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *out);

/* Stores the components other than codes of `present` groups from `first` on. */
static inline void ggml_store_factors(const hc_ggml_kind *kind, const hc_ggml_tile *tile, int64_t row, int64_t first,
                                      int present, const hc_components *out) {
    uint8_t *scales = hc_part(out, HC_SCALES, row);
    uint8_t *minima = kind->has_minimum ? (uint8_t *)hc_part(out, HC_MINIMA, row) : NULL;
    if (kind->scale_bits == 0) {
        for (int g = 0; g < present; g++) {
            hc_store_u16(scales + (first + g) * 2, lanes_to_f16(ggml_cut(tile->scale[g])));
            if (minima)
                hc_store_u16(minima + (first + g) * 2, lanes_to_f16(ggml_cut(tile->minimum[g])));
        }
        return;
    }
    const int per = kind->block / kind->group, bits = kind->scale_bits;
    for (int i = 0; i <= kind->has_minimum; i++) {
        uint8_t integers[GROUPS + 64];
        for (int g = 0; g < GROUPS; g++)
            integers[g] = (uint8_t)(int32_t)tile->small[i][g];
        ggml_pack(integers, present, bits, (i ? minima : scales) + first * bits / 8);
    }
    uint8_t *coarse = hc_part(out, HC_COARSE, row);
    for (int64_t block = 0; block < present / per; block++) {
        const int64_t place = first / per + block;
        hc_store_u16(coarse + (minima ? 2 * place : place) * 2, lanes_to_f16(tile->d[block]));
        if (minima)
            hc_store_u16(coarse + (2 * place + 1) * 2, lanes_to_f16(tile->e[block]));
    }
}

/* Whether float32 can hold every value of a row. */
static inline bool ggml_is_legal(const hc_float_rows *x, int64_t i, int64_t n) {
    if (x->dtype == HC_F32) { /* compared as integers, which compilers vectorize */
        const float *from = (const float *)x->data + i * x->row_stride;
        int32_t largest = 0;
        for (int64_t c = 0; c < n; c++) {
            const int32_t magnitude = (int32_t)(hc_f32_bits(from[c]) & INT32_MAX);
            largest = magnitude > largest ? magnitude : largest;
        }
        return largest < 0x7f800000;
    }
    bool legal = true;
    for (int64_t c = 0; c < n; c++)
        legal = legal && hc_is_legal(hc_row_value(x, i, c));
    return legal;
}

/* Values from column `first` on as float32; `copy` is memory for the conversion of float64. */
static inline const float *ggml_values(const hc_float_rows *x, int64_t i, int64_t first, int64_t n, float *copy) {
    if (x->dtype == HC_F32)
        return (const float *)x->data + i * x->row_stride + first;
    for (int64_t c = 0; c < n; c++)
        copy[c] = (float)hc_row_value(x, i, first + c);
    return copy;
}

/* As hc_encode_fn. */
static inline int64_t ggml_encode(const hc_ggml_kind *kind, const hc_geometry *geometry, const hc_float_rows *x,
                                  const hc_float_rows *weights, const hc_components *out) {
    const int n = kind->group, at_once = ggml_is_ternary(kind) ? 1 : GROUPS;
    int64_t illegal = HC_DONE;
    float copy[AT_ONCE], weight_copy[AT_ONCE];
    hc_ggml_tile tile;
    memset(tile.rows, 0, sizeof tile.rows);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        uint8_t *codes = hc_part(out, HC_CODES, row);
        if (!ggml_is_legal(x, i, geometry->padded) && illegal == HC_DONE)
            illegal = row;
        for (int64_t group = 0; group < geometry->groups; group += at_once) {
            if (group % (256 * at_once) == 0 && GGML_STOPS)
                return illegal;
            const int present = (int)hc_min(at_once, geometry->groups - group);
            const int64_t count = (int64_t)present * n;
            const float *values = ggml_values(x, i, group * n, count, copy);
            if (ggml_is_ternary(kind)) {
                ggml_ternary(kind, values, &tile);
            } else {
                ggml_load(values, weights ? ggml_values(weights, i, group * n, count, weight_copy) : NULL, n, present,
                          &tile);
                ggml_encode_tile(kind, weights != NULL, values, present, &tile);
            }
            if (GROUPS == 1 && illegal != HC_DONE) /* on a device, a row is a group */
                tile.scale[0] = NAN;
            ggml_pack(tile.rows, count, kind->bits, codes + group * n / 8 * kind->bits);
            ggml_store_factors(kind, &tile, row, group, present, out);
        }
    }
    return illegal;
}

#endif
