/* Inside ops: an array that becomes packed, for quantize, fake_quantize and the activations of matmuls. */
#ifndef HC_ENCODING_H
#define HC_ENCODING_H

#include "formats/format.h"
#include "hc.h"
#include "ops/sparse/prune.h"

/* A checked encoding job: rows of a view (any strides, any float dtype) -> packed rows of one format. */
typedef struct {
    const hc_view *x, *importance; /* importance: NULL if all values have equal weight */
    hc_format format;
    const hc_format_ops *ops;
    hc_geometry geometry;
    hc_pruner pruner; /* of x, if the format keeps n of every m values: rows are then rows of nonzeros */
    int n_axes, axes[HC_MAX_DIMS];
    hc_clip clip;
    float threshold;         /* of the whole array, if the format has one scale for all of it */
    int64_t learn_row_bytes; /* memory to learn the codebook of a row, 0 if rows have none */
    hc_encode_state state;
    const char *name, *argument; /* for error messages: "quantize", "w" */
} hc_encoder;

/* Number of rows to read: 0 if rows have no columns, since the number of such rows is unlimited. */
static inline int64_t hc_rows_with_values(const hc_encoder *encoder) {
    return encoder->geometry.padded > 0 ? encoder->geometry.rows : 0;
}

#endif
