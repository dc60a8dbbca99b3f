/* The sides of a float matmul (chains.h): rows of floats, and decoded rows. */
#ifndef HC_CUDA_FLOATS_H
#define HC_CUDA_FLOATS_H

#include "cuda/matmul/chains.h"

namespace {

struct floats {
    typedef hc_cuda_sgemm params;
    static HC_DEVICE int64_t steps_of_k(const params &p) { return p.k; }
    static HC_DEVICE bool is_valid(float) { return true; }
    /* Four values, on 16 bytes or not. */
    static HC_DEVICE void copy_of(const params &p, void *to, const float *from, bool is_valid, int k) {
        if (p.has_16)
            return hc_copy_16_or_zeros(to, from, is_valid);
        HC_SHORT_LOOP
        for (int c = 0; c < 4; c++)
            ((float *)to)[c] = is_valid && k + c < (int)p.k ? from[c] : 0;
    }
    template <int, int TURN> struct x {
        const params &p;
        const char *const from;
        const int left;
        HC_DEVICE x(const params &given, int64_t block, int own)
            : p(given), from(p.x.data + (block + own) * p.x.rows.stride[0]), left((int)(p.m - block) - own) {}
        HC_DEVICE void copy(void *to, int i, int k) const {
            copy_of(p, to, (const float *)(from + i * TURN * p.x.rows.stride[0]) + k, i * TURN < left && k < (int)p.k,
                    k);
        }
    };
    template <int, int TURN> struct w {
        const params &p;
        const float *const from;
        const int left;
        HC_DEVICE w(const params &given, int64_t block, int own)
            : p(given), from(p.w + (block + own) * p.k), left((int)(p.n - block) - own) {}
        HC_DEVICE void copy(void *to, int i, int k) const {
            copy_of(p, to, from + i * TURN * p.k + k, i * TURN < left && k < (int)p.k, k);
        }
    };
    template <int ROWS, int COLUMNS, int THREADS, int LD, int SPAN, int APART>
    static HC_DEVICE void store(const params &p, int64_t row, int64_t column, const float *y) {
        const int own = (int)threadIdx.x % COLUMNS;
        if (column + own >= p.n)
            return;
        const float bias = p.bias ? p.bias[column + own] : 0;
        char *to = p.y + row * p.y_row + (column + own) * p.y_column;
        HC_SHORT_LOOP
        for (int i = (int)threadIdx.x / COLUMNS; i < ROWS; i += THREADS / COLUMNS) {
            const int at = i / SPAN * APART + i % SPAN;
            const float sum = y[i * LD + own];
            if (row + at < p.m)
                *(float *)(to + at * p.y_row) = p.bias ? sum + bias : sum;
        }
    }
};

} // namespace

#endif
