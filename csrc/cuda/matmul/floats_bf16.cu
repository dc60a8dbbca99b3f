/* Floats times decoded weights on the matrix units, in the device's own order of sums, which a caller asks for.
 *
 *   x = x_h + x_l + e, w = w_h + w_l + f     both parts bfloat16, |e| <= 2^-16 |x|, |f| <= 2^-16 |w|
 *   y = sum of x_l w_h + x_h w_l + x_h w_h
 *
 * Error: (3 * 2^-16 + 3 k 2^-22) sum |x| |w|, where the first term is what the parts leave out, and the second that of 3 k
 * additions whose relative error is at most 2^-22. Values below 2^-118 lose their low part. A block computes 64 x 64, a warp
 * 32 x 32; 32 columns of k go through shared memory at a time (swizzle.h): x high, x low, w high, w low.
 */
#include "cuda/codec.h"
#include "cuda/matmul/swizzle.h"

namespace {

enum { TILE = 64, K = 32, PIECES = K / 8, SIDE_BYTES = TILE * K * 2, THREADS = 128 };

/* The nearest bfloat16, ties to even; what is too large is infinite. */
static inline HC_DEVICE uint32_t nearest(float value) {
    const uint32_t bits = hc_f32_bits(value);
    return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Two neighbouring values to their place in both matrices of a side. */
static inline HC_DEVICE void split(unsigned char *side, int place, const float (&values)[2]) {
    uint32_t high[2], low[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        high[i] = nearest(values[i]);
        const float rest = values[i] - hc_f32_from_bits(high[i] << 16);
        low[i] = (high[i] & 0x7f80) == 0x7f80 ? 0 : nearest(rest); /* an infinite value has no rest */
    }
    *(uint32_t *)(side + place) = high[0] | high[1] << 16;
    *(uint32_t *)(side + SIDE_BYTES + place) = low[0] | low[1] << 16;
}

} // namespace

HC_KERNEL(hc_gemm_bf16, hc_cuda_sgemm, 128) {
    unsigned char *x = hc_shared(), *w = x + 2 * SIDE_BYTES;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    const int64_t row = (int64_t)blockIdx.x * TILE, column = (int64_t)blockIdx.y * TILE;
    const int x_own = hc_piece_place<PIECES>(lane % 16, lane / 16);
    const int w_own = hc_piece_place<PIECES>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    float sums[2][4][4] = {};
    for (int64_t k = 0; k < p.k; k += K) {
        hc_barrier();
        for (int i = thread; i < TILE * K / 2; i += THREADS) {
            const int line = i / (K / 2), pair = i % (K / 2);
            const int64_t x_row = row + line, w_row = column + line;
            float x_values[2], w_values[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int64_t at = k + pair * 2 + c;
                x_values[c] =
                    at < p.k && x_row < p.m ? hc_load_value(p.x.data + hc_rows_offset(&p.x, x_row, at), p.x.dtype) : 0;
                w_values[c] = at < p.k && w_row < p.n ? p.w[w_row * p.k + at] : 0;
            }
            const int place = hc_piece_place<PIECES>(line, pair / 4) + pair % 4 * 4;
            split(x, place, x_values);
            split(w, place, w_values);
        }
        hc_barrier();
#pragma unroll
        for (int s = 0; s < K; s += 16) {
            uint32_t a[2][2][4], b[2][2][4]; /* by part, then of 16 rows or columns */
#pragma unroll
            for (int part = 0; part < 2; part++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    hc_load_matrix_x4(a[part][i],
                                      x + part * SIDE_BYTES + (warp_row + i * 16) * K * 2 + (x_own ^ s * 2));
                    hc_load_matrix_x4(b[part][i],
                                      w + part * SIDE_BYTES + (warp_column + i * 16) * K * 2 + (w_own ^ s * 2));
                }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    hc_mma_bf16(sums[i][j], a[1][i], b[0][j / 2] + j % 2 * 2);
                    hc_mma_bf16(sums[i][j], a[0][i], b[1][j / 2] + j % 2 * 2);
                    hc_mma_bf16(sums[i][j], a[0][i], b[0][j / 2] + j % 2 * 2);
                }
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int r = 0; r < 4; r++) {
                const int64_t y_row = row + warp_row + i * 16 + lane / 4 + r / 2 * 8;
                const int64_t y_column = column + warp_column + j * 8 + lane % 4 * 2 + r % 2;
                if (y_row >= p.m || y_column >= p.n)
                    continue;
                const float y = p.bias ? sums[i][j][r] + p.bias[y_column] : sums[i][j][r];
                *(float *)(p.y + y_row * p.y_row + y_column * p.y_column) = y;
            }
}
