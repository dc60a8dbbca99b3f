/* Grouped matmul of up to 64 rows of x with weights of 4 bits, which go straight from memory to registers, some steps ahead. A warp
 * has 8 rows of w and all of k, 128 columns a step: sums of segments are added in their order.
 *
 * Lane 4 g + t holds word t of each 32 columns of row g: its even and odd codes, in whose order x lies (hc_cuda_integers:
 * for_nibbles). They are sixteen times their values, as are the sums.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"

namespace {

enum { STEP = 128, STEP_MMAS = STEP / 32, STAGES = 4, PITCH = STEP + 16 };

struct piece {
    uint32_t word[STEP_MMAS];
    alignas(16) float scales[2][STEP_MMAS]; /* of the two columns whose sums a lane has */
};

/* Scales of the segments of a step, each 32 columns. */
static inline HC_DEVICE void load_scales(float to[STEP_MMAS], const float *from, int step) {
    memcpy(to, __builtin_assume_aligned(from + step * STEP_MMAS, 16), STEP_MMAS * sizeof(float));
}

/* TILES tiles of 16 rows of x. */
template <int TILES, int AHEAD> static inline HC_DEVICE void few_grouped(const hc_cuda_gemm_s4 &p) {
    enum { STAGE_BYTES = TILES * 16 * PITCH };
    const int lane = hc_lane(), warp = hc_warp(), rows = (int)p.m, steps = (int)p.ld / STEP;
    const int64_t column = (int64_t)blockIdx.x * (blockDim.x / 4) + warp * 8;
    const uint8_t *const w = p.w + hc_min(column + lane / 4, p.n - 1) * p.w_stride + lane % 4 * 4;
    const float *w_scales[2];
    uint32_t x_scales[TILES * 2];
#pragma unroll
    for (int c = 0; c < 2; c++)
        w_scales[c] = (const float *)(p.w_scales + hc_min(column + lane % 4 * 2 + c, p.n - 1) * p.w_scales_stride);
#pragma unroll
    for (int i = 0; i < TILES * 2; i++)
        x_scales[i] = (uint32_t)(hc_min(i * 8 + lane / 4, rows - 1) * (int)p.segments);
    piece pieces[AHEAD];
    const auto load = [&](piece &to, int wanted) {
        const int step = hc_min(wanted, steps - 1);
#pragma unroll
        for (int j = 0; j < STEP_MMAS; j++)
            to.word[j] = *(const uint32_t *)(w + step * (STEP / 2) + j * 16);
#pragma unroll
        for (int c = 0; c < 2; c++)
            load_scales(to.scales[c], w_scales[c], step);
    };
    const auto copy = [&](int step, int at) {
        if (step < steps)
            HC_SHORT_LOOP
        for (int i = (int)threadIdx.x; i < TILES * 16 * (STEP / 16); i += (int)blockDim.x) {
            const int row = i / (STEP / 16), piece = i % (STEP / 16) * 16;
            hc_copy_16_or_zeros(hc_shared() + at + row * PITCH + piece,
                                p.x + (row < rows ? row * p.ld + step * STEP + piece : 0), row < rows);
        }
        hc_copy_commit();
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        load(pieces[i], i);
    HC_SHORT_LOOP
    for (int i = 0; i < STAGES - 1; i++)
        copy(i, i * STAGE_BYTES);
    float sums[TILES][4] = {};
    const int x_own = lane % 16 * PITCH + lane / 16 * 16;
    int at = 0,
        last = (STAGES - 1) * STAGE_BYTES; /* the stage that is read next, and the one before it, which is free then */
    HC_SHORT_LOOP
    for (int first = 0; first < steps; first += AHEAD)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int step = first + i;
            if (i > 0 && step >= steps)
                break;
            const piece own = pieces[i];
            load(pieces[i], step + AHEAD);
            alignas(16) float of_x[TILES * 2][STEP_MMAS];
#pragma unroll
            for (int r = 0; r < TILES * 2; r++)
                load_scales(of_x[r], p.x_scales + x_scales[r], step);
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            copy(step + STAGES - 1, last);
            const unsigned char *const x = hc_shared() + at + x_own;
            last = at, at = at == (STAGES - 1) * STAGE_BYTES ? 0 : at + STAGE_BYTES;
#pragma unroll
            for (int j = 0; j < STEP_MMAS; j++) {
                const uint32_t b[2] = {own.word[j] << 4 & 0xf0f0f0f0u, own.word[j] & 0xf0f0f0f0u};
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    uint32_t a[4];
                    int32_t dots[4] = {};
                    hc_load_matrix_x4(a, x + tile * 16 * PITCH + j * 32);
                    hc_mma_s8(dots, a, b);
#pragma unroll
                    for (int r = 0; r < 4; r++)
                        sums[tile][r] = fmaf(of_x[tile * 2 + r / 2][j] * own.scales[r % 2][j], (float)(dots[r] >> 4),
                                             sums[tile][r]);
                }
            }
        }
    hc_copy_wait<0>();
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
        const line_of<hc_cuda_gemm_s4> line(p, i * 8 + lane / 4);
#pragma unroll
        for (int c = 0; c < 2; c++)
            line.template store<true>(column + lane % 4 * 2 + c, 0, sums[i / 2][i % 2 * 2 + c]);
    }
}

} // namespace

HC_KERNEL(hc_gemm_few_s4_16_grouped, hc_cuda_gemm_s4, 256) { few_grouped<1, 4>(p); }
HC_KERNEL(hc_gemm_few_s4_64_grouped, hc_cuda_gemm_s4, 256) { few_grouped<4, 2>(p); }
