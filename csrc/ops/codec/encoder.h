/* Inside ops: how arrays become packed and back, for quantize, fake_quantize and the activations of products. */
#ifndef HC_ENCODER_H
#define HC_ENCODER_H

#include "formats/format.h"
#include "hc.h"
#include "ops/sparse/prune.h"

/* A checked encoding job: rows of a view (any strides, any float dtype) -> packed rows of one format. */
typedef struct {
    const hc_view *x, *importance; /* importance: NULL where all values count alike */
    hc_format format;
    const hc_format_ops *ops;
    hc_geometry geometry;
    hc_pruner pruner; /* of x, where the format keeps n of every m values: rows are then those of what is kept */
    int n_axes, axes[HC_MAX_DIMS];
    hc_clip clip;
    float threshold; /* of the whole array, where the format's scale is one for all of it */
    hc_encode_state state;
    const char *name, *argument; /* of the error sentences: "quantize", "w" */
} hc_encoder;

/* Checks everything, runs the passes that need the whole array (observe, finish), learns a codebook for all of it. x
 * and importance must outlive the encoder, which stays where it is and is freed whether this fails or not. */
hc_status hc_encoder_init(hc_encoder *encoder, const hc_run *run, const char *name, const char *argument,
                          const hc_view *x, const hc_view *importance, const hc_format *format, int n_axes,
                          const int *axes, const hc_clip *clip, hc_error *error);
void hc_encoder_free(hc_encoder *encoder);
/* Encodes rows [first_row, first_row + rows) into rows [0, rows) of `out` (shared parts whole), threaded. */
hc_status hc_encoder_rows(const hc_encoder *encoder, const hc_run *run, int64_t first_row, int64_t rows,
                          hc_components *out, hc_error *error);
/* How many rows there are to look at: none where they have no columns, of which there may be any number. */
int64_t hc_rows_with_values(const hc_encoder *encoder);
/* Writes the parts of `out` that all rows share, once for all rows. */
void hc_encoder_share(const hc_encoder *encoder, const hc_components *out);

/* Memory for the components of `rows` rows; hc_components_free takes what it got. */
hc_status hc_components_alloc(const hc_format *format, const hc_geometry *geometry, int64_t rows,
                              hc_components *components, hc_error *error);
void hc_components_free(hc_components *components);

/* The format's decoders, by the best kernel that this run's mask allows. Tiles as in base/packed.h. */
void hc_decode_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                    const hc_components *components, const hc_tile *tile, float *values, int64_t ld);
void hc_decode_int_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                        const hc_components *components, const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out);
void hc_decode_codes_tile(const hc_run *run, const hc_format *format, const hc_geometry *geometry,
                          const hc_components *components, const hc_tile *tile, const hc_code_tile *out);

#endif
