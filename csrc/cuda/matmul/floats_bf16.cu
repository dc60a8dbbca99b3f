/* Floats times decoded weights on the matrix units, in the device's own order of sums, which a caller asks for.
 *
 *   x = x_h + x_l + e, w = w_h + w_l + f     both parts bfloat16, |e| <= 2^-16 |x|, |f| <= 2^-16 |w|
 *   y = sum of x_l w_h + x_h w_l + x_h w_h
 *
 * Error: (3 * 2^-16 + 3 k 2^-22) sum |x| |w|, where the first term is what the parts leave out, and the second that of 3 k
 * additions whose relative error is at most 2^-22. Values below 2^-118 lose their low part. A block computes ROWS x COLUMNS, a warp
 * ROWS / 2 x 32. K columns go through shared memory at a time (swizzle.h): x high, x low, w high, w low. They are in registers
 * two steps before, and are split one step before, between the instructions of the matrix units.
 */
#include "cuda/matmul/floats.h"
#include "cuda/matmul/swizzle.h"

namespace {

/* Eight neighbouring values to their place in both matrices of a side: the nearest bfloat16 of each, and of the rest. What is too
 * large is infinite, and an infinite value has no rest. */
static inline HC_DEVICE void split(unsigned char *high, unsigned char *low, const float (&values)[8]) {
    alignas(16) uint32_t h[4], l[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t bits[2], rest[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const float value = values[i * 2 + c];
            const bool is_nan = value != value;
            bits[c] = is_nan ? 0x7fc00000 : hc_f32_bits(value) + 0x8000;
            rest[c] = hc_f32_bits(value - hc_f32_from_bits(bits[c] & 0xffff0000)) + 0x8000;
            if ((bits[c] & 0x7f800000) == 0x7f800000)
                rest[c] = 0;
        }
        h[i] = hc_permute_bytes(bits[0], bits[1], 0x7632);
        l[i] = hc_permute_bytes(rest[0], rest[1], 0x7632);
    }
    hc_store_16(high, h);
    hc_store_16(low, l);
}

template <int ROWS, int COLUMNS, int GIVEN_K> struct product {
    enum { K = GIVEN_K, PIECES = K / 8 };
    enum { WARPS = 2 * (COLUMNS / 32), THREADS = HC_WARP * WARPS, HEIGHT = ROWS / 2 / 16, TURN = THREADS / PIECES };
    enum { X_PIECES = ROWS / TURN, W_PIECES = COLUMNS / TURN, X_BYTES = ROWS * K * 2, W_BYTES = COLUMNS * K * 2 };
    enum { STAGE_BYTES = 2 * (X_BYTES + W_BYTES), LD_Y = COLUMNS + 8 /* floats */ };
    enum { ALL = X_PIECES + W_PIECES };
    static_assert(ROWS % TURN == 0 && COLUMNS % TURN == 0);
    const hc_cuda_sgemm &p;
    const int64_t row, column; /* of the block */
    const int own, piece;      /* the first row and the piece of this thread */
    float values[ALL][8];

    HC_DEVICE product(const hc_cuda_sgemm &given)
        : p(given), row((int64_t)blockIdx.x * ROWS), column((int64_t)blockIdx.y * COLUMNS),
          own((int)threadIdx.x / PIECES), piece((int)threadIdx.x % PIECES) {}
    HC_DEVICE bool has_pieces() const { return p.has_16 && (int)p.k % 8 == 0; }
    static HC_DEVICE void load(float (&to)[8], const void *from, bool is_valid) {
#pragma unroll
        for (int c = 0; c < 8; c++)
            to[c] = 0;
        if (is_valid) {
            hc_load_16(to, from);
            hc_load_16(to + 4, (const char *)from + 16);
        }
    }
    /* Piece i of this thread, of x and then of w: its values of a step, zeros beyond the last; and their two parts to a stage. */
    HC_DEVICE void fetch(int i, int64_t k) {
        const int64_t at = k + piece * 8;
        if (i < X_PIECES) {
            const int64_t of = row + own + i * TURN;
            load(values[i], p.x.data + of * p.x.rows.stride[0] + at * (int)sizeof(float), at < p.k && of < p.m);
        } else {
            const int64_t of = column + own + (i - X_PIECES) * TURN;
            load(values[i], p.w + of * p.k + at, at < p.k && of < p.n);
        }
    }
    HC_DEVICE void put(int i, unsigned char *stage) const {
        const bool is_x = i < X_PIECES;
        unsigned char *to =
            stage + (is_x ? 0 : 2 * X_BYTES) + hc_piece_place<PIECES>(own + (is_x ? i : i - X_PIECES) * TURN, piece);
        split(to, to + (is_x ? X_BYTES : W_BYTES), values[i]);
    }
    /* The same of rows that do not begin on 16 bytes, from memory. */
    HC_DEVICE void put_values(unsigned char *stage, int64_t k) const {
        HC_SHORT_LOOP
        for (int i = 0; i < X_PIECES + W_PIECES; i++) {
            const bool is_x = i < X_PIECES;
            const int line = own + (is_x ? i : i - X_PIECES) * TURN;
            const int64_t at = k + piece * 8, of = (is_x ? row : column) + line;
            const float *from = is_x ? (const float *)(p.x.data + of * p.x.rows.stride[0]) : p.w + of * p.k;
            float values[8];
#pragma unroll
            for (int c = 0; c < 8; c++)
                values[c] = of < (is_x ? p.m : p.n) && at + c < p.k ? from[at + c] : 0;
            unsigned char *to = stage + (is_x ? 0 : 2 * X_BYTES) + hc_piece_place<PIECES>(line, piece);
            split(to, to + (is_x ? X_BYTES : W_BYTES), values);
        }
    }
    HC_DEVICE void run() {
        const int lane = hc_lane(), warp = hc_warp();
        const int warp_row = warp % 2 * (ROWS / 2), warp_column = warp / 2 * 32;
        const int x_own = warp_row * K * 2 + hc_piece_place<PIECES>(lane % 16, lane / 16);
        const int w_own =
            2 * X_BYTES + warp_column * K * 2 + hc_piece_place<PIECES>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
        float sums[HEIGHT][4][4] = {};
        const bool is_split_between = has_pieces();
        if (is_split_between) {
#pragma unroll
            for (int i = 0; i < X_PIECES + W_PIECES; i++) {
                fetch(i, 0);
                put(i, hc_shared());
                fetch(i, K);
            }
        } else {
            put_values(hc_shared(), 0);
        }
        int at = 0;
        for (int64_t k = 0; k < p.k; k += K) {
            const unsigned char *stage = hc_shared() + at;
            at = STAGE_BYTES - at;
            hc_barrier();
            if (!is_split_between && k + K < p.k)
                put_values(hc_shared() + at, k + K);
#pragma unroll
            for (int s = 0; s < K; s += 16) {
                uint32_t b[2][2][4]; /* by part, then of 16 columns */
#pragma unroll
                for (int part = 0; part < 2; part++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        hc_load_matrix_x4(b[part][j], stage + (w_own ^ s * 2) + part * W_BYTES + j * 16 * K * 2);
#pragma unroll
                for (int i = 0; i < HEIGHT; i++) {
                    uint32_t a[2][4];
#pragma unroll
                    for (int part = 0; part < 2; part++)
                        hc_load_matrix_x4(a[part], stage + (x_own ^ s * 2) + part * X_BYTES + i * 16 * K * 2);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        hc_mma_bf16(sums[i][j], a[1], b[0][j / 2] + j % 2 * 2);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        hc_mma_bf16(sums[i][j], a[0], b[1][j / 2] + j % 2 * 2);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        hc_mma_bf16(sums[i][j], a[0], b[0][j / 2] + j % 2 * 2);
                    /* the next step's pieces, evenly among the rows of both halves */
                    const int turn = s / 16 * HEIGHT + i, turns = K / 16 * HEIGHT;
#pragma unroll
                    for (int one = turn * ALL / turns; one < (turn + 1) * ALL / turns; one++)
                        if (is_split_between) {
                            put(one, hc_shared() + at);
                            fetch(one, k + 2 * K);
                        }
                }
            }
        }
        hc_barrier();
        float *y = (float *)hc_shared() + (warp_row + lane / 4) * LD_Y + warp_column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < HEIGHT; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    y[(i * 16 + r / 2 * 8) * LD_Y + j * 8 + r % 2] = sums[i][j][r];
        hc_barrier();
        floats::store<ROWS, COLUMNS, THREADS, LD_Y, ROWS, ROWS>(p, row, column, (const float *)hc_shared());
    }
};

} // namespace

HC_KERNEL(hc_gemm_bf16_32, hc_cuda_sgemm, 128) { product<32, 64, 32>(p).run(); }
HC_KERNEL(hc_gemm_bf16_128, hc_cuda_sgemm, 256, 2) { product<128, 128, 16>(p).run(); }
