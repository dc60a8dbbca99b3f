/* Codebooks of least squared error for the formats that learn one: optimal one-dimensional k-means, and
 * breathing k-means for vectors. Equal to heterocompute/reference/kmeans.py bit for bit.
 */
#ifndef HC_KMEANS_H
#define HC_KMEANS_H

#include "formats/codebook/places.h"

enum { HC_MAX_CENTROIDS = 256, HC_MAX_VECTOR = 8 };

/* Layers with vectors of two float64, which every machine has. */
hc_fill_layer_fn hc_fill_layer;

/* Bytes of scratch for n values and at most k centroids. */
int64_t hc_kmeans_bytes(int64_t n, int k, bool weighted);
/* k ascending centroids of n finite values. If there are fewer different values, the other centroids repeat the
 * largest. values: sorted in place. weights: NULL, or n < 2^32 finite numbers >= 0, which are overwritten; if all are 0
 * they count as 1. */
void hc_kmeans(float *values, double *weights, int64_t n, int k, hc_fill_layer_fn *fill, void *scratch,
               float *centroids);

/* k centroids of n vectors of dim values each, (n, dim) -> (k, dim). If there are fewer different
 * vectors, the other centroids repeat the last. weights: NULL, or one per value; the weight of a vector is
 * the sum of its weights. */
int64_t hc_kmeans_vectors_bytes(int64_t n, int dim);
void hc_kmeans_vectors(const float *values, const double *weights, int64_t n, int dim, int k, int starts, void *scratch,
                       float *centroids);
/* Index of the nearest centroid, the first if several are equally near. Centroids are transposed: k values per
 * coordinate. */
void hc_transpose_centroids(const float *centroids, int dim, int k, double *transposed);
int hc_nearest_centroid(const double *transposed, int dim, int k, const double *vector);

#endif
