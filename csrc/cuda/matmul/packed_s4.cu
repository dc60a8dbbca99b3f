/* Folded matmul of few rows with weights of 4 bits, which stay packed until they are in registers.
 *
 *   a lane loads 16 bytes of a row of w: codes 32 t to 32 t + 31 of 128, t = lane % 4; word j of them is its part of mma j
 *
 * Even codes are bytes 4 t .. 4 t + 3 of k, odd ones 16 more: x lies in that order (hc_cuda_integers: for_nibbles). Warps share
 * 8 rows of w each among WARPS_N, and every stage of k among WARPS_K, whose exact sums are added at the end.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"

namespace {

enum { WARPS_N = 4, WARPS_K = 2, THREADS = WARPS_N * WARPS_K * 32, BN = WARPS_N * 8 };
enum { CODES = 128, STAGE_K = CODES * WARPS_K, PITCH = STAGE_K + 16, PIECES = STAGE_K / 16, W_BYTES = THREADS * 16 };

static inline HC_DEVICE void decode(uint32_t word, uint32_t scale, uint32_t b[2]) {
    b[0] = hc_scaled_codes(hc_unsigned_codes(word), scale);
    b[1] = hc_scaled_codes(hc_unsigned_codes(word >> 4), scale);
}

/* 16 * TILES rows of x. */
template <int TILES, int STAGES> struct few_rows {
    enum { BM = TILES * 16, STAGE_BYTES = BM * PITCH + W_BYTES };

    /* What a thread copies in each stage: a piece of TILES rows of x, one of w. */
    struct pieces {
        const int8_t *x[TILES];
        const uint8_t *w, *scales; /* scales: of this lane's codes, two of 4 bits a stage; or NULL */
        int64_t rest;              /* bytes of the row of w from this thread's first piece on */

        HC_DEVICE pieces(const hc_cuda_gemm_s4 &p, int64_t row, int64_t w_row) {
            const int part = (int)threadIdx.x / 32 / WARPS_N, lane = (int)threadIdx.x % 4;
            const int first = part * (CODES / 2) + lane * 16;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                x[i] = p.x + hc_min(row + line(i), p.m - 1) * p.ld + (int)threadIdx.x % PIECES * 16;
            w = p.w + w_row * p.w_stride + first;
            rest = p.w_row_bytes - first;
            scales = p.group_scales ? p.group_scales + w_row * p.group_scales_stride + first / 16 : NULL;
        }
        static HC_DEVICE int line(int i) { return ((int)threadIdx.x + i * THREADS) / PIECES; }
        HC_DEVICE bool is_there(int stage) const { return stage * (int64_t)(STAGE_K / 2) < rest; }
        HC_DEVICE void load(int stage) const {
            unsigned char *to = hc_shared() + stage % STAGES * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < TILES; i++)
                hc_copy_16(to + line(i) * PITCH + (int)threadIdx.x % PIECES * 16, x[i] + (int64_t)stage * STAGE_K);
            const bool has = is_there(stage);
            hc_copy_16_or_zeros(to + BM * PITCH + (int)threadIdx.x * 16,
                                has ? w + (int64_t)stage * (STAGE_K / 2) : (const uint8_t *)x[0], has);
        }
        HC_DEVICE uint32_t load_scales(int stage) const {
            return !scales ? 0x11 : is_there(stage) ? scales[(int64_t)stage * (STAGE_K / 32)] : 0;
        }
    };

    static HC_DEVICE void run(const hc_cuda_gemm_s4 &p) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warp_n = warp % WARPS_N,
                  slice = warp / WARPS_N;
        const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * BN + warp_n * 8;
        const int64_t w_row = hc_min(column + lane / 4, p.n - 1);
        const int stages = (int)(p.ld / STAGE_K);
        const pieces own(p, row, w_row);
        alignas(16) int32_t dots[TILES][4] = {};
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < stages)
                own.load(i);
            hc_copy_commit();
        }
        uint32_t scales = own.load_scales(0);
        for (int stage = 0; stage < stages; stage++) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (stage + STAGES - 1 < stages)
                own.load(stage + STAGES - 1);
            hc_copy_commit();
            const uint32_t next_scales = stage + 1 < stages ? own.load_scales(stage + 1) : 0;
            const unsigned char *from = hc_shared() + stage % STAGES * STAGE_BYTES;
            const uint32_t *words = (const uint32_t *)(from + BM * PITCH) + threadIdx.x * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t b[2];
                decode(words[j], j < 2 ? scales & 15 : scales >> 4, b);
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    uint32_t a[4];
                    hc_load_matrix_x4(a, from + (i * 16 + lane % 16) * PITCH + slice * CODES + j * 32 + lane / 16 * 16);
                    hc_mma_s8(dots[i], a, b);
                }
            }
            scales = next_scales;
        }
        hc_copy_wait<0>();
        /* sums of the other slices of k */
        hc_barrier();
        int32_t (*others)[TILES * 4] = (int32_t (*)[TILES * 4]) hc_shared();
        if (slice > 0)
#pragma unroll
            for (int i = 0; i < TILES; i++)
                hc_store_16(others[threadIdx.x] + i * 4, dots[i]);
        hc_barrier();
        if (slice > 0)
            return;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int32_t dot = dots[i][r];
                for (int other = 1; other < WARPS_K; other++)
                    dot += others[threadIdx.x + other * WARPS_N * 32][i * 4 + r];
                store<false>(p, row + i * 16 + lane / 4 + r / 2 * 8, column + lane % 4 * 2 + r % 2, dot, 0.0f);
            }
    }
};

} // namespace

HC_KERNEL(hc_gemm_s4_16, hc_cuda_gemm_s4, 256) { few_rows<1, 4>::run(p); }
HC_KERNEL(hc_gemm_s4_32, hc_cuda_gemm_s4, 256) { few_rows<2, 3>::run(p); }
HC_KERNEL(hc_gemm_s4_64, hc_cuda_gemm_s4, 256) { few_rows<4, 2>::run(p); }
