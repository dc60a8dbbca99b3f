/* The body of attention over a tile of keys: kernels/layers/layers.h. A file for each instruction set compiles it. Before it,
 * the file may define HC_DOTS keys that its hc_dots multiplies at once: hc_dot_16 of each, their sums folded together. */
#include "kernels/layers/sums.h"

/* answer = answer * factor + sum_j p_j v_j, j ascending; n values, n <= 64, kept in registers over the keys. */
static inline void hc_attend_values(int64_t n, int64_t low, int64_t high, const float *p, const float *v, int64_t ld,
                                    float factor, float *restrict answer) {
    enum { WIDE = 64 };
    if (n == WIDE) {
        float acc[WIDE];
        for (int i = 0; i < WIDE; i++)
            acc[i] = answer[i] * factor;
        for (int64_t j = low; j < high; j++)
            for (int i = 0; i < WIDE; i++)
                acc[i] += p[j] * v[j * ld + i];
        memcpy(answer, acc, sizeof acc);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        answer[i] *= factor;
    for (int64_t j = low; j < high; j++)
        for (int64_t i = 0; i < n; i++)
            answer[i] += p[j] * v[j * ld + i];
}

/* The largest of HC_KEYS values and of one more; NaN never is. */
static inline float hc_largest(const float *s, float than) {
    const hc_floats zero = {0};
    hc_floats most = zero + than;
    for (int i = 0; i < HC_KEYS; i += HC_FLOATS) {
        const hc_floats some = *(const hc_floats *)(s + i);
        most = hc_select(some > most, some, most);
    }
    for (int i = 0; i < HC_FLOATS; i++)
        than = most[i] > than ? most[i] : than;
    return than;
}

/* The scores of row r, s, become what its values are weighted with. Returns the factor of the answer so far. */
static inline float hc_attend_weights(const hc_attend *some, int64_t r, float s[HC_KEYS]) {
    const int64_t low = some->low[r], high = some->high[r];
    for (int64_t j = 0; j < low; j++)
        s[j] = -INFINITY; /* what this row does not see */
    for (int64_t j = high; j < HC_KEYS; j++)
        s[j] = -INFINITY;
    for (int64_t j = low; j < high; j++)
        s[j] *= some->scale;
    if (some->cap > 0)
        hc_cap(high - low, some->cap, s + low);
    const float largest = hc_largest(s, some->largest[r]);
    hc_exp_below(HC_KEYS, s, largest, s);
    for (int64_t j = 0; j < low; j++)
        s[j] = 0;
    for (int64_t j = high; j < HC_KEYS; j++)
        s[j] = 0;
    float factor = some->largest[r];
    hc_exp_below(1, &factor, largest, &factor);
    some->sum[r] = some->sum[r] * factor + hc_sum_16(HC_KEYS, s);
    some->largest[r] = largest;
    return factor;
}

static inline void hc_attend_body(const hc_attend *some) {
    const hc_attend_keys *k = &some->k, *v = &some->v;
    for (int64_t r = 0; r < some->rows; r++) {
        const int64_t low = some->low[r], high = some->high[r];
        if (low >= high)
            continue;
        const float *q = some->q + r * some->q_ld;
        float s[HC_KEYS];
        int64_t j = low;
#ifdef HC_DOTS
        for (; j + HC_DOTS <= high; j += HC_DOTS)
            hc_dots(some->width, q, k->data + j * k->ld, k->ld, s + j);
#endif
        for (; j < high; j++)
            s[j] = hc_dot_16(some->width, q, k->data + j * k->ld);
        const float factor = hc_attend_weights(some, r, s);
        float *answer = some->answer + r * some->width;
        for (int64_t i = 0; i < some->width; i += 64)
            hc_attend_values(hc_min(some->width - i, 64), low, high, s, v->data + i, v->ld, factor, answer + i);
    }
}
