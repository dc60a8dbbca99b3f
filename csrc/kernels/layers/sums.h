/* What the layers share: sums in HC_SUMS accumulators, and exp in steps that every compiler vectorizes (layers.h). */
#ifndef HC_KERNELS_LAYERS_SUMS_H
#define HC_KERNELS_LAYERS_SUMS_H

#include "kernels/layers/layers.h"

#include <math.h>
#include <string.h>

static inline float hc_fold_sums(float acc[HC_SUMS]) {
    for (int half = HC_SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            acc[i] += acc[i + half];
    return acc[0];
}

static inline float hc_dot_16(int64_t n, const float *restrict a, const float *restrict b) {
    float acc[HC_SUMS] = {0};
    int64_t i = 0;
    for (; i + HC_SUMS <= n; i += HC_SUMS)
        for (int l = 0; l < HC_SUMS; l++)
            acc[l] += a[i + l] * b[i + l];
    for (int l = 0; l < n - i; l++)
        acc[l] += a[i + l] * b[i + l];
    return hc_fold_sums(acc);
}

static inline float hc_sum_16(int64_t n, const float *x) {
    float acc[HC_SUMS] = {0};
    int64_t i = 0;
    for (; i + HC_SUMS <= n; i += HC_SUMS)
        for (int l = 0; l < HC_SUMS; l++)
            acc[l] += x[i + l];
    for (int l = 0; l < n - i; l++)
        acc[l] += x[i + l];
    return hc_fold_sums(acc);
}

static inline float hc_power_of_two(int32_t exponent) { /* -126 to 127 */
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Below -104 all is 0, above 89 infinity; NaN stays. */
static inline float hc_exp(float x) {
    float t = x < -104.0f ? -104.0f : x;
    t = t > 89.0f ? 89.0f : t;
    const float whole = (t * 1.44269504f + 12582912.0f) - 12582912.0f; /* rint: 1.5 * 2^23 leaves no fraction */
    const float r = (t - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const int32_t n = (int32_t)(x == x ? whole : 0.0f), half = n >> 1;
    return p * hc_power_of_two(half) * hc_power_of_two(n - half);
}

static inline float hc_sigmoid_times(float x, float at) { return x / (1.0f + hc_exp(-at)); }

#endif
