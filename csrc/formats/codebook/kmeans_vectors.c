/* Breathing k-means for vectors (Fritzke, arXiv 2006.15666), from seeds of k-means++ (Arthur, Vassilvitskii, SODA 2007).
 *   random   u = (SplitMix64, state 0 before the first number) >> 11, times 2^-53
 *   seeds    p_i = w_i, later w_i times the squared distance to the nearest seed; the first i whose prefix sum of p is
 *            above u sum(p), else the last with p_i > 0; none left: the seeds are all different vectors there are
 *   steps    every vector to its nearest centroid, the first of equals; centroid = float32(sum(w v) / sum(w)), an
 *            empty one stays; until no vector moves, or MAX_STEPS
 *   cycle    m centroids more, beside those of the largest errors; FEW_STEPS; the m of least use are removed, where the
 *            nearest to a removed one stays; FEW_STEPS; less error, or the centroids before and m - 1; 4 + k / 16 cycles
 * Up to MOST_STARTED vectors times centroids: the best of `starts` starts. Above SAMPLE vectors, cycles are for a sample
 * and steps on all follow. Distances and sums are float64, coordinates and vectors ascending. Memory: 20 bytes a vector.
 */
#include "formats/codebook/kmeans.h"

#include "base/watch.h"

#include <math.h>
#include <string.h>

enum {
    MAX_STEPS = 25,
    FEW_STEPS = 10,
    MIN_CYCLES = 4,
    CENTROIDS_PER_CYCLE = 16,
    MOST_ADDED = 5,
    SAMPLE = 1 << 14,
    MOST_STARTED = 1 << 16,
    LOOK = 4096 /* vectors between two looks at the watch */
};
enum { MOST_CENTROIDS = HC_MAX_CENTROIDS + MOST_ADDED };

/* What would be too large for the stack of a thread. */
typedef struct {
    double transposed[HC_MAX_VECTOR * MOST_CENTROIDS], sum[HC_MAX_VECTOR * MOST_CENTROIDS], total[MOST_CENTROIDS];
    float improved[HC_MAX_VECTOR * MOST_CENTROIDS], started[HC_MAX_VECTOR * MOST_CENTROIDS];
} vector_work;

/* Weighted vectors; near and member are those of the last assignment. */
typedef struct {
    const float *values;
    const double *weight;
    double *near;
    int32_t *member;
    int64_t n;
    int dim;
    vector_work *work;
} vector_cloud;

static double next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

void hc_transpose_centroids(const float *centroids, int dim, int k, double *transposed) {
    for (int d = 0; d < dim; d++)
        for (int c = 0; c < k; c++)
            transposed[d * k + c] = (double)centroids[c * dim + d];
}

static void distances_of(const double *transposed, int dim, int k, const double *vector, double *distance) {
    for (int c = 0; c < k; c++) {
        const double difference = vector[0] - transposed[c];
        distance[c] = difference * difference;
    }
    for (int d = 1; d < dim; d++)
        for (int c = 0; c < k; c++) {
            const double difference = vector[d] - transposed[d * k + c];
            distance[c] += difference * difference;
        }
}

/* The index of the least distance, the first of equals. */
static int least_of(const double *distance, int k) {
    double least[4] = {distance[0], distance[0], distance[0], distance[0]};
    int c = 0;
    for (; c + 4 <= k; c += 4)
        for (int lane = 0; lane < 4; lane++)
            least[lane] = distance[c + lane] < least[lane] ? distance[c + lane] : least[lane];
    for (; c < k; c++)
        least[0] = distance[c] < least[0] ? distance[c] : least[0];
    for (int lane = 1; lane < 4; lane++)
        least[0] = least[lane] < least[0] ? least[lane] : least[0];
    for (c = 0; c < k - 1 && distance[c] != least[0]; c++)
        ;
    return c;
}

int hc_nearest_centroid(const double *transposed, int dim, int k, const double *vector) {
    double distance[MOST_CENTROIDS];
    distances_of(transposed, dim, k, vector, distance);
    return least_of(distance, k);
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

/* Chooses up to k seeds; returns their number. Overwrites near. */
static int choose_seeds(const vector_cloud *cloud, int k, uint64_t *state, float *centroids) {
    const int dim = cloud->dim;
    double *p = cloud->near;
    memcpy(p, cloud->weight, (size_t)cloud->n * sizeof *p);
    for (int c = 0; c < k; c++) {
        const int64_t chosen = draw(p, cloud->n, next_random(state));
        if (chosen < 0)
            return c;
        memcpy(centroids + c * dim, cloud->values + chosen * dim, (size_t)dim * sizeof *centroids);
        double seed[HC_MAX_VECTOR], vector[HC_MAX_VECTOR] = {0};
        hc_transpose_centroids(centroids + c * dim, dim, 1, seed);
        if (hc_stopping())
            return c + 1;
        for (int64_t i = 0; i < cloud->n; i++) {
            load_vector(cloud->values, i, dim, vector);
            double distance = 0;
            for (int d = 0; d < dim; d++)
                distance += (vector[d] - seed[d]) * (vector[d] - seed[d]);
            distance *= cloud->weight[i];
            p[i] = c == 0 || distance < p[i] ? distance : p[i];
        }
    }
    return k;
}

/* Lloyd's iteration; returns the error, 0 if the call should end early. */
static double move_centroids(const vector_cloud *cloud, int k, int most_steps, float *centroids) {
    double *transposed = cloud->work->transposed, *sum = cloud->work->sum, *total = cloud->work->total;
    const int dim = cloud->dim;
    for (int64_t i = 0; i < cloud->n; i++)
        cloud->member[i] = -1;
    for (int step = 0;; step++) {
        bool moved = false;
        double error = 0, vector[HC_MAX_VECTOR] = {0}, distance[MOST_CENTROIDS];
        memset(sum, 0, (size_t)(k * dim) * sizeof *sum);
        memset(total, 0, (size_t)k * sizeof *total);
        hc_transpose_centroids(centroids, dim, k, transposed);
        for (int64_t i = 0; i < cloud->n; i++) {
            if (i % LOOK == 0 && hc_stopping()) {
                memset(cloud->member, 0, (size_t)cloud->n * sizeof *cloud->member); /* they are indices */
                return 0;
            }
            load_vector(cloud->values, i, dim, vector);
            distances_of(transposed, dim, k, vector, distance);
            const int nearest = least_of(distance, k);
            moved = moved || nearest != cloud->member[i];
            cloud->member[i] = nearest;
            error += cloud->near[i] = cloud->weight[i] * distance[nearest];
            total[nearest] += cloud->weight[i];
            for (int d = 0; d < dim; d++)
                sum[nearest * dim + d] += cloud->weight[i] * vector[d];
        }
        if (!moved || step == most_steps)
            return error;
        for (int c = 0; c < k; c++)
            for (int d = 0; total[c] > 0 && d < dim; d++)
                centroids[c * dim + d] = (float)(sum[c * dim + d] / total[c]) + 0.0f;
    }
}

/* What the error grows by if a centroid is removed, each alone. */
static void uses_of(const vector_cloud *cloud, int k, const double *transposed, double *use) {
    memset(use, 0, (size_t)k * sizeof *use);
    for (int64_t i = 0; i < cloud->n; i++) {
        double vector[HC_MAX_VECTOR] = {0}, distance[MOST_CENTROIDS];
        load_vector(cloud->values, i, cloud->dim, vector);
        distances_of(transposed, cloud->dim, k, vector, distance);
        const int nearest = least_of(distance, k);
        const double least = distance[nearest];
        distance[nearest] = INFINITY;
        use[nearest] += cloud->weight[i] * (distance[least_of(distance, k)] - least);
    }
}

/* The centroid of the least value that is neither removed nor, unless there is no other, frozen. */
static int least_left(const double *value, int k, const bool *removed, const bool *frozen) {
    int found = -1;
    for (int pass = 0; found < 0 && pass < 2; pass++)
        for (int c = 0; c < k; c++)
            if (!removed[c] && (pass == 1 || !frozen[c]) && (found < 0 || value[c] < value[found]))
                found = c;
    return found;
}

/* Removes m of k centroids. */
static void remove_useless(const vector_cloud *cloud, int k, int m, float *centroids) {
    double *transposed = cloud->work->transposed, use[MOST_CENTROIDS], distance[MOST_CENTROIDS];
    bool removed[MOST_CENTROIDS] = {false}, frozen[MOST_CENTROIDS] = {false};
    const bool none[MOST_CENTROIDS] = {false};
    const int dim = cloud->dim;
    hc_transpose_centroids(centroids, dim, k, transposed);
    uses_of(cloud, k, transposed, use);
    for (int i = 0; i < m; i++) {
        const int one = least_left(use, k, removed, frozen);
        double vector[HC_MAX_VECTOR] = {0};
        removed[one] = true;
        load_vector(centroids, one, dim, vector);
        distances_of(transposed, dim, k, vector, distance);
        frozen[least_left(distance, k, removed, none)] = true;
    }
    for (int c = 0, kept = 0; c < k; c++)
        if (!removed[c])
            memmove(centroids + kept++ * dim, centroids + c * dim, (size_t)dim * sizeof *centroids);
}

/* Adds m centroids beside those with the largest errors. */
static void add_beside(const vector_cloud *cloud, int k, int m, const double *errors, double offset, float *centroids) {
    bool taken[MOST_CENTROIDS] = {false};
    for (int i = 0; i < m; i++) {
        int top = -1;
        for (int c = 0; c < k; c++)
            if (!taken[c] && (top < 0 || errors[c] > errors[top]))
                top = c;
        taken[top] = true;
        for (int d = 0; d < cloud->dim; d++)
            centroids[(k + i) * cloud->dim + d] =
                (float)((double)centroids[top * cloud->dim + d] + (d % 2 ? -offset : offset));
    }
}

static void errors_of(const vector_cloud *cloud, int k, double *errors) {
    memset(errors, 0, (size_t)k * sizeof *errors);
    for (int64_t i = 0; i < cloud->n; i++)
        errors[cloud->member[i]] += cloud->near[i];
}

/* Cycles, after the steps that have this error; returns the error. */
static double improve_centroids(const vector_cloud *cloud, int k, double error, float *centroids) {
    float *trial = cloud->work->improved;
    double errors[MOST_CENTROIDS], weight = 0;
    const size_t size = (size_t)(k * cloud->dim) * sizeof *centroids;
    for (int64_t i = 0; i < cloud->n; i++)
        weight += cloud->weight[i];
    errors_of(cloud, k, errors);
    int m = k - 1 < MOST_ADDED ? k - 1 : MOST_ADDED;
    for (int cycle = 0; cycle < MIN_CYCLES + k / CENTROIDS_PER_CYCLE && m > 0 && error != 0; cycle++) {
        memcpy(trial, centroids, size);
        add_beside(cloud, k, m, errors, 0x1p-7 * sqrt(error / weight), trial);
        move_centroids(cloud, k + m, FEW_STEPS, trial);
        remove_useless(cloud, k + m, m, trial);
        const double found = move_centroids(cloud, k, FEW_STEPS, trial);
        if (found < error * (1 - 0x1p-12)) {
            memcpy(centroids, trial, size);
            errors_of(cloud, k, errors);
            error = found;
        } else {
            m--;
        }
    }
    return error;
}

/* Starts with further random numbers, of which the one with the least error remains. */
static void restart(const vector_cloud *cloud, int k, int starts, uint64_t state, double error, float *centroids) {
    float *trial = cloud->work->started;
    for (int i = 1; i < starts && cloud->n * k <= MOST_STARTED && error != 0; i++) {
        if (choose_seeds(cloud, k, &state, trial) < k)
            return; /* the call should end early */
        const double found = improve_centroids(cloud, k, move_centroids(cloud, k, MAX_STEPS, trial), trial);
        if (found < error) {
            memcpy(centroids, trial, (size_t)(k * cloud->dim) * sizeof *centroids);
            error = found;
        }
    }
}

static void or_ones(double *weight, int64_t n) {
    bool any = false;
    for (int64_t i = 0; i < n; i++)
        any = any || weight[i] > 0;
    for (int64_t i = 0; !any && i < n; i++)
        weight[i] = 1;
}

int64_t hc_kmeans_vectors_bytes(int64_t n, int dim) {
    return 2 * hc_round_up(n * 8, HC_CACHE_LINE) + hc_round_up(n * 4, HC_CACHE_LINE) + SAMPLE * (8 + 4 * (int64_t)dim) +
           (int64_t)sizeof(vector_work);
}

void hc_kmeans_vectors(const float *values, const double *weights, int64_t n, int dim, int k, int starts, void *scratch,
                       float *centroids) {
    memset(centroids, 0, (size_t)(k * dim) * sizeof *centroids);
    if (n == 0)
        return;
    double *weight = scratch, *near = (double *)(void *)((char *)scratch + hc_round_up(n * 8, HC_CACHE_LINE));
    int32_t *member = (int32_t *)(void *)((char *)near + hc_round_up(n * 8, HC_CACHE_LINE));
    double *some_weight = (double *)(void *)((char *)member + hc_round_up(n * 4, HC_CACHE_LINE));
    vector_work *work = (vector_work *)(void *)(some_weight + SAMPLE);
    float *some = (float *)(void *)(work + 1);
    for (int64_t i = 0; i < n; i++) {
        weight[i] = 0;
        for (int d = 0; weights && d < dim; d++)
            weight[i] += weights[i * dim + d];
    }
    or_ones(weight, n);
    const vector_cloud all = {values, weight, near, member, n, dim, work};
    vector_cloud cloud = all;
    if (n > SAMPLE) {
        for (int64_t i = 0; i < SAMPLE; i++) {
            const int64_t from = i * n / SAMPLE;
            memcpy(some + i * dim, values + from * dim, (size_t)dim * sizeof *some);
            some_weight[i] = weight[from];
        }
        or_ones(some_weight, SAMPLE);
        cloud = (vector_cloud){some, some_weight, near, member, SAMPLE, dim, work};
    }
    uint64_t state = 0;
    int used = choose_seeds(&cloud, k, &state, centroids);
    if (cloud.n < n && used < k) { /* all vectors may have more different ones than the sample */
        cloud = all;
        state = 0;
        used = choose_seeds(&cloud, k, &state, centroids);
    }
    if (used == 0)
        return;
    const double error = move_centroids(&cloud, used, MAX_STEPS, centroids);
    if (used == k && (cloud.n < n || n <= SAMPLE)) {
        restart(&cloud, k, starts, state, improve_centroids(&cloud, k, error, centroids), centroids);
        if (cloud.n < n)
            move_centroids(&all, k, MAX_STEPS, centroids);
    }
    for (int c = used; c < k; c++)
        memcpy(centroids + c * dim, centroids + (used - 1) * dim, (size_t)dim * sizeof *centroids);
}
