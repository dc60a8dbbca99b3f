/* Optimal one-dimensional k-means: sort, then dynamic programming over the ends of clusters.
 *
 *   y = v - mean(v)     W, P = prefix sums of w and w y, values ascending
 *   gain_1(j) = P_j^2 / W_j     gain_t(j) = max_i gain_(t-1)(i) + (P_j - P_i)^2 / (W_j - W_i)    the smallest i of ties
 *
 * The gain is the reduction of the squared error around the mean by k centroids. The best i grows with j and with t. So
 * each layer is filled in strides of a descending power of two, and i is searched between the results of the two
 * neighbours. With more than MAX_EXACT different values, clusters end between BINS bins of equal count, and Lloyd's
 * iteration on all values follows. Memory: 4 bytes per value in addition to the value (24 with weights), 1/8 for prefix
 * sums, 40 + 2 k bytes for each of at most MAX_EXACT places.
 */
#include "formats/codebook/kmeans.h"

#include "base/convert.h"
#include "base/watch.h"

#include <string.h>

#define HC_LAYER_WIDTH 2 /* every machine has vectors of two float64 */
#include "formats/codebook/layer.h"

enum { MAX_EXACT = 1 << 16, BINS = 1 << 14, STEP = 64, MAX_LLOYD = 10000 };
enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS, PASSES = 3, FEW = 48 };

/* Converts bits of floats to integers of the same order, and back. */
static inline uint32_t key_of(float value) {
    const uint32_t bits = hc_f32_bits(value + 0.0f); /* -0 becomes +0 */
    return bits ^ ((uint32_t)-(int32_t)(bits >> 31) | 0x80000000u);
}
static inline float value_of(uint32_t key) { return hc_f32_from_bits(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu)); }

/* Bytes of the digit counts of n items, all passes together. */
static int64_t counts_bytes(int64_t n) { return n > FEW ? PASSES * RADIX * (int64_t)sizeof(int64_t) : 0; }

/* Stable radix sort by the bits from `low` on; the result is in `items`. */
#define DEFINE_SORT(NAME, TYPE, LOW)                                                                                   \
    static void NAME(TYPE *items, TYPE *spare, int64_t (*first)[RADIX], int64_t n) {                                   \
        if (n <= FEW) {                                                                                                \
            for (int64_t i = 1; i < n; i++) {                                                                          \
                const TYPE item = items[i];                                                                            \
                int64_t j = i;                                                                                         \
                for (; j > 0 && items[j - 1] >> (LOW) > item >> (LOW); j--)                                            \
                    items[j] = items[j - 1];                                                                           \
                items[j] = item;                                                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        memset(first, 0, (size_t)counts_bytes(n));                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                                \
            for (int pass = 0; pass < PASSES; pass++)                                                                  \
                first[pass][items[i] >> ((LOW) + pass * RADIX_BITS) & (RADIX - 1)]++;                                  \
        for (int pass = 0; pass < PASSES && !hc_stopping(); pass++) {                                                  \
            const int shift = (LOW) + pass * RADIX_BITS;                                                               \
            int64_t sum = 0;                                                                                           \
            for (int digit = 0; digit < RADIX; digit++) {                                                              \
                const int64_t count = first[pass][digit];                                                              \
                first[pass][digit] = sum;                                                                              \
                sum += count;                                                                                          \
            }                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                            \
                spare[first[pass][items[i] >> shift & (RADIX - 1)]++] = items[i];                                      \
            TYPE *other = items;                                                                                       \
            items = spare;                                                                                             \
            spare = other;                                                                                             \
        }                                                                                                              \
        memcpy(spare, items, (size_t)n * sizeof *items); /* three passes end in the other array */                     \
    }
DEFINE_SORT(sort_keys, uint32_t, 0)
DEFINE_SORT(sort_pairs, uint64_t, 32)

/* Sorted values with their prefix sums, of which only every STEP-th is kept. */
typedef struct {
    const float *values;
    const double *weights; /* NULL: all 1 */
    int64_t n;
    double mean;
    double *weight, *sum;
} hc_sorted;

int64_t hc_kmeans_bytes(int64_t n, int k, bool weighted) {
    const int64_t places = hc_min(n, MAX_EXACT) + 1 + PLACES;
    const int64_t sorting = weighted ? 2 * hc_round_up(n * 8, HC_CACHE_LINE) : n * 4;
    return hc_round_up(sorting, HC_CACHE_LINE) + counts_bytes(n) + 2 * hc_round_up((n / STEP + 1) * 8, HC_CACHE_LINE) +
           5 * hc_round_up(places * 8, HC_CACHE_LINE) + hc_round_up(places * hc_max(k - 2, 0) * 2, HC_CACHE_LINE);
}

static void *take(char **memory, int64_t bytes) {
    void *taken = *memory;
    *memory += hc_round_up(bytes, HC_CACHE_LINE);
    return taken;
}

/* Sorts, and removes values of weight 0. */
static hc_sorted sort_values(float *values, double *weights, int64_t n, char **memory) {
    hc_sorted sorted = {.values = values, .n = n};
    int64_t (*first)[RADIX] = take(memory, counts_bytes(n));
    if (!weights) {
        uint32_t *keys = (uint32_t *)(void *)values, *spare = take(memory, n * 4);
        for (int64_t i = 0; i < n; i++) {
            float value;
            memcpy(&value, &keys[i], sizeof value);
            const uint32_t key = key_of(value);
            memcpy(&keys[i], &key, sizeof key);
        }
        sort_keys(keys, spare, first, n);
        for (int64_t i = 0; i < n; i++) {
            const float value = value_of(keys[i]);
            memcpy(&keys[i], &value, sizeof value);
        }
        return sorted;
    }
    uint64_t *pairs = take(memory, n * 8), *spare = take(memory, n * 8);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (weights[i] > 0)
            pairs[kept++] = (uint64_t)key_of(values[i]) << 32 | (uint64_t)i;
    if (kept == 0)
        for (; kept < n; kept++) {
            weights[kept] = 1;
            pairs[kept] = (uint64_t)key_of(values[kept]) << 32 | (uint64_t)kept;
        }
    sort_pairs(pairs, spare, first, kept);
    double *ordered = (double *)(void *)spare;
    for (int64_t i = 0; i < kept; i++) {
        ordered[i] = weights[pairs[i] & 0xffffffffu];
        values[i] = value_of((uint32_t)(pairs[i] >> 32));
    }
    sorted.weights = ordered;
    sorted.n = kept;
    return sorted;
}

static inline double weight_at(const hc_sorted *sorted, int64_t i) { return sorted->weights ? sorted->weights[i] : 1; }

/* The weighted mean of values [first, last). */
static double mean_of(const hc_sorted *sorted, int64_t first, int64_t last) {
    double sum = 0, weight = 0;
    if (!sorted->weights) {
        for (int64_t i = first; i < last; i++)
            sum += (double)sorted->values[i];
        return sum / (double)(last - first);
    }
    for (int64_t i = first; i < last; i++) {
        sum += sorted->weights[i] * (double)sorted->values[i];
        weight += sorted->weights[i];
    }
    return sum / weight;
}

/* Prefix sums before value i. */
static inline void prefix_at(const hc_sorted *sorted, int64_t i, double *weight, double *sum) {
    *weight = sorted->weight[i / STEP];
    *sum = sorted->sum[i / STEP];
    for (int64_t j = i / STEP * STEP; j < i; j++) {
        *weight += weight_at(sorted, j);
        *sum += weight_at(sorted, j) * ((double)sorted->values[j] - sorted->mean);
    }
}

/* The prefix sums and the places: every change of value, or the ends of bins of equal count. */
static void find_places(hc_sorted *sorted, bool exact, hc_places *places) {
    const float *values = sorted->values;
    const int64_t n = sorted->n;
    int64_t last = 0, bin = 1;
    double weight = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % STEP == 0) {
            sorted->weight[i / STEP] = weight;
            sorted->sum[i / STEP] = sum;
        }
        if (i == 0 || (values[i] != values[i - 1] && (exact || i >= bin * n / BINS))) {
            places->position[last] = i;
            places->weight[last] = weight;
            places->sum[last++] = sum;
            while (bin * n / BINS <= i)
                bin++;
        }
        weight += weight_at(sorted, i);
        sum += weight_at(sorted, i) * ((double)values[i] - sorted->mean);
    }
    if (n % STEP == 0) {
        sorted->weight[n / STEP] = weight;
        sorted->sum[n / STEP] = sum;
    }
    places->position[last] = n;
    places->weight[last] = weight;
    places->sum[last] = sum;
    places->n = last;
    for (int64_t j = last + 1; j <= last + PLACES; j++)
        places->weight[j] = places->sum[j] = 0;
}

void hc_fill_layer(hc_places *places, int t, const uint16_t *below, uint16_t *split) {
    fill_all_places(places, t, below, split);
}

/* The ends of the k clusters of largest gain, as places; k <= places->n. False if the call should end early. */
static bool best_clusters(hc_places *places, int k, hc_fill_layer_fn *fill, int64_t *end) {
    const int64_t n = places->n, stride = n + 1;
    double ignored;
    for (int64_t j = 1; j <= n; j++)
        places->previous[j] = places->sum[j] * places->sum[j] / places->weight[j];
    for (int t = 2; t < k; t++) {
        if (hc_stopping())
            return false;
        fill(places, t, t > 2 ? places->split + (t - 3) * stride : NULL, places->split + (t - 2) * stride);
        double *filled = places->gain;
        places->gain = places->previous;
        places->previous = filled;
    }
    end[k - 1] = n;
    if (k > 1)
        end[k - 2] = best_split(places, k - 1, n - 1, n, &ignored);
    for (int t = k - 1; t > 1; t--)
        end[t - 2] = places->split[(t - 2) * stride + end[t - 1]];
    return true;
}

/* Number of values that are at most `limit`. */
static int64_t count_up_to(const hc_sorted *sorted, double limit) {
    int64_t low = 0, high = sorted->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((double)sorted->values[middle] <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lloyd's iteration from clusters that end before the values `end`, until nothing changes. */
static void lloyd(const hc_sorted *sorted, int k, int64_t *end) {
    double centroid[HC_MAX_CENTROIDS] = {0};
    bool changed = true;
    for (int step = 0; changed && step < MAX_LLOYD && !(step % 64 == 63 && hc_stopping()); step++) {
        double weight = 0, sum = 0;
        for (int c = 0; c < k; c++) {
            double next_weight, next_sum;
            prefix_at(sorted, end[c], &next_weight, &next_sum);
            if (next_weight > weight) /* an empty cluster keeps its centroid */
                centroid[c] = sorted->mean + (next_sum - sum) / (next_weight - weight);
            weight = next_weight;
            sum = next_sum;
        }
        changed = false;
        for (int c = 0; c + 1 < k; c++) {
            const int64_t count = count_up_to(sorted, (centroid[c] + centroid[c + 1]) / 2);
            changed = changed || count != end[c];
            end[c] = count;
        }
    }
}

void hc_kmeans(float *values, double *weights, int64_t n, int k, hc_fill_layer_fn *fill, void *scratch,
               float *centroids) {
    memset(centroids, 0, (size_t)k * sizeof *centroids);
    if (n == 0)
        return;
    char *memory = scratch;
    hc_sorted sorted = sort_values(values, weights, n, &memory);
    if (hc_stopping())
        return;
    sorted.mean = mean_of(&sorted, 0, sorted.n);
    sorted.weight = take(&memory, (sorted.n / STEP + 1) * 8);
    sorted.sum = take(&memory, (sorted.n / STEP + 1) * 8);
    int64_t different = 1;
    for (int64_t i = 1; i < sorted.n; i++)
        different += sorted.values[i] != sorted.values[i - 1];
    const bool exact = different <= MAX_EXACT;
    const int64_t room = hc_min(exact ? different : BINS, sorted.n) + 1 + PLACES;
    hc_places places = {.position = take(&memory, room * 8),
                        .weight = take(&memory, room * 8),
                        .sum = take(&memory, room * 8),
                        .gain = take(&memory, room * 8),
                        .previous = take(&memory, room * 8),
                        .split = (uint16_t *)(void *)memory};
    find_places(&sorted, exact, &places);
    const int used = (int)hc_min(k, places.n);
    int64_t end[HC_MAX_CENTROIDS] = {0};
    if (!best_clusters(&places, used, fill, end))
        return;
    for (int c = 0; c < used; c++)
        end[c] = places.position[end[c]];
    if (!exact)
        lloyd(&sorted, used, end);
    for (int c = 0, kept = -1; c < k; c++) {
        const int64_t first = c > 0 && c < used ? end[c - 1] : 0, last = c < used ? end[c] : 0;
        if (first < last) { /* a single value is its own centroid, without rounding */
            const bool alone = sorted.values[first] == sorted.values[last - 1];
            const double mean = alone ? (double)sorted.values[first] : mean_of(&sorted, first, last);
            centroids[++kept] = (float)mean + 0.0f;
        }
        if (c == k - 1)
            for (int rest = kept + 1; rest < k; rest++)
                centroids[rest] = centroids[kept];
    }
}
