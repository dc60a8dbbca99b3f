/* Integer matmul of many rows on the matrix units that a warpgroup of sm_90a shares: gemm.cu with other instructions.
 *
 * A block computes 128 x 128, each of its two warpgroups 64 x 128. A stage is 128 bytes of k of both sides, in swizzled atoms
 * (wgmma.h): x, then w. Products of a stage run while the next stages arrive. Weights of 4 bits arrive packed; while products
 * of a stage run, those of the next become bytes, in one of two places behind all stages.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { TILE = 128, STEP = HC_ATOM_PITCH, THREADS = 256, STAGES = 4, SIDE_BYTES = TILE * STEP };

/* Pieces of 16 bytes to their places; what is behind a row's last byte is zeros. */
static inline HC_DEVICE void load_side(unsigned char *to, const int8_t *from, int64_t row, int64_t rows, int64_t ld,
                                       int64_t step) {
    for (int i = (int)threadIdx.x; i < TILE * (STEP / 16); i += THREADS) {
        const int line = i / (STEP / 16), piece = i % (STEP / 16);
        /* a row beyond the last is the last again, and its sums are not stored */
        const int8_t *at = from + hc_min(row + line, rows - 1) * ld;
        const int64_t k = step * STEP + piece * 16;
        hc_copy_16_or_zeros(to + hc_atom_place(line, piece), k < ld ? at + k : at, k < ld);
    }
}

/* Rows of w of a block as they lie. */
struct bytes {
    typedef hc_cuda_gemm params;
    enum { STAGE_BYTES = SIDE_BYTES };
    const params &p;
    const int64_t column;

    HC_DEVICE bytes(const params &given, int64_t first) : p(given), column(first) {}
    HC_DEVICE void load(unsigned char *to, int64_t step) const { load_side(to, p.w, column, p.n, p.ld, step); }
    HC_DEVICE void decode(const unsigned char *, int64_t) {}
    static HC_DEVICE const unsigned char *side(const unsigned char *stage, int64_t) { return stage; }
};

/* Rows of codes of 4 bits. A thread copies and decodes the same pieces: 32 codes of two rows a stage. */
struct codes {
    typedef hc_cuda_gemm_s4 params;
    enum { STAGE_BYTES = SIDE_BYTES / 2, PIECES = STEP / 32, COPIES = TILE * PIECES / THREADS };
    const params &p;
    const uint8_t *row[COPIES], *scales_of[COPIES];
    uint32_t scales[COPIES]; /* of the next stage that is decoded */

    HC_DEVICE codes(const params &given, int64_t first) : p(given) {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int64_t line = hc_min(first + line_of(i), p.n - 1);
            row[i] = p.w + line * p.w_stride;
            scales_of[i] = p.group_scales ? p.group_scales + line * p.group_scales_stride : NULL;
            scales[i] = load_scales(i, 0);
        }
    }
    static HC_DEVICE int line_of(int i) { return ((int)threadIdx.x + i * THREADS) / PIECES; }
    /* The byte of this thread's piece in a row; there may be none in the last stage. */
    static HC_DEVICE int64_t byte_of(int64_t step) { return (step * PIECES + (int)threadIdx.x % PIECES) * 16; }
    HC_DEVICE uint32_t load_scales(int i, int64_t step) const {
        const int64_t byte = byte_of(step);
        return !scales_of[i] ? 0x11 : byte < p.w_row_bytes ? scales_of[i][byte / 16] : 0;
    }
    HC_DEVICE void load(unsigned char *to, int64_t step) const {
        const int64_t byte = byte_of(step);
        const bool is_there = byte < p.w_row_bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16_or_zeros(to + ((int)threadIdx.x + i * THREADS) * 16, is_there ? row[i] + byte : row[i],
                                is_there);
    }
    /* This thread's pieces of a stage, which have arrived. */
    HC_DEVICE void decode(const unsigned char *stage, int64_t step) {
        unsigned char *to = (unsigned char *)side(NULL, step);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            alignas(16) uint32_t words[4], bytes[8];
            memcpy(words, __builtin_assume_aligned(stage + ((int)threadIdx.x + i * THREADS) * 16, 16), 16);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t scale = j < 2 ? scales[i] & 15 : scales[i] >> 4;
                hc_decode_nibbles(words[j], scale, scale, bytes + j * 2);
            }
#pragma unroll
            for (int half = 0; half < 2; half++)
                memcpy(__builtin_assume_aligned(
                           to + hc_atom_place(line_of(i), (int)threadIdx.x % PIECES * 2 + half), 16),
                       bytes + half * 4, 16);
            scales[i] = load_scales(i, step + 1);
        }
    }
    static HC_DEVICE const unsigned char *side(const unsigned char *, int64_t step) {
        return hc_shared() + STAGES * (SIDE_BYTES + STAGE_BYTES) + step % 2 * SIDE_BYTES;
    }
};

template <bool is_grouped, typename weights>
static inline HC_DEVICE void many_rows(const typename weights::params &p) {
    enum { STAGE_BYTES = SIDE_BYTES + weights::STAGE_BYTES };
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, half = (int)threadIdx.x / 128;
    const int64_t row = (int64_t)blockIdx.x * TILE, column = (int64_t)blockIdx.y * TILE;
    const int64_t steps = (p.ld + STEP - 1) / STEP;
    const int64_t own_row = row + half * 64 + thread / 32 * 16 + lane / 4, own_column = column + lane % 4 * 2;
    weights w(p, column);
    int32_t dots[64] = {};
    float sums[is_grouped ? 64 : 1] = {};
    for (int64_t i = 0; i < STAGES - 1; i++) {
        if (i < steps) {
            load_side(hc_shared() + i * STAGE_BYTES, p.x, row, p.m, p.ld, i);
            w.load(hc_shared() + i * STAGE_BYTES + SIDE_BYTES, i);
        }
        hc_copy_commit();
    }
    hc_copy_wait<STAGES - 2>();
    w.decode(hc_shared() + SIDE_BYTES, 0);
    int64_t segment = 0, rest = p.length;
    bool adds = false;
    for (int64_t step = 0; step < steps; step++) {
        hc_fence_shared();
        hc_barrier();
        const unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
        const uint64_t a = hc_descriptor(hc_shared_address(stage + half * (SIDE_BYTES / 2)));
        const uint64_t b = hc_descriptor(hc_shared_address(weights::side(stage + SIDE_BYTES, step)));
        if constexpr (!is_grouped)
            hc_wgmma_fence();
        for (int k = 0; k < STEP; k += 32) {
            if constexpr (is_grouped)
                hc_wgmma_fence();
            hc_wgmma_s8(dots, a + k / 16, b + k / 16, adds);
            adds = true;
            rest -= 32;
            if constexpr (is_grouped) {
                if (rest > 0 || segment == p.segments)
                    continue;
                hc_wgmma_commit();
                hc_wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < 64; i++)
                    add_segment(p, own_row + i / 2 % 2 * 8, own_column + i / 4 * 8 + i % 2, segment, dots[i], &sums[i]);
                adds = false;
                rest = p.length;
                segment++;
            }
        }
        hc_wgmma_commit();
        const int64_t next = step + STAGES - 1;
        if (next < steps) { /* into the stage before, whose products have ended for all */
            unsigned char *to = hc_shared() + next % STAGES * STAGE_BYTES;
            load_side(to, p.x, row, p.m, p.ld, next);
            w.load(to + SIDE_BYTES, next);
        }
        hc_copy_commit();
        hc_copy_wait<STAGES - 2>();
        if (step + 1 < steps)
            w.decode(hc_shared() + (step + 1) % STAGES * STAGE_BYTES + SIDE_BYTES, step + 1);
        hc_wgmma_wait<0>();
    }
    hc_copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 64; i++)
        store<is_grouped>(p, own_row + i / 2 % 2 * 8, own_column + i / 4 * 8 + i % 2, dots[i],
                          sums[is_grouped ? i : 0]);
}

} // namespace

HC_KERNEL(hc_gemm_90a_folded, hc_cuda_gemm, 256) { many_rows<false, bytes>(p); }
HC_KERNEL(hc_gemm_90a_grouped, hc_cuda_gemm, 256) { many_rows<true, bytes>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_folded, hc_cuda_gemm_s4, 256) { many_rows<false, codes>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_grouped, hc_cuda_gemm_s4, 256) { many_rows<true, codes>(p); }
