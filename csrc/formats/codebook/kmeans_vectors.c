/* Lloyd's iteration for vectors, from the seeds of k-means++ (Arthur and Vassilvitskii, SODA 2007).
 *
 *   random   u = (SplitMix64, state 0 before the first number) >> 11, times 2^-53
 *   seeds    p_i = w_i, later w_i times the squared distance to the nearest seed; the first i whose prefix sum of p is
 *            above u sum(p), else the last with p_i > 0; none left: the seeds are all different vectors there are
 *   steps    every vector to its nearest centroid, the first of equals; centroid = float32(sum(w v) / sum(w)), an
 *            empty one stays; until no vector moves, or MAX_STEPS
 * Distances and sums are float64, coordinates and vectors ascending. Memory: 20 bytes a vector.
 */
#include "formats/codebook/kmeans.h"

#include "base/watch.h"

#include <string.h>

enum { MAX_STEPS = 25, LOOK = 4096 /* vectors between two looks at the watch */ };

static double next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

int64_t hc_kmeans_vectors_bytes(int64_t n, int dim) {
    const int64_t centroids = (2 * dim + 1) * HC_MAX_CENTROIDS; /* transposed, their sums, their weights */
    return 2 * hc_round_up(n * 8, HC_CACHE_LINE) + hc_round_up(n * 4, HC_CACHE_LINE) + centroids * 8;
}

void hc_transpose_centroids(const float *centroids, int dim, int k, double *transposed) {
    for (int d = 0; d < dim; d++)
        for (int c = 0; c < k; c++)
            transposed[d * k + c] = (double)centroids[c * dim + d];
}

int hc_nearest_centroid(const double *transposed, int dim, int k, const double *vector) {
    double distance[HC_MAX_CENTROIDS];
    for (int c = 0; c < k; c++) {
        const double difference = vector[0] - transposed[c];
        distance[c] = difference * difference;
    }
    for (int d = 1; d < dim; d++)
        for (int c = 0; c < k; c++) {
            const double difference = vector[d] - transposed[d * k + c];
            distance[c] += difference * difference;
        }
    int found = 0;
    for (int c = 1; c < k; c++)
        found = distance[c] < distance[found] ? c : found;
    return found;
}

static void load_vector(const float *values, int64_t i, int dim, double *vector) {
    for (int d = 0; d < dim; d++)
        vector[d] = (double)values[i * dim + d];
}

/* Index of a vector drawn with probability p; -1 if all are 0. */
static int64_t draw(const double *p, int64_t n, double random) {
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        total += p[i];
    if (total == 0)
        return -1;
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        sum += p[i];
        if (sum > random * total)
            return i;
        last = p[i] > 0 ? i : last;
    }
    return last;
}

/* Chooses up to k seeds; returns their number. */
static int choose_seeds(const float *values, const double *weight, double *p, int64_t n, int dim, int k,
                        float *centroids) {
    uint64_t state = 0;
    memcpy(p, weight, (size_t)n * sizeof *p);
    for (int c = 0; c < k; c++) {
        const int64_t chosen = draw(p, n, next_random(&state));
        if (chosen < 0)
            return c;
        memcpy(centroids + c * dim, values + chosen * dim, (size_t)dim * sizeof *values);
        double seed[HC_MAX_VECTOR], vector[HC_MAX_VECTOR];
        hc_transpose_centroids(centroids + c * dim, dim, 1, seed);
        if (hc_stopping())
            return c + 1;
        for (int64_t i = 0; i < n; i++) {
            load_vector(values, i, dim, vector);
            double distance = 0;
            for (int d = 0; d < dim; d++)
                distance += (vector[d] - seed[d]) * (vector[d] - seed[d]);
            distance *= weight[i];
            p[i] = c == 0 || distance < p[i] ? distance : p[i];
        }
    }
    return k;
}

void hc_kmeans_vectors(const float *values, const double *weights, int64_t n, int dim, int k, void *scratch,
                       float *centroids) {
    memset(centroids, 0, (size_t)(k * dim) * sizeof *centroids);
    if (n == 0)
        return;
    double *weight = scratch, *p = (double *)(void *)((char *)scratch + hc_round_up(n * 8, HC_CACHE_LINE));
    int32_t *member = (int32_t *)(void *)((char *)p + hc_round_up(n * 8, HC_CACHE_LINE));
    double *transposed = (double *)(void *)((char *)member + hc_round_up(n * 4, HC_CACHE_LINE));
    double *sum = transposed + dim * HC_MAX_CENTROIDS, *total = sum + dim * HC_MAX_CENTROIDS;
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        weight[i] = weights ? 0 : 1;
        for (int d = 0; weights && d < dim; d++)
            weight[i] += weights[i * dim + d];
        any = any || weight[i] > 0;
        member[i] = -1;
    }
    for (int64_t i = 0; !any && i < n; i++)
        weight[i] = 1;
    const int used = choose_seeds(values, weight, p, n, dim, k, centroids);
    bool moved = used > 0;
    for (int step = 0; moved && step < MAX_STEPS; step++) {
        double vector[HC_MAX_VECTOR];
        memset(sum, 0, (size_t)(used * dim) * sizeof *sum);
        memset(total, 0, (size_t)used * sizeof *total);
        hc_transpose_centroids(centroids, dim, used, transposed);
        moved = false;
        for (int64_t i = 0; i < n; i++) {
            if (i % LOOK == 0 && hc_stopping())
                return;
            load_vector(values, i, dim, vector);
            const int nearest = hc_nearest_centroid(transposed, dim, used, vector);
            moved = moved || nearest != member[i];
            member[i] = nearest;
            total[nearest] += weight[i];
            for (int d = 0; d < dim; d++)
                sum[nearest * dim + d] += weight[i] * vector[d];
        }
        for (int c = 0; c < used; c++)
            for (int d = 0; total[c] > 0 && d < dim; d++)
                centroids[c * dim + d] = (float)(sum[c * dim + d] / total[c]) + 0.0f;
    }
    for (int c = used; used > 0 && c < k; c++)
        memcpy(centroids + c * dim, centroids + (used - 1) * dim, (size_t)dim * sizeof *centroids);
}
