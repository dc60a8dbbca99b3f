/* The options of learned codebooks by name. */
#ifndef HC_CODEBOOK_H
#define HC_CODEBOOK_H

#include "formats/codebook/kmeans.h"
#include "formats/format.h"

static inline bool codebook_is_tensor(const hc_format *format) { return format->option[0] != 0; }
static inline int codebook_dim(const hc_format *format) { return format->option[1]; }

/* Learns with the layer function of a SIMD set. */
static inline void codebook_learn(const hc_format *format, float *values, double *weights, int64_t n,
                                  hc_fill_layer_fn *fill, void *scratch, float *codebook) {
    const int dim = codebook_dim(format), k = 1 << format->bits;
    if (dim == 1)
        hc_kmeans(values, weights, n, k, fill, scratch, codebook);
    else
        hc_kmeans_vectors(values, weights, n / dim, dim, k, codebook_is_tensor(format) ? 2 : 1, scratch, codebook);
}

#endif
