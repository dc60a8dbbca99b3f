/* NF4, Dettmers et al., "QLoRA", NeurIPS 2023 (arXiv 2305.14314), section 3 and appendix E: 16 fixed levels, the
 * quantiles of a normal distribution, and one scale for a group.
 *
 *   s = absmax     code = the level nearest to x / s     value = float32(level * s)
 *
 * option[0]: double quantization. The scales of the whole array, row by row, are 8 bits each, 256 to a second scale:
 *   m = float32(mean of s)     d = float32(s - m)     t = absmax(256 of d) / 127     k = clip(RNE(d / t), -127, 127)
 *   value = float32(level * max(0, float32(k t + m)))
 */
#include "formats/nf4/nf4.h"

static hc_status nf4_check(const hc_format *format, hc_error *error) {
    if (format->bits != 4)
        return hc_fail(error, HC_VALUE, "format: nf4 has %d bits, expected 4", (int)format->bits);
    if (format->group < 1)
        return hc_fail(error, HC_VALUE, "format: nf4 has group %d, expected at least 1", (int)format->group);
    return HC_OK;
}

static void nf4_layout(const hc_format *format, const hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    layout[HC_CODES] = (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded, 4), 0}};
    layout[HC_SCALES] =
        (hc_component_layout){true, true, nf4_is_double(format) ? HC_I8 : HC_F32, 1, {geometry->groups, 0}};
    if (!nf4_is_double(format))
        return;
    const int64_t blocks = hc_ceil_div(geometry->rows * geometry->groups, NF4_BLOCK);
    layout[HC_COARSE] = (hc_component_layout){true, false, HC_F32, 1, {blocks, 0}};
    layout[HC_MEAN] = (hc_component_layout){true, false, HC_F32, 0, {0, 0}};
}

static hc_clip_domain nf4_clip_domain(const hc_format *format) {
    (void)format;
    return HC_CLIP_ABSOLUTE;
}

static int nf4_passes(const hc_format *format) { return nf4_is_double(format) ? 1 : 0; }

/* The scales of the whole array, then t of every block, then m. */
static int64_t nf4_shared(const hc_format *format, const hc_geometry *geometry) {
    const int64_t scales = geometry->rows * geometry->groups;
    return nf4_is_double(format) ? scales + hc_ceil_div(scales, NF4_BLOCK) + 1 : 0;
}

static int64_t nf4_observe(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                           const float *thresholds, hc_encode_state *state) {
    (void)format, (void)pass;
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        float *scales = state->shared + (x->first_row + i) * geometry->groups;
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const float absmax = hc_group_absmax(x, i, group * geometry->group, geometry->group, &legal);
            scales[group] = thresholds ? thresholds[i * geometry->groups + group] : absmax;
        }
        if (!legal && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

static void nf4_finish(const hc_format *format, int pass, hc_encode_state *state) {
    (void)format, (void)pass;
    const int64_t n = state->geometry->rows * state->geometry->groups, blocks = hc_ceil_div(n, NF4_BLOCK);
    float *scales = state->shared, *coarse = scales + n;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)scales[i];
    const float mean = n > 0 ? (float)(sum / (double)n) : 0;
    for (int64_t block = 0; block < blocks; block++) {
        float absmax = 0;
        for (int64_t i = block * NF4_BLOCK; i < hc_min(n, (block + 1) * NF4_BLOCK); i++)
            absmax = fmaxf(absmax, fabsf(scales[i] - mean));
        coarse[block] = absmax / 127.0f;
    }
    coarse[blocks] = mean;
}

static void nf4_share(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_components *out) {
    if (!nf4_is_double(format))
        return;
    const int64_t n = geometry->rows * geometry->groups, blocks = hc_ceil_div(n, NF4_BLOCK);
    if (blocks > 0)
        memcpy(hc_part(out, HC_COARSE, 0), state->shared + n, (size_t)blocks * sizeof(float));
    hc_store_f32(hc_part(out, HC_MEAN, 0), state->shared[n + blocks]);
}

/* The 8-bit scales of a row; `row` is its index in `out`, and the rows of `out` begin at row out->first_row of the
 * array. */
static void store_double(const hc_geometry *geometry, const hc_encode_state *state, int64_t row,
                         const hc_components *out) {
    const int64_t n = geometry->rows * geometry->groups, first = (out->first_row + row) * geometry->groups;
    const float mean = state->shared[n + hc_ceil_div(n, NF4_BLOCK)];
    int8_t *codes = hc_part(out, HC_SCALES, row);
    for (int64_t group = 0; group < geometry->groups; group++) {
        const double t = (double)state->shared[n + (first + group) / NF4_BLOCK];
        const float difference = state->shared[first + group] - mean;
        codes[group] = (int8_t)(t == 0 ? 0 : hc_quotient((double)difference, t, -127, 127));
    }
}

static int64_t nf4_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                          const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    const int64_t n = geometry->group;
    double midpoints[NF4_LEVELS - 1];
    hc_midpoints(NF4_LEVEL, NF4_LEVELS, midpoints);
    int64_t illegal = HC_DONE;
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
        uint8_t *scales = hc_part(out, HC_SCALES, row);
        bool legal = true;
        for (int64_t group = 0; group < geometry->groups; group++) {
            const float absmax = hc_group_absmax(x, i, group * n, n, &legal);
            const float scale = thresholds ? thresholds[i * geometry->groups + group] : absmax;
            if (!nf4_is_double(format))
                hc_store_f32(scales + group * 4, scale);
            /* a doubly quantized scale of 0 may decode to another value, and zeros must stay zero */
            const uint32_t of_zero = nf4_is_double(format) ? NF4_ZERO : 0;
            HC_EXACT_LOOP
            for (int64_t c = group * n; c < (group + 1) * n; c++)
                hc_write_bits(&codes,
                              scale == 0
                                  ? of_zero
                                  : hc_nearest_level(midpoints, NF4_LEVELS, hc_row_value(x, i, c) / (double)scale),
                              4);
        }
        hc_flush_bits(&codes);
        if (nf4_is_double(format))
            store_double(geometry, state, row, out);
        if (!legal && illegal == HC_DONE)
            illegal = row;
    }
    return illegal;
}

static float load_scale(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                        int64_t row, int64_t group) {
    const uint8_t *scales = hc_part(components, HC_SCALES, row);
    if (!nf4_is_double(format))
        return hc_load_f32(scales + group * 4);
    const int64_t block = ((components->first_row + row) * geometry->groups + group) / NF4_BLOCK;
    const float t = hc_load_f32((const uint8_t *)hc_part(components, HC_COARSE, 0) + block * 4);
    return nf4_double_scale((int8_t)scales[group], t, hc_load_f32(hc_part(components, HC_MEAN, 0)));
}

static int64_t nf4_decode(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                          const hc_tile *tile, float *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        hc_bit_reader codes = hc_bits_from(hc_part(components, HC_CODES, row), tile->first_column, 4);
        HC_FOR_GROUPS(tile, geometry) {
            const float scale = load_scale(format, geometry, components, row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = nf4_value(NF4_LEVEL, hc_next_bits(&codes, 4), scale);
        }
    }
    return HC_DONE;
}

static int64_t nf4_decode_f64(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              const hc_tile *tile, double *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)load_scale(format, geometry, components, row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] =
                    hc_scaled_level_f64(NF4_LEVEL[hc_read_bits(codes, tile->first_column + j, 4)], scale);
        }
    }
    return HC_DONE;
}

static int64_t nf4_decode_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                const hc_tile *tile, const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const int64_t row = tile->first_row + i;
        const uint8_t *codes = hc_part(components, HC_CODES, row);
        float *scales = out->scales + i * out->scales_ld;
        out->row_scale[i] = 1.0f;
        HC_FOR_GROUPS(tile, geometry) {
            *scales++ = load_scale(format, geometry, components, row, group);
            for (int64_t j = c; j < last; j++)
                out->codes[i * out->codes_ld + j] = NF4_LEVEL[hc_read_bits(codes, tile->first_column + j, 4)];
        }
    }
    return HC_DONE;
}

static void double_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                          int64_t row, float *scales) {
    for (int64_t group = 0; group < geometry->groups; group++)
        scales[group] = load_scale(format, geometry, components, row, group);
}

static double level_of(const hc_format *format, uint32_t code) {
    (void)format;
    return (double)NF4_LEVEL[code];
}

static void nf4_stored_form(const hc_format *format, hc_stored_form *form) {
    *form = (hc_stored_form){.bits = 4,
                             .codes = HC_CODES_TABLE,
                             .level = level_of,
                             .scale = nf4_is_double(format) ? HC_SCALE_DOUBLE : HC_SCALE_F32,
                             .row_scales = double_scales};
    hc_form_fill_table(format, form);
}

HC_FORMAT_OPS(nf4, "16 fixed levels, quantiles of a normal distribution, one scale for a group", .passes = nf4_passes,
              .observe = nf4_observe, .finish = nf4_finish, .shared = nf4_shared, .share = nf4_share,
              .encode = nf4_encode, .clip_domain = nf4_clip_domain);
