/* The contract of a number format: one table of functions, the scalar definition of the format.
 *
 * A format sees rows (base/packed.h) and nothing of axes, strides, threads or users. `check` says which parameter
 * is illegal; every other function is total: it is called with legal parameters only. One line in formats.def
 * makes the format known to everything. What several rows share lives in a state that the passes fill:
 *
 *   for each pass { observe(rows) ...; finish(state) }   encode(rows) ...
 */
#ifndef HC_FORMAT_H
#define HC_FORMAT_H

#include "base/packed.h"

/* Clipping: a threshold is taken over |x| or max(x, 0), or clip= is illegal for the format. */
typedef enum { HC_CLIP_NONE = 0, HC_CLIP_ABSOLUTE, HC_CLIP_POSITIVE } hc_clip_domain;

typedef struct {
    const char *name;        /* as in formats.def and in Python's `family` */
    const char *description; /* one line, for the tables */
    hc_status (*check)(const hc_format *format, hc_error *error);
    void (*layout)(const hc_format *format, const hc_geometry *geometry, hc_component_layout layout[HC_N_COMPONENTS]);
    /* Formats whose groups have no scale of their own use 64 accumulators and one row scale in products with few
     * vectors (false); those with groups use 16 accumulators over the groups (true). */
    bool (*has_groups)(const hc_format *format);
    int (*passes)(const hc_format *format);
    int64_t (*observe)(const hc_format *format, const hc_geometry *geometry, int pass, const hc_float_rows *x,
                       const float *thresholds, hc_encode_state *state); /* returns as encode does */
    void (*finish)(const hc_format *format, int pass, hc_encode_state *state);
    /* Which values encode takes; NULL: all but NaN, infinity and what float32 rounds to 2^128 (hc_is_legal). */
    bool (*legal)(const hc_format *format, double value);
    hc_encode_fn *encode;
    hc_decode_fn *decode;
    hc_decode_f64_fn *decode_f64;
    void (*int_form)(const hc_format *format, hc_int_mode mode, hc_int_form *form);
    hc_decode_int_fn *decode_int; /* NULL where int_form says unavailable for both modes */
    hc_decode_codes_fn *decode_codes;
    bool (*stored_form)(const hc_format *format, hc_stored_form *form); /* false, or NULL: not stored like that */
    hc_clip_domain (*clip_domain)(const hc_format *format);
    /* Values stand for themselves whatever their row (no row or group has a scale): a product takes any axis. NULL: no. */
    bool (*fits_any_axis)(const hc_format *format);
} hc_format_ops;

const hc_format_ops *hc_format_find(int32_t family); /* NULL: no such line */
int32_t hc_format_index(const char *name);           /* -1: none */

/* Fills geometry; an error names what overflows. */
hc_status hc_geometry_init(const hc_format *format, int64_t rows, int64_t runs, int64_t run_length,
                           hc_geometry *geometry, hc_error *error);

#endif
