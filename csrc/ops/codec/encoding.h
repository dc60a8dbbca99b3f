/* Inside ops: an array that becomes packed, for quantize, fake_quantize and the activations of products. */
#ifndef HC_ENCODING_H
#define HC_ENCODING_H

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
    float threshold;         /* of the whole array, where the format's scale is one for all of it */
    int64_t learn_row_bytes; /* what learning the codebook of a row takes, 0 where rows have none */
    hc_encode_state state;
    const char *name, *argument; /* of the error sentences: "quantize", "w" */
} hc_encoder;

/* How many rows there are to look at: none where they have no columns, of which there may be any number. */
static inline int64_t hc_rows_with_values(const hc_encoder *encoder) {
    return encoder->geometry.padded > 0 ? encoder->geometry.rows : 0;
}

#endif
