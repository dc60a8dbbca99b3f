/* The layers of transformers between matmuls, by the equations of kernels/layers/layers.h: every step rounded by itself.
 *
 *   sum over i   lane l of 16 has acc += term of i = l, l + 16, ..., ascending; lanes fold l with l + 8, + 4, + 2, + 1
 *
 * A block has one row, its first warp the sums of it; a block of attention has one query of one head.
 */
#include "cuda/codec.h"

namespace {

enum { SUMS = 16, KEYS = 64, THREADS = 128 };

/* e^x, as hc_exp of kernels/layers/sums.h. */
static inline HC_DEVICE float exponential(float x) {
    float t = x < -104.0f ? -104.0f : x;
    t = t > 89.0f ? 89.0f : t;
    const float whole = (t * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (t - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
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

/* Shared memory: scores of 64 keys, the maximum and the factor of a tile, the answer. */
HC_KERNEL(hc_attend, hc_cuda_attend, 128) {
    float *scores = (float *)hc_shared(), *shared = scores + KEYS, *answer = shared + 2;
    const int thread = (int)threadIdx.x, lane = thread % SUMS;
    const int64_t at = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, kv_head = head / (p.heads / p.kv_heads);
    const float *q = p.q + batch * p.q_step[0] + head * p.q_step[1] + at * p.q_step[2];
    const float *k = p.k + batch * p.k_step[0] + kv_head * p.k_step[1];
    const float *v = p.v + batch * p.v_step[0] + kv_head * p.v_step[1];
    float *out = p.out + batch * p.out_step[0] + head * p.out_step[1] + at * p.out_step[2];
    /* keys before this query, itself among them */
    const int64_t own = p.m - p.n + at + 1, last = p.causal ? own : p.m;
    const int64_t begin = p.window > 0 ? hc_max(0, own - p.window) : 0;
    float sum = 0, largest = -INFINITY; /* of the first warp */
    for (int64_t i = thread; i < p.width; i += THREADS)
        answer[i] = 0;
    for (int64_t key = begin / KEYS * KEYS; key < last; key += KEYS) {
        const int low = (int)hc_max(begin - key, 0), high = (int)hc_min(last - key, KEYS);
        hc_barrier(); /* what the last tile read may go */
        for (int first = 0; first < KEYS; first += THREADS / SUMS) {
            const int j = first + thread / SUMS;
            const bool is_seen = j >= low && j < high;
            const float *row = k + (key + j) * p.k_step[2];
            float dot = 0;
            for (int64_t i = lane; i < p.width && is_seen; i += SUMS)
                dot += q[i] * row[i];
            dot = fold(dot) * p.scale;
            if (p.cap > 0) {
                const float e = exponential(2.0f * (dot / p.cap)) + 1.0f;
                dot = p.cap * (1.0f - 2.0f / e);
            }
            if (lane == 0)
                scores[j] = is_seen ? dot : -INFINITY;
        }
        hc_barrier();
        if (thread < 32) {
            float most = largest;
            for (int j = thread; j < KEYS; j += 32)
                most = scores[j] > most ? scores[j] : most;
#pragma unroll
            for (int mask = 16; mask > 0; mask /= 2) {
                const float other = hc_f32_from_bits(hc_shuffle_xor(hc_f32_bits(most), mask));
                most = other > most ? other : most;
            }
            float part = 0;
            for (int j = lane; j < KEYS; j += SUMS) { /* both halves of the warp have the same */
                const float e = j >= low && j < high ? exponential(scores[j] - most) : 0;
                part += e;
            }
            const float factor = exponential(largest - most);
            sum = sum * factor + fold(part);
            largest = most;
            if (thread == 0)
                shared[0] = most, shared[1] = factor;
        }
        hc_barrier();
        const float most = shared[0], factor = shared[1];
        if (thread < KEYS)
            scores[thread] = thread >= low && thread < high ? exponential(scores[thread] - most) : 0;
        hc_barrier();
        for (int64_t i = thread; i < p.width; i += THREADS) {
            float acc = answer[i] * factor;
            for (int j = low; j < high; j++)
                acc += scores[j] * v[(key + j) * p.v_step[2] + i];
            answer[i] = acc;
        }
    }
    hc_barrier();
    if (thread == 0)
        shared[0] = sum;
    hc_barrier();
    for (int64_t i = thread; i < p.width; i += THREADS)
        out[i] = answer[i] / shared[0];
}
