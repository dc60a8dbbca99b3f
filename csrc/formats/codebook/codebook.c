/* Learned codebooks: 2^b centroids for a row or for the whole array (Deep Compression: Han, Mao, Dally, ICLR 2016,
 * arXiv 1510.00149, section 3), of single values or of d consecutive ones (product quantization).
 *
 *   v = x, or float32(x / s) with s = absmax of the group      centroids: formats/codebook/kmeans.h, of float32(v)
 *   code = the centroid nearest to v      value = centroid, or float32(centroid * s)
 *
 * option[0]: one codebook for the whole array. option[1]: d, 1, 2, 4 or 8; code i covers the columns from i d on.
 */
#include "formats/codebook/codebook.h"
#include "base/watch.h"
#include "formats/levels.h"

enum { LOOK = 8192 /* values between two looks at the watch; a multiple of each dim */ };

static int levels_of(const hc_format *format) { return 1 << format->bits; }

static hc_status codebook_check(const hc_format *format, hc_error *error) {
    const int dim = codebook_dim(format);
    if (format->bits < 1 || format->bits > 8)
        return hc_fail(error, HC_VALUE, "format: codebook has %d bits, expected 1 to 8", (int)format->bits);
    if (dim != 1 && dim != 2 && dim != 4 && dim != 8)
        return hc_fail(error, HC_VALUE, "format: codebook has dim %d, expected 1, 2, 4 or 8", dim);
    if (format->group < 0 || format->group % dim != 0)
        return hc_fail(error, HC_VALUE,
                       "format: codebook has group %d, expected a multiple of dim "
                       "%d, or 0 for none",
                       (int)format->group, dim);
    return HC_OK;
}

static void codebook_layout(const hc_format *format, const hc_geometry *geometry,
                            hc_component_layout layout[HC_N_COMPONENTS]) {
    const int dim = codebook_dim(format);
    layout[HC_CODES] =
        (hc_component_layout){true, true, HC_U8, 1, {hc_row_bytes(geometry->padded / dim, format->bits), 0}};
    if (format->group != 0)
        layout[HC_SCALES] = (hc_component_layout){true, true, HC_F32, 1, {geometry->groups, 0}};
    layout[HC_CODEBOOK] =
        (hc_component_layout){true, !codebook_is_tensor(format), HC_F32, dim > 1 ? 2 : 1, {levels_of(format), dim}};
}

static int codebook_unit(const hc_format *format) { return codebook_dim(format); }

static hc_learning codebook_learns(const hc_format *format) {
    return codebook_is_tensor(format) ? HC_LEARN_TENSOR : HC_LEARN_ROW;
}

static int64_t codebook_shared(const hc_format *format, const hc_geometry *geometry) {
    (void)geometry;
    return codebook_is_tensor(format) ? levels_of(format) * codebook_dim(format) : 0;
}

static void codebook_share(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                           const hc_components *out) {
    if (codebook_is_tensor(format))
        memcpy(hc_part(out, HC_CODEBOOK, 0), state->shared,
               (size_t)codebook_shared(format, geometry) * sizeof *state->shared);
}

/* Learning uses padding only if it shares a code with values. */
static int64_t codebook_learn_count(const hc_format *format, const hc_geometry *geometry) {
    return codebook_dim(format) == 1 ? geometry->columns : geometry->padded;
}

static int64_t learned_of_group(const hc_format *format, const hc_geometry *geometry, int64_t group) {
    if (codebook_dim(format) > 1 || geometry->padded == geometry->columns)
        return geometry->group;
    return hc_min(geometry->group, geometry->run_length - group % geometry->groups_per_run * geometry->group);
}

/* v of a column, if the group has a scale. */
static inline double normal_value(const hc_format *format, double x, float scale) {
    return format->group == 0 ? x : (double)(float)(x / (double)scale);
}

/* A group whose scale is 0 has no v: it decodes to 0 for every codebook, so its values must not influence the
 * centroids. */
static int64_t codebook_learn_values(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,
                                     const hc_float_rows *importance, int64_t i, float *values, double *weights) {
    int64_t count = 0;
    for (int64_t group = 0; group < geometry->groups; group++) {
        const int64_t first = group * geometry->group, n = learned_of_group(format, geometry, group);
        bool legal = true;
        const float scale = hc_group_absmax(x, i, first, geometry->group, &legal);
        if (!legal || (format->group != 0 && scale == 0)) /* an invalid value is reported when it is encoded */
            continue;
        for (int64_t c = 0; c < n; c++)
            values[count + c] = (float)normal_value(format, hc_row_value(x, i, first + c), scale);
        for (int64_t c = 0; importance && c < n; c++)
            weights[count + c] = hc_row_value(importance, i, first + c);
        count += n;
    }
    return count;
}

static int64_t codebook_learn_bytes(const hc_format *format, int64_t n, bool weighted) {
    return codebook_dim(format) == 1 ? hc_kmeans_bytes(n, levels_of(format), weighted)
                                     : hc_kmeans_vectors_bytes(n / codebook_dim(format), codebook_dim(format));
}

static void learn(const hc_format *format, float *values, double *weights, int64_t n, void *scratch, float *codebook) {
    codebook_learn(format, values, weights, n, hc_fill_layer, scratch, codebook);
}

/* Data to find the nearest centroid: midpoints of single values, or the transposed codebook, k values per
 * coordinate. */
typedef struct {
    int dim, k;
    union {
        double midpoints[HC_MAX_LEVELS];
        double transposed[8 * HC_MAX_LEVELS];
    };
} hc_search;

static void search_init(hc_search *search, const hc_format *format, const float *codebook) {
    search->dim = codebook_dim(format);
    search->k = levels_of(format);
    if (search->dim == 1)
        hc_midpoints(codebook, search->k, search->midpoints);
    else
        hc_transpose_centroids(codebook, search->dim, search->k, search->transposed);
}

static bool encode_row(const hc_format *format, const hc_geometry *geometry, const hc_search *search,
                       const hc_float_rows *x, int64_t i, const hc_components *out) {
    const int64_t row = x->first_row + i;
    hc_bit_writer codes = {hc_part(out, HC_CODES, row), 0, 0};
    bool legal = true;
    for (int64_t group = 0; group < geometry->groups; group++) {
        const int64_t first = group * geometry->group;
        const float scale = hc_group_absmax(x, i, first, geometry->group, &legal);
        if (format->group != 0)
            hc_store_f32((uint8_t *)hc_part(out, HC_SCALES, row) + group * 4, scale);
        const bool is_zero = format->group != 0 && scale == 0;
        for (int64_t c = first; c < first + geometry->group; c += search->dim) {
            if (c % LOOK == 0 && hc_stopping())
                return legal;
            uint32_t code = 0;
            if (search->dim == 1 && !is_zero) {
                code =
                    hc_nearest_level(search->midpoints, search->k, normal_value(format, hc_row_value(x, i, c), scale));
            } else if (!is_zero) {
                double vector[8];
                for (int d = 0; d < search->dim; d++)
                    vector[d] = normal_value(format, hc_row_value(x, i, c + d), scale);
                code = (uint32_t)hc_nearest_centroid(search->transposed, search->dim, search->k, vector);
            }
            hc_write_bits(&codes, code, format->bits);
        }
    }
    hc_flush_bits(&codes);
    return legal;
}

static int64_t codebook_encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                               const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    int64_t illegal = HC_DONE;
    hc_search search;
    if (codebook_is_tensor(format))
        search_init(&search, format, state->shared);
    for (int64_t i = 0; i < x->rows; i++) {
        if (!codebook_is_tensor(format))
            search_init(&search, format, hc_part(out, HC_CODEBOOK, x->first_row + i));
        if (!encode_row(format, geometry, &search, x, i, out) && illegal == HC_DONE)
            illegal = x->first_row + i;
    }
    return illegal;
}

/* A stored row, for reading. */
typedef struct {
    const uint8_t *codes, *scales;
    const float *codebook;
    int bits, dim;
} hc_stored_row;

static hc_stored_row stored_row(const hc_format *format, const hc_components *components, int64_t row) {
    return (hc_stored_row){.codes = hc_part(components, HC_CODES, row),
                           .scales = format->group ? hc_part(components, HC_SCALES, row) : NULL,
                           .codebook = hc_part(components, HC_CODEBOOK, row),
                           .bits = format->bits,
                           .dim = codebook_dim(format)};
}

static inline float level_at(const hc_stored_row *row, int64_t column) {
    const uint32_t code = hc_read_bits(row->codes, column / row->dim, row->bits);
    return hc_load_f32(row->codebook + (int64_t)code * row->dim + column % row->dim);
}

static float scale_at(const hc_stored_row *row, int64_t group) {
    return row->scales ? hc_load_f32(row->scales + group * 4) : 1.0f;
}

static int64_t codebook_decode(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, float *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const hc_stored_row row = stored_row(format, components, tile->first_row + i);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)scale_at(&row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = hc_scaled_level(level_at(&row, tile->first_column + j), scale);
        }
    }
    return HC_DONE;
}

static int64_t codebook_decode_f64(const hc_format *format, const hc_geometry *geometry,
                                   const hc_components *components, const hc_tile *tile, double *values, int64_t ld) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const hc_stored_row row = stored_row(format, components, tile->first_row + i);
        HC_FOR_GROUPS(tile, geometry) {
            const double scale = (double)scale_at(&row, group);
            for (int64_t j = c; j < last; j++)
                values[i * ld + j] = hc_scaled_level_f64(level_at(&row, tile->first_column + j), scale);
        }
    }
    return HC_DONE;
}

static int64_t codebook_decode_codes(const hc_format *format, const hc_geometry *geometry,
                                     const hc_components *components, const hc_tile *tile, const hc_code_tile *out) {
    for (int64_t i = 0; i < tile->rows; i++) {
        const hc_stored_row row = stored_row(format, components, tile->first_row + i);
        float *scales = row.scales ? out->scales + i * out->scales_ld : NULL;
        out->row_scale[i] = 1.0f;
        HC_FOR_GROUPS(tile, geometry) {
            if (scales)
                *scales++ = scale_at(&row, group);
            for (int64_t j = c; j < last; j++)
                out->codes[i * out->codes_ld + j] = level_at(&row, tile->first_column + j);
        }
    }
    return HC_DONE;
}

static void codebook_stored_form(const hc_format *format, hc_stored_form *form) {
    *form = (hc_stored_form){.bits = format->bits,
                             .codes = HC_CODES_LEARNED,
                             .code_values = codebook_dim(format),
                             .scale = format->group != 0 ? HC_SCALE_F32 : HC_SCALE_NONE,
                             .is_shared = codebook_is_tensor(format)};
}

HC_FORMAT_OPS(codebook, "learned codebooks, one for a row or the array: optimal k-means, product quantization",
              .shared = codebook_shared, .share = codebook_share, .learns = codebook_learns,
              .learn_count = codebook_learn_count, .learn_values = codebook_learn_values,
              .learn_bytes = codebook_learn_bytes, .learn = learn, .unit = codebook_unit, .encode = codebook_encode);
