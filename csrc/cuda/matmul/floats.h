/* The sides of a float matmul (chains.h): rows of floats, and decoded rows. */
#ifndef HC_CUDA_FLOATS_H
#define HC_CUDA_FLOATS_H

#include "cuda/matmul/chains.h"

namespace {

struct floats {
    typedef hc_cuda_sgemm params;
    static HC_DEVICE int64_t steps_of_k(const params &p) { return p.k; }
    static HC_DEVICE bool is_there(float) { return true; }
    static HC_DEVICE bool has_pieces(const params &p) { return p.has_16; }
    template <int, int TURN> struct x {
        const params &p;
        const char *const from;
        const int left;
        HC_DEVICE x(const params &given, int64_t block, int own)
            : p(given), from(p.x.data + (block + own) * p.x.rows.stride[0]), left((int)(p.m - block) - own) {}
        HC_DEVICE bool is_there(int i, int k) const { return i * TURN < left && k < (int)p.k; }
        HC_DEVICE void copy(void *to, int i, int k) const {
            hc_copy_16_or_zeros(to, from + i * TURN * p.x.rows.stride[0] + k * (int64_t)sizeof(float), is_there(i, k));
        }
        HC_DEVICE float value(int i, int k) const {
            return is_there(i, k) ? ((const float *)(from + i * TURN * p.x.rows.stride[0]))[k] : 0;
        }
    };
    template <int, int TURN> struct w {
        const params &p;
        const float *const from;
        const int left;
        HC_DEVICE w(const params &given, int64_t block, int own)
            : p(given), from(p.w + (block + own) * p.k), left((int)(p.n - block - own)) {}
        HC_DEVICE bool is_there(int i, int k) const { return i * TURN < left && k < (int)p.k; }
        HC_DEVICE void copy(void *to, int i, int k) const {
            hc_copy_16_or_zeros(to, from + i * TURN * p.k + k, is_there(i, k));
        }
        HC_DEVICE float value(int i, int k) const { return is_there(i, k) ? from[i * TURN * p.k + k] : 0; }
    };
    template <int ROWS, int COLUMNS, int THREADS, int LD>
    static HC_DEVICE void store(const params &p, int64_t row, int64_t column, const float *y) {
        const int own = (int)threadIdx.x % COLUMNS;
        if (column + own >= p.n)
            return;
        const float bias = p.bias ? p.bias[column + own] : 0;
        char *to = p.y + row * p.y_row + (column + own) * p.y_column;
        HC_SHORT_LOOP
        for (int i = (int)threadIdx.x / COLUMNS; i < ROWS && row + i < p.m; i += THREADS / COLUMNS) {
            const float sum = y[i * LD + own];
            *(float *)(to + i * p.y_row) = p.bias ? sum + bias : sum;
        }
    }
};

} // namespace

#endif
