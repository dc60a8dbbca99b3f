/* The layers of transformers between matmuls, by the equations of kernels/layers/layers.h.
 *
 *   sum over i   lane l of 16 has acc += term of i = l, l + 16, ..., ascending; lanes fold l with l + 8, + 4, + 2, + 1
 *
 * A block has one row, in shared memory if it fits there; its first warp has the sums of it.
 */
#include "cuda/layers/sums.h"

namespace {

enum { THREADS = 128 };

/* A row in shared memory, behind 16 bytes for a value of all threads, if it fits there: the sums of 16 lanes wait less. */
struct row_of {
    float *const shared;
    const int n;
    const bool is_valid;
    HC_DEVICE row_of(const hc_cuda_layer &p)
        : shared((float *)hc_shared()), n((int)p.n), is_valid(p.n <= HC_CUDA_LAYER_SHARED) {}
    HC_DEVICE float *values(float *else_at) const { return is_valid ? shared + 4 : else_at; }
    /* A value of one thread to all, which all call. */
    HC_DEVICE float to_all(float value) const {
        hc_barrier();
        if (threadIdx.x == 0)
            *shared = value;
        hc_barrier();
        return *shared;
    }
    /* The sum of term(value), for all threads. */
    template <typename function> HC_DEVICE float sum_of(const float *values, function term) const {
        float sum = 0;
        hc_barrier();                /* what one thread wrote others sum */
        if (threadIdx.x < HC_WARP) { /* both halves of the warp have the same */
#pragma unroll 4
            for (int i = (int)threadIdx.x % SUMS; i < n; i += SUMS)
                sum += term(values[i]);
            sum = fold(sum);
        }
        return to_all(sum);
    }
};

} // namespace

HC_KERNEL(hc_norm, hc_cuda_layer, 128) {
    const row_of row(p);
    const float *x = p.x + blockIdx.x * p.n;
    float *y = p.y + blockIdx.x * p.n;
    if (row.is_valid) {
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < row.n; i += THREADS)
            row.values(NULL)[i] = x[i];
        x = row.values(NULL);
    }
    const float n = (float)p.n;
    const float mean = p.is_centered ? row.sum_of(x, [](float value) { return value; }) / n : 0;
    const bool is_centered = p.is_centered;
    const float squares = row.sum_of(x, [=](float value) {
        const float d = is_centered ? value - mean : value;
        return d * d;
    });
    const float factor = 1.0f / sqrtf(squares / n + p.epsilon);
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < row.n; i += THREADS) {
        float value = (is_centered ? x[i] - mean : x[i]) * factor;
        if (p.weight)
            value *= p.weight[i];
        if (p.bias)
            value += p.bias[i];
        y[i] = value;
    }
}

HC_KERNEL(hc_softmax, hc_cuda_layer, 128) {
    const row_of row(p);
    const float *x = p.x + blockIdx.x * p.n;
    float *y = p.y + blockIdx.x * p.n, *e = row.values(y), largest = -INFINITY;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < row.n; i += THREADS)
        largest = larger(largest, x[i]);
    largest = larger_of_lanes(largest, 16);
    if (threadIdx.x % HC_WARP == 0)
        row.shared[threadIdx.x / HC_WARP] = largest;
    hc_barrier();
    largest = larger(larger(row.shared[0], row.shared[1]), larger(row.shared[2], row.shared[3]));
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < row.n; i += THREADS)
        e[i] = exponential(x[i] - largest);
    const float part = 1.0f / row.sum_of(e, [](float value) { return value; });
    HC_SHORT_LOOP
    for (int i = (int)threadIdx.x; i < row.n; i += THREADS)
        y[i] = e[i] * part;
}

HC_KERNEL(hc_gate, hc_cuda_layer, 128) {
    const int64_t all = p.rows * p.n;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * THREADS) {
        const float x = p.x[i], at = p.is_gelu ? 1.5957691216f * (x + 0.044715f * x * x * x) : x;
        const float u = x / (1.0f + exponential(-at));
        p.y[i] = p.weight ? u * p.weight[i] : u;
    }
}

/* A warp has a row. */
HC_KERNEL(hc_rope, hc_cuda_layer, 128) {
    const int64_t row = (int64_t)blockIdx.x * (THREADS / HC_WARP) + threadIdx.x / HC_WARP;
    if (row >= p.rows)
        return;
    const int64_t turn = (uint32_t)row / (uint32_t)p.repeat % (uint32_t)p.turns * p.half;
    const int lane = hc_lane(), half = (int)p.half, step = p.pairs ? 2 : 1, apart = p.pairs ? 1 : half;
    const float *x = p.x + row * p.n;
    float *y = p.y + row * p.n;
#pragma unroll 2
    for (int i = lane; i < half; i += HC_WARP) {
        const float a = x[i * step], b = x[i * step + apart], c = p.weight[turn + i], s = p.bias[turn + i];
        y[i * step] = a * c - b * s;
        y[i * step + apart] = a * s + b * c;
    }
    for (int i = 2 * half + lane; i < (int)p.n; i += HC_WARP)
        y[i] = x[i];
}
