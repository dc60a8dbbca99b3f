/* The layers of transformers between matmuls, by the equations of kernels/layers/layers.h: every step rounded by itself.
 *
 *   sum over i   lane l of 16 has acc += term of i = l, l + 16, ..., ascending; lanes fold l with l + 8, + 4, + 2, + 1
 *
 * A block has one row, its first warp the sums of it.
 */
#include "cuda/layers/sums.h"

namespace {

enum { THREADS = 128 };

/* A value of the first warp to the whole block, which all threads call. */
static inline HC_DEVICE float to_all(float value) {
    float *shared = (float *)hc_shared();
    hc_barrier();
    if (threadIdx.x == 0)
        *shared = value;
    hc_barrier();
    return *shared;
}

/* The sum over a row of term(i), for all threads. */
template <typename function> static inline HC_DEVICE float sum_of(int64_t n, function term) {
    float sum = 0;
    if (threadIdx.x < 32) { /* both halves of the warp have the same */
        for (int64_t i = threadIdx.x % SUMS; i < n; i += SUMS)
            sum += term(i);
        sum = fold(sum);
    }
    return to_all(sum);
}

} // namespace

HC_KERNEL(hc_norm, hc_cuda_layer, 128) {
    const float *x = p.x + (int64_t)blockIdx.x * p.n;
    float *y = p.y + (int64_t)blockIdx.x * p.n;
    const float n = (float)p.n;
    const float mean = p.is_centered ? sum_of(p.n, [=](int64_t i) { return x[i]; }) / n : 0;
    const bool is_centered = p.is_centered;
    const float squares = sum_of(p.n, [=](int64_t i) {
        const float d = is_centered ? x[i] - mean : x[i];
        return d * d;
    });
    const float factor = 1.0f / sqrtf(squares / n + p.epsilon);
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) {
        float value = (is_centered ? x[i] - mean : x[i]) * factor;
        if (p.weight)
            value *= p.weight[i];
        if (p.bias)
            value += p.bias[i];
        y[i] = value;
    }
}

HC_KERNEL(hc_softmax, hc_cuda_layer, 128) {
    const float *x = p.x + (int64_t)blockIdx.x * p.n;
    float *y = p.y + (int64_t)blockIdx.x * p.n, largest = -INFINITY;
    if (threadIdx.x < 32) {
        for (int64_t i = threadIdx.x; i < p.n; i += 32)
            largest = x[i] > largest ? x[i] : largest;
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
            const float other = hc_f32_from_bits(hc_shuffle_xor(hc_f32_bits(largest), mask));
            largest = other > largest ? other : largest;
        }
    }
    largest = to_all(largest);
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        y[i] = exponential(x[i] - largest);
    hc_barrier(); /* what one thread wrote others sum */
    const float sum = sum_of(p.n, [=](int64_t i) { return y[i]; });
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        y[i] /= sum;
}

HC_KERNEL(hc_gate, hc_cuda_layer, 128) {
    const int64_t all = p.rows * p.n;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * THREADS) {
        const float x = p.x[i], at = p.is_gelu ? 1.5957691216f * (x + 0.044715f * x * x * x) : x;
        const float u = x / (1.0f + exponential(-at));
        p.y[i] = p.weight ? u * p.weight[i] : u;
    }
}

HC_KERNEL(hc_rope, hc_cuda_layer, 128) {
    const int64_t row = blockIdx.x, turn = row / p.repeat % p.turns * p.half;
    const int64_t step = p.pairs ? 2 : 1, apart = p.pairs ? 1 : p.half;
    const float *x = p.x + row * p.n;
    float *y = p.y + row * p.n;
    for (int64_t i = threadIdx.x; i < p.half; i += THREADS) {
        const float a = x[i * step], b = x[i * step + apart], c = p.weight[turn + i], s = p.bias[turn + i];
        y[i * step] = a * c - b * s;
        y[i * step + apart] = a * s + b * c;
    }
    for (int64_t i = 2 * p.half + threadIdx.x; i < p.n; i += THREADS)
        y[i] = x[i];
}
