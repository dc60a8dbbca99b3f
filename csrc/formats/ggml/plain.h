/* The types without a search, with the bytes of ggml; formats/ggml/encode_blocks.h defines the lanes. */
#ifndef HC_GGML_PLAIN_H
#define HC_GGML_PLAIN_H

#include "formats/ggml/tile.h"

/* Codes in the order of the values. */
static inline __attribute__((always_inline)) void ggml_plain_codes(bool has_minimum, bool is_byte, float largest,
                                                                   const float *values, int n, int present,
                                                                   hc_ggml_tile *tile) {
    const lanes zero = lanes_of(0), half = lanes_of(0.5f), two = lanes_of(2), most = lanes_of(largest);
    for (int g = 0; g < present; g++) {
        const lanes least = lanes_of(tile->minimum[g]), inverse = lanes_of(tile->inverse[g]);
        /* H(d) = 0 for magnitudes of at most half of float16's smallest number */
        const lanes_mask used = lanes_above(lanes_abs(lanes_of(tile->scale[g])), lanes_of(0x1p-25f));
        HC_SHORT_LOOP
        for (int j = g * n; j < (g + 1) * n; j += LANES) {
            lanes q = ggml_counted(lanes_load(values + j));
            if (has_minimum) {
                q = lanes_trunc(lanes_add(lanes_mul(lanes_sub(q, least), inverse), half));
                q = lanes_min(lanes_max(q, zero), most);
            } else if (!is_byte) {
                q = lanes_trunc(lanes_add(lanes_mul(q, inverse), lanes_of(largest + 1.5f)));
                q = lanes_min(lanes_max(q, zero), lanes_of(largest + largest + 1));
                q = lanes_sub(q, lanes_of(largest + 1));
            } else {
                q = lanes_mul(q, inverse);
                const lanes magnitude = lanes_abs(q), whole = lanes_trunc(magnitude);
                lanes nearest = lanes_add(whole, lanes_trunc(lanes_mul(lanes_sub(magnitude, whole), two)));
                nearest = lanes_min(nearest, most);
                q = lanes_select(lanes_above(zero, q), lanes_sub(zero, nearest), nearest);
            }
            lanes_store_bytes(tile->rows + j, lanes_select(used, q, zero));
        }
    }
}

/* Factors and codes. The minimum is added, not subtracted. */
static inline void ggml_plain(const hc_ggml_kind *kind, const float *values, int present, hc_ggml_tile *tile) {
    const int n = kind->group;
    const float largest = (float)((1 << (kind->has_minimum ? kind->bits : kind->bits - 1)) - 1);
    const lanes zero = lanes_of(0), limit = lanes_of(65504);
    for (int lane = 0; lane < GROUPS; lane += LANES) {
        lanes low, high, d, least = zero;
        if (kind->has_minimum) {
            ggml_ends(tile, n, lane, &low, &high);
            least = lanes_max(lanes_min(low, limit), lanes_sub(zero, limit));
            d = lanes_div(lanes_sub(high, least), lanes_of(largest));
        } else if (kind->bits < 8) {
            d = lanes_div(ggml_largest(tile, n, lane), lanes_of(-(largest + 1)));
        } else {
            d = lanes_div(lanes_abs(ggml_largest(tile, n, lane)), lanes_of(largest));
        }
        d = lanes_max(lanes_min(d, limit), lanes_sub(zero, limit));
        lanes_store(&tile->scale[lane], d);
        lanes_store(&tile->minimum[lane], least);
        lanes_store(&tile->inverse[lane], lanes_ratio(lanes_of(1), d));
    }
    if (kind->has_minimum)
        ggml_plain_codes(true, false, largest, values, n, present, tile);
    else
        ggml_plain_codes(false, kind->bits == 8, largest, values, n, present, tile);
}

/* One group of -1, 0 and 1, which is larger than a tile. Its scale is its largest magnitude. */
static inline void ggml_ternary(const hc_ggml_kind *kind, const float *values, hc_ggml_tile *tile) {
    _Alignas(64) float each[LANES];
    lanes most = lanes_of(0);
    for (int j = 0; j < kind->group; j += LANES)
        most = lanes_max(lanes_abs(ggml_counted(lanes_load(values + j))), most);
    lanes_store(each, most);
    float d = each[0];
    for (int i = 1; i < LANES; i++)
        d = each[i] > d ? each[i] : d;
    tile->scale[0] = d > 65504 ? 65504 : d;
    tile->minimum[0] = 0;
    tile->inverse[0] = d != 0 ? 1 / tile->scale[0] : 0;
    ggml_plain_codes(false, true, 1, values, kind->group, 1, tile);
}

#endif
