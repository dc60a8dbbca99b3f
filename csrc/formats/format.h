/* The interface of a number format: one table of functions, its scalar definition, and one table of kernels per SIMD
 * set.
 *
 * A format gets rows (base/packed.h) and does not know axes, strides, threads or users. `check` names an invalid
 * parameter; all other functions are called with valid parameters only. One line in formats.def registers the format.
 * Data that several rows share are in a state that the passes fill:
 *
 *   for each pass { observe(rows) ...; finish(state) }   learn   share   encode(rows) ...
 */
#ifndef HC_FORMAT_H
#define HC_FORMAT_H

#include "base/form.h"
#include "base/packed.h"

/* The data that a format needs of the whole array before it encodes. */
typedef struct {
    float maximum; /* gathered by the passes: a running maximum, so that threads merge by maximum */
    float coarse;  /* computed from it by `finish` */
    float *shared; /* numbers of the whole array (`shared` below): scales, a codebook; each row writes its own */
    const hc_geometry *geometry; /* of the whole array */
    /* weights of the squared errors of the current rows, if the format uses weights; NULL: all 1 */
    const hc_float_rows *weights;
} hc_encode_state;

/* Encodes rows x->first_row .. into the same rows of `out`. thresholds: NULL (absmax), or one float32 T per group
 * instead of absmax, (x->rows, groups). Returns HC_DONE, or the first row with a NaN, an infinity or a value >= 2^128.
 * The codes of such a row are in range but meaningless; the scalar definition makes the scales NaN that depend on the
 * value, and the kernels of a device do not wait to find it. A SIMD kernel that does not support these parameters returns
 * HC_DECLINED before it writes anything. The scalar definition never declines. */
typedef int64_t hc_encode_fn(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                             const hc_float_rows *x, const float *thresholds, const hc_components *out);
/* One pass over the same rows before encoding; returns like encode, and may also decline. */
typedef int64_t hc_observe_fn(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                              const float *thresholds, hc_encode_state *state);
/* Values of a tile as float32, rounded once; `ld` in elements. HC_DONE or HC_DECLINED. */
typedef int64_t hc_decode_fn(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                             const hc_tile *tile, float *values, int64_t ld);
typedef int64_t hc_decode_f64_fn(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, double *values, int64_t ld);
typedef int64_t hc_decode_int_fn(const hc_format *format, const hc_geometry *geometry, const hc_components *components,
                                 const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out);
typedef int64_t hc_decode_codes_fn(const hc_format *format, const hc_geometry *geometry,
                                   const hc_components *components, const hc_tile *tile, const hc_code_tile *out);

/* The codebook of n values. Values and weights (NULL: all 1) may be overwritten. scratch: learn_bytes for n values,
 * aligned to a cache line. */
typedef void hc_learn_fn(const hc_format *format, float *values, double *weights, int64_t n, void *scratch,
                         float *codebook);

/* The values that share a learned codebook: a row or the whole array. */
typedef enum { HC_LEARN_NONE = 0, HC_LEARN_ROW, HC_LEARN_TENSOR } hc_learning;

/* Clipping: the threshold is taken over |x| or max(x, 0) of a group, or over |x| of the whole array (each group then
 * gets the same), or clip= is not supported by the format. */
typedef enum { HC_CLIP_NONE = 0, HC_CLIP_ABSOLUTE, HC_CLIP_POSITIVE, HC_CLIP_WHOLE } hc_clip_domain;

typedef struct {
    const char *name;        /* as in formats.def and in Python's `family` */
    const char *description; /* one line, for the tables */
    hc_status (*check)(const hc_format *format, hc_error *error);
    void (*layout)(const hc_format *format, const hc_geometry *geometry, hc_component_layout layout[HC_N_COMPONENTS]);
    /* false: groups have no scale of their own, and products with few vectors use 64 accumulators and one row scale.
     * true: they use 16 accumulators over the groups. NULL: true if the format has groups (hc_has_groups). */
    bool (*has_groups)(const hc_format *format);
    int (*passes)(const hc_format *format); /* NULL: 0 (hc_passes) */
    hc_observe_fn *observe;
    void (*finish)(const hc_format *format, int pass, hc_encode_state *state);
    /* Number of floats of state->shared; NULL: none. `share` writes the components that all rows share to `out`, before
     * encode. */
    int64_t (*shared)(const hc_format *format, const hc_geometry *geometry);
    void (*share)(const hc_format *format, const hc_geometry *geometry, const hc_encode_state *state,
                  const hc_components *out);
    /* Formats that learn a codebook, per row (into its part of `out`, before encode) or for all rows (into
     * state->shared). learn_values: writes the values of row i of x, at most learn_count, and returns their number.
     * weights has the layout of x, and is NULL if importance is NULL. */
    hc_learning (*learns)(const hc_format *format);
    int64_t (*learn_count)(const hc_format *format, const hc_geometry *geometry);
    int64_t (*learn_values)(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,
                            const hc_float_rows *importance, int64_t i, float *values, double *weights);
    int64_t (*learn_bytes)(const hc_format *format, int64_t n, bool weighted);
    hc_learn_fn *learn;
    /* Whether encoding minimizes squared errors that may be weighted (hc_encode_state); NULL: no. */
    bool (*weighs)(const hc_format *format);
    /* Values per code: groups and runs contain a multiple of it. Or values per block: only runs contain a multiple of
     * it. NULL: 1. */
    int (*unit)(const hc_format *format);
    /* Whether encode accepts a value; NULL: all except NaN, infinity and values that float32 rounds to 2^128
     * (hc_is_legal). */
    bool (*legal)(const hc_format *format, double value);
    hc_encode_fn *encode;
    hc_decode_fn *decode;
    hc_decode_f64_fn *decode_f64;
    /* Values as integers times scales: their form and, below, the integers themselves. Both are NULL if values do not
     * have this form (hc_integers_of). */
    void (*int_form)(const hc_format *format, hc_int_mode mode, hc_int_form *form);
    bool splits; /* int_form and decode_int know HC_INT_SPLIT */
    hc_decode_int_fn *decode_int;
    /* The minimum of each group of a row, if int_form has minima. */
    hc_row_floats_fn *minima;
    hc_decode_codes_fn *decode_codes;
    /* The format as data: used by products, searches, training and the models of hardware. NULL: unstated, and
     * functions that need it refuse the format. */
    void (*stored_form)(const hc_format *format, hc_stored_form *form);
    hc_clip_domain (*clip_domain)(const hc_format *format); /* NULL: HC_CLIP_NONE (hc_clip_domain_of) */
} hc_format_ops;

/* The kernels of a format for one SIMD set, in formats/<name>/<name>_simd.c. A kernel gives the bits of the scalar
 * definition, or declines; NULL if there is none. */
typedef struct {
    const char *isa; /* the SIMD set */
    uint32_t needs;  /* bits of base/cpu.h */
    hc_observe_fn *observe;
    hc_encode_fn *encode;
    hc_decode_fn *values;
    hc_decode_f64_fn *doubles; /* values as float64 */
    hc_decode_int_fn *integers;
    hc_decode_codes_fn *codes;
    hc_learn_fn *learn;
    hc_row_floats_fn *scales, *minima; /* of stored_form's row_scales; neither declines */
} hc_format_simd;

const hc_format_ops *hc_format_find(int32_t family); /* NULL: formats.def has no such family */

static inline bool hc_has_groups(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    return ops->has_groups ? ops->has_groups(format) : format->group != 0;
}
static inline int hc_passes(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    return ops->passes ? ops->passes(format) : 0;
}
static inline hc_clip_domain hc_clip_domain_of(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    return ops->clip_domain ? ops->clip_domain(format) : HC_CLIP_NONE;
}

/* The format as data, without its pattern; form->codes says if it is unstated. */
hc_stored_form hc_form_of(const hc_format *format);
/* True if sums of codes times float32 values can overflow before the scale is applied, or lose bits: scaled floats with 8
 * exponent bits, whose largest code is float32's, and own formats whose largest number is far from 1. Matmuls add their
 * values instead, for any number of rows. */
static inline bool hc_sums_of_codes_overflow(const hc_format *format) {
    const hc_stored_form form = hc_form_of(format);
    return (form.maximum > 0x1p64f || (form.maximum > 0 && form.maximum < 0x1p-32f)) &&
           (form.scale != HC_SCALE_NONE || form.second != HC_SECOND_NONE);
}
/* Fills c of all 4-bit codes, as float32. */
static inline void hc_form_fill_table(const hc_format *format, hc_stored_form *form) {
    for (uint32_t code = 0; hc_form_has_table(form) && code < 16; code++)
        form->table[code] = (float)form->level(format, code);
}

/* The kernels of a format, the best SIMD set first, NULL after the last. */
typedef const hc_format_simd *const *hc_simd_sets;
hc_simd_sets hc_format_simd_sets(int32_t family);
static inline bool hc_simd_runs(const hc_format_simd *set, uint32_t isa) { return (set->needs & ~isa) == 0; }

/* All kernels of all formats by number, for tests and tables: "encode_int" and its set; false past the end. */
bool hc_format_kernel(int number, const char **name, const hc_format_simd **set);

/* Checks the format, its layout, and those of its pattern. */
hc_status hc_format_legal(const hc_format *format, hc_error *error);
void hc_format_layout(const hc_format *format, const hc_geometry *geometry,
                      hc_component_layout layout[HC_N_COMPONENTS]);

/* Checks the format and the axes (distinct, in range, at least one), and fills the geometry. The error names what is
 * wrong. */
hc_status hc_format_geometry(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                             hc_geometry *geometry, hc_error *error);

/* The functions of a format. Every format has those that are named here.
 *
 *   HC_FORMAT_OPS(int, "uniform integers", .encode = int_encode);     defines hc_format_int
 */
#define HC_FORMAT_OPS(f, text, ...)                                                                                    \
    const hc_format_ops hc_format_##f = {.name = #f,                                                                   \
                                         .description = text,                                                          \
                                         .check = f##_check,                                                           \
                                         .layout = f##_layout,                                                         \
                                         .decode = f##_decode,                                                         \
                                         .decode_f64 = f##_decode_f64,                                                 \
                                         .decode_codes = f##_decode_codes,                                             \
                                         .stored_form = f##_stored_form,                                               \
                                         __VA_ARGS__}

#endif
