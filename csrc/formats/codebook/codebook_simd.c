/* Learned codebooks, many values at a time; formats/codebook/codebook.c is the definition. */
#include "base/watch.h"
#include "formats/codebook/codebook.h"
#include "formats/levels.h"
#include "formats/simd/decode_elements.h"
#include "formats/simd/doubles.h"
#include "formats/simd/encode_rows.h"

#define HC_LAYER_WIDTH (LANES / 2) /* float64 in a register */
#include "formats/codebook/layer.h"

HC_CHUNK_VALUES(by_levels16, HC_BY_LEVELS16)
HC_CHUNK_VALUES(by_levels, HC_BY_LEVELS)

static inline hc_chunk_values_fn *chunk_values_of(hc_element_kind kind) {
    return kind == HC_BY_LEVELS16 ? by_levels16 : by_levels;
}

static inline void load_elements(const hc_format *format, const hc_components *components, int64_t row,
                                 hc_elements *elements) {
    elements->kind = format->bits <= 4 ? HC_BY_LEVELS16 : HC_BY_LEVELS;
    elements->unscaled = false;
    memset(elements->table, 0, 16 * sizeof *elements->table);
    memcpy(elements->table, hc_part(components, HC_CODEBOOK, row), sizeof *elements->table << format->bits);
}

static inline void load_scales(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               int64_t row, int64_t first_group, int64_t n, hc_elements *elements) {
    (void)geometry;
    elements->scale[0] = 1;
    if (format->group != 0)
        memcpy(elements->scale, (const float *)hc_part(components, HC_SCALES, row) + first_group,
               (size_t)n * sizeof *elements->scale);
}

static int64_t codebook_values(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                               const hc_tile *tile, float *values, int64_t ld) {
    return codebook_dim(format) > 1 ? HC_DECLINED : decode_values(format, geometry, components, tile, values, ld);
}

static int64_t codebook_codes(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                              const hc_tile *tile, const hc_code_tile *out) {
    return codebook_dim(format) > 1 ? HC_DECLINED : decode_codes(format, geometry, components, tile, out);
}

/* The largest float32 that is not above a midpoint: a float32 value is above both or above neither. */
static inline float threshold_of(double midpoint) {
    const float nearest = (float)midpoint;
    return (double)nearest > midpoint ? nextafterf(nearest, -INFINITY) : nearest;
}

enum { CHUNK_VALUES = 64 };

/* Codes of CHUNK_VALUES values: the number of thresholds below each value; 0 for NaN, which occurs in groups of
 * zeros. */
static inline __attribute__((always_inline)) void count_thresholds(const float *restrict v, const float *thresholds,
                                                                   int n, uint8_t *restrict codes) {
    int32_t above[CHUNK_VALUES] = {0};
    int j = 0;
    for (; j + 5 <= n; j += 5) { /* with steps of 5, few of the 2^b - 1 thresholds remain for the next loop */
        const float a = thresholds[j], b = thresholds[j + 1], c = thresholds[j + 2], d = thresholds[j + 3],
                    e = thresholds[j + 4];
        for (int i = 0; i < CHUNK_VALUES; i++)
            above[i] += (v[i] > a) + (v[i] > b) + (v[i] > c) + (v[i] > d) + (v[i] > e);
    }
    for (; j < n; j++)
        for (int i = 0; i < CHUNK_VALUES; i++)
            above[i] += v[i] > thresholds[j];
    for (int i = 0; i < CHUNK_VALUES; i++)
        codes[i] = (uint8_t)above[i];
}

static void nearest_codes(const float *v, int64_t n, const float *thresholds, int n_thresholds, uint8_t *codes) {
    for (int64_t i = 0; i < n; i += CHUNK_VALUES) {
        float last[CHUNK_VALUES] = {0};
        const float *from = v + i;
        if (n - i < CHUNK_VALUES)
            from = memcpy(last, from, (size_t)(n - i) * sizeof *last);
        count_thresholds(from, thresholds, n_thresholds, codes + i);
    }
}

/* The same of float64 and midpoints. */
static __attribute__((noinline)) void double_codes(const double *v, int64_t n, const double *midpoints, int n_midpoints,
                                                   uint8_t *codes) {
    for (int64_t i = 0; i < n; i += CHUNK_VALUES) {
        double last[CHUNK_VALUES] = {0};
        const double *from = v + i;
        int64_t above[CHUNK_VALUES] = {0};
        if (n - i < CHUNK_VALUES)
            from = memcpy(last, from, (size_t)(n - i) * sizeof *last);
        for (int j = 0; j < n_midpoints; j++)
            for (int k = 0; k < CHUNK_VALUES; k++)
                above[k] += from[k] > midpoints[j];
        for (int k = 0; k < CHUNK_VALUES; k++)
            codes[i + k] = (uint8_t)above[k];
    }
}

/* Whether a codebook is as learning makes it: only the largest level repeats. */
static inline bool is_plain_codebook(const float *codebook, int k) {
    int i = 1;
    while (i < k && codebook[i] > codebook[i - 1])
        i++;
    while (i < k && codebook[i] == codebook[i - 1])
        i++;
    return i == k;
}

typedef struct {
    double midpoints[HC_MAX_LEVELS];
    float thresholds[HC_MAX_LEVELS];
} hc_limits;

static inline void find_limits(const float *codebook, int k, hc_limits *limits) {
    hc_midpoints(codebook, k, limits->midpoints);
    for (int i = 0; i + 1 < k; i++)
        limits->thresholds[i] = threshold_of(limits->midpoints[i]);
}

/* A row in parts of PART values, whose codes are packed together. float32(x / s) of a float32 is one float32 division:
 * the float64 quotient of two float32 is at a midpoint only if it is exact. */
static bool encode_row(const hc_format *format, const hc_geometry *geometry, const hc_limits *limits, hc_values x,
                       hc_floats *floats, float *scales, uint8_t *out) {
    enum { PART = 1024 };
    const int n_thresholds = (1 << format->bits) - 1;
    const int64_t group = geometry->group;
    float v[PART + CHUNK_VALUES], scale = 0;
    uint8_t codes[PART + CHUNK_VALUES];
    for (int64_t first = 0; first < geometry->padded; first += PART) {
        const int64_t n = hc_min(PART, geometry->padded - first);
        if (first % (64 * PART) == 0 && hc_stopping())
            return true;
        const hc_values from = values_from(x, first);
        for (int64_t i = 0; format->group != 0 && i < n;) {
            if ((first + i) % group == 0) {
                scale = values_maximum(values_from(from, i), group, HC_ABSOLUTE, floats);
                if (!is_finite(scale))
                    return false;
                memcpy(scales++, &scale, sizeof scale);
            }
            const int64_t end = hc_min(n, i + group - (first + i) % group);
            const double by = scale != 0 ? (double)scale : (double)NAN; /* which makes the codes 0 */
            if (from.doubles)
                for (; i < end; i++)
                    v[i] = (float)(from.doubles[i] / by);
            else
                for (; i < end; i++)
                    v[i] = from.singles[i] / scale;
        }
        if (format->group == 0 && !is_finite(values_maximum(from, n, HC_ABSOLUTE, floats)))
            return false;
        if (format->group == 0 && from.doubles)
            double_codes(from.doubles, n, limits->midpoints, n_thresholds, codes);
        else
            nearest_codes(format->group != 0 ? v : from.singles, n, limits->thresholds, n_thresholds, codes);
        pack_bytes(codes, n, format->bits, out + first / 8 * format->bits);
    }
    return true;
}

static int64_t encode(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                      const hc_float_rows *x, const float *thresholds, const hc_components *out) {
    (void)thresholds;
    if (codebook_dim(format) > 1)
        return HC_DECLINED;
    const int k = 1 << format->bits;
    hc_limits limits;
    hc_floats floats;
    init_floats(HC_NEAREST, &floats);
    if (codebook_is_tensor(format) && !is_plain_codebook(state->shared, k))
        return HC_DECLINED;
    for (int64_t i = 0; i < x->rows && !codebook_is_tensor(format); i++)
        if (!is_plain_codebook(hc_part(out, HC_CODEBOOK, x->first_row + i), k))
            return HC_DECLINED;
    if (codebook_is_tensor(format))
        find_limits(state->shared, k, &limits);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->first_row + i;
        if (!codebook_is_tensor(format))
            find_limits(hc_part(out, HC_CODEBOOK, row), k, &limits);
        if (!encode_row(format, geometry, &limits, row_values(x, i), &floats,
                        format->group != 0 ? (float *)hc_part(out, HC_SCALES, row) : NULL, hc_part(out, HC_CODES, row)))
            return row;
    }
    return HC_DONE;
}

static void fill(hc_places *places, int t, const uint16_t *below, uint16_t *split) {
    fill_all_places(places, t, below, split);
}

static void learn(const hc_format *format, float *values, double *weights, int64_t n, void *scratch, float *codebook) {
    codebook_learn(format, values, weights, n, fill, scratch, codebook);
}

HC_DOUBLES(codebook_codes, true)

HC_SIMD_TABLE(codebook, .encode = encode, .learn = learn, .values = codebook_values, .doubles = doubles,
              .codes = codebook_codes);
