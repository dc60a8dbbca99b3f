/* Shared by the layers of transformers: the exponential function, and sums of 16 lanes. */
#ifndef HC_CUDA_LAYERS_SUMS_H
#define HC_CUDA_LAYERS_SUMS_H

#include "cuda/codec.h"

namespace {

enum { SUMS = 16 };

/* e^x, as hc_exp of kernels/layers/sums.h. */
static inline HC_DEVICE float exponential(float x) {
    float t = x < -104.0f ? -104.0f : x;
    t = t > 89.0f ? 89.0f : t;
    const float whole = fmaf(t, 1.44269504f, 12582912.0f) - 12582912.0f;
    const float r = fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, t));
    float p = 1.4061316614970565e-3f;
    p = fmaf(p, r, 8.379030041396618e-3f);
    p = fmaf(p, r, 4.166477546095848e-2f);
    p = fmaf(p, r, 0.16666364669799805f);
    p = fmaf(p, r, 0.5000000596046448f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const int n = x == x ? (int)whole : 0, half = n >> 1;
    return p * hc_f32_from_bits((uint32_t)(half + 127) << 23) * hc_f32_from_bits((uint32_t)(n - half + 127) << 23);
}

/* Sums of 16 lanes, in each of them. */
static inline HC_DEVICE float fold(float sum) {
#pragma unroll
    for (int half = SUMS / 2; half > 0; half /= 2)
        sum = hc_shuffle_add(sum, half);
    return sum;
}

/* The larger one, NaN only if the first is; and that of lanes which differ in bits up to `most`. */
static inline HC_DEVICE float larger(float a, float b) { return b > a ? b : a; }
static inline HC_DEVICE float larger_of_lanes(float value, int most) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        if (mask <= most)
            value = larger(value, hc_f32_from_bits(hc_shuffle_xor(hc_f32_bits(value), mask)));
    return value;
}

} // namespace

#endif
