/* The sides of a float matmul (chains.h): floats at any strides, and decoded rows. */
#ifndef HC_CUDA_FLOATS_H
#define HC_CUDA_FLOATS_H

#include "cuda/matmul/chains.h"

namespace {

struct floats {
    typedef hc_cuda_sgemm params;
    static HC_DEVICE int64_t steps_of_k(const params &p) { return p.k; }
    static HC_DEVICE bool is_there(float) { return true; }
    /* Rows of x beyond the last are zeros. Pieces that are not of 16 bytes are brought value by value. */
    template <int, int TURN> struct x {
        const params &p;
        const int64_t first;
        const char *const from;
        const int left;
        HC_DEVICE x(const params &given, int64_t block, int own)
            : p(given), first(block + own), from(p.x.data + first * p.x.rows.stride[0]), left((int)(p.m - first)) {}
        HC_DEVICE void copy(void *to, int i, int k) const {
            const int apart = i * TURN;
            const bool is_there = apart < left && k < (int)p.k;
            if (p.has_16)
                return hc_copy_16_or_zeros(to, from + apart * p.x.rows.stride[0] + k * (int64_t)sizeof(float),
                                           is_there);
            alignas(16) float values[4] = {};
            const char *row = p.x.data + (is_there ? hc_dims_offset(&p.x.rows, first + apart) : 0);
            for (int c = 0; c < 4 && is_there; c++)
                if (k + c < (int)p.k)
                    values[c] = hc_load_value(row + (k + c) * p.x.column_stride, p.x.dtype);
            hc_store_16(to, values);
        }
    };
    template <int, int TURN> struct w {
        const params &p;
        const float *const from;
        const int left;
        HC_DEVICE w(const params &given, int64_t block, int own)
            : p(given), from(p.w + (block + own) * p.k), left((int)(p.n - block - own)) {}
        HC_DEVICE void copy(void *to, int i, int k) const {
            const int apart = i * TURN;
            const bool is_there = apart < left && k < (int)p.k;
            const float *piece = from + apart * p.k + k;
            if ((int)p.k % 4 == 0)
                return hc_copy_16_or_zeros(to, piece, is_there);
            alignas(16) float values[4] = {};
            for (int c = 0; c < 4 && is_there; c++)
                if (k + c < (int)p.k)
                    values[c] = piece[c];
            hc_store_16(to, values);
        }
    };
    struct line {
        const params &p;
        const bool is_there;
        char *const y;
        HC_DEVICE line(const params &given, int64_t row) : p(given), is_there(row < p.m), y(p.y + row * p.y_row) {}
        HC_DEVICE void store(int64_t column, float sum) const {
            if (is_there && column < p.n)
                *(float *)(y + column * p.y_column) = p.bias ? sum + p.bias[column] : sum;
        }
    };
};

} // namespace

#endif
