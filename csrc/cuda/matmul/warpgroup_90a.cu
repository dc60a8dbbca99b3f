/* Integer matmul of many rows on the matrix units that a warpgroup of sm_90a shares: gemm.cu with other instructions.
 *
 * A block computes 128 x N, each of its two warpgroups 64 x N. A stage is 128 bytes of k of both sides, in swizzled atoms
 * (wgmma.h): x, then w. Weights of 4 bits go through registers; while products of a stage run, those of the next become bytes,
 * in one of some places behind all stages.
 *
 *   folded   products of a stage run on while those of the next begin: a stage is free two steps later
 *   grouped  sums are read at the end of each segment: a stage is free one step later
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { BM = 128, STEP = HC_ATOM_PITCH, THREADS = 256, STAGES = 4, X_BYTES = BM * STEP };

/* A thread's pieces of 16 bytes of LINES rows, PIECES of them a row and stage: one of each so many rows, at the same k. A row
 * beyond the last is the last again, and its sums are not stored. Steps between rows fit 32 bits, so that an address is one sum. */
template <int LINES, int PIECES> struct pieces {
    enum { EACH = THREADS / PIECES, COPIES = LINES / EACH };
    const unsigned char *from;
    uint32_t offset[COPIES];

    static HC_DEVICE int piece() { return (int)threadIdx.x % PIECES; }
    static HC_DEVICE int line() { return (int)threadIdx.x / PIECES; }
    HC_DEVICE pieces(const void *rows, int64_t first, int64_t n, int64_t pitch, int bytes) {
        const int64_t own = hc_min(first + line(), n - 1);
        from = (const unsigned char *)rows + own * pitch + piece() * bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            offset[i] = (uint32_t)(hc_min(own + i * EACH, n - 1) - own) * (uint32_t)pitch;
    }
    /* Those of a stage to `to`, `spread` bytes apart; zeros behind a row's last byte. */
    HC_DEVICE void load(unsigned char *to, int spread, int step, int64_t row_bytes) const {
        const int at = step * (PIECES * 16);
        const bool is_there = at + piece() * 16 < row_bytes;
        const unsigned char *here = is_there ? from + at : from;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16_or_zeros(to + i * spread, here + offset[i], is_there);
    }
};

/* Rows of bytes, which go to their places in atoms. */
template <int LINES> struct side {
    pieces<LINES, STEP / 16> own;
    int place;

    HC_DEVICE side(const int8_t *rows, int64_t first, int64_t n, int64_t ld)
        : own(rows, first, n, ld, 16), place(hc_atom_place(own.line(), own.piece())) {}
    HC_DEVICE void load(unsigned char *to, int step, int64_t ld) const {
        own.load(to + place, own.EACH * HC_ATOM_PITCH, step, ld);
    }
};

/* N rows of w of a block as they lie. */
template <int N, int PLACES> struct bytes {
    typedef hc_cuda_gemm params;
    enum { STAGE_BYTES = N * STEP };
    const side<N> w;
    const int64_t ld;

    HC_DEVICE bytes(const params &p, int64_t column) : w(p.w, column, p.n, p.ld), ld(p.ld) {}
    HC_DEVICE void load(unsigned char *to, int step) const { w.load(to, step, ld); }
    HC_DEVICE void fetch(int) {}
    HC_DEVICE void decode(int) const {}
    static HC_DEVICE const unsigned char *operand(const unsigned char *stage, int) { return stage; }
};

/* N rows of codes of 4 bits, 32 codes of some rows a thread and stage: from memory to registers, and a step later to bytes. */
template <int N, int PLACES> struct codes {
    typedef hc_cuda_gemm_s4 params;
    typedef pieces<N, STEP / 32> own;
    enum { STAGE_BYTES = 0, COPIES = own::COPIES };
    const own w, group_scales;
    const int64_t row_bytes;
    const bool has_scales;
    const int place[2];
    float words[COPIES][4];  /* of the next stage that is decoded */
    uint32_t scales[COPIES]; /* two of 4 bits */

    HC_DEVICE codes(const params &p, int64_t column)
        : w(p.w, column, p.n, p.w_stride, 16), group_scales(p.group_scales, column, p.n, p.group_scales_stride, 1),
          row_bytes(p.w_row_bytes), has_scales(p.group_scales != NULL),
          place{hc_atom_place(own::line(), own::piece() * 2), hc_atom_place(own::line(), own::piece() * 2 + 1)} {
        fetch(0);
    }
    HC_DEVICE void fetch(int step) {
        const int next = step * (STEP / 32);
        const bool is_there = (next + own::piece()) * 16 < row_bytes;
        const int at =
            is_there ? next : -own::piece(); /* codes behind the last are those of the first piece, times 0 */
        const unsigned char *codes = w.from + at * 16, *of_groups = group_scales.from + at;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            hc_load_16(words[i], codes + w.offset[i]);
            scales[i] = !is_there ? 0 : has_scales ? of_groups[group_scales.offset[i]] : 0x11;
        }
    }
    HC_DEVICE void load(unsigned char *, int) const {}
    HC_DEVICE void decode(int step) const {
        unsigned char *to = (unsigned char *)operand(NULL, step);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            alignas(16) uint32_t bytes[8];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t scale = j < 2 ? scales[i] & 15 : scales[i] >> 4;
                hc_decode_nibbles(hc_f32_bits(words[i][j]), scale, scale, bytes + j * 2);
            }
#pragma unroll
            for (int half = 0; half < 2; half++)
                hc_store_16(to + place[half] + i * (own::EACH * HC_ATOM_PITCH), bytes + half * 4);
        }
    }
    static HC_DEVICE const unsigned char *operand(const unsigned char *, int step) {
        return hc_shared() + STAGES * X_BYTES + step % PLACES * (N * STEP);
    }
};

/* A thread's sums: two rows, and two columns of each eight. */
template <bool is_grouped, int N, typename params>
static inline HC_DEVICE void store_all(const params &p, int64_t row, int64_t column, const int32_t (&dots)[N / 2],
                                       const float *sums) {
    const bool has_pairs = p.y_column == sizeof(float) && ((uintptr_t)p.y | (uintptr_t)p.y_row) % 8 == 0;
    const double x_scales[2] = {is_grouped ? 0 : (double)x_scale(p, row, 0),
                                is_grouped ? 0 : (double)x_scale(p, row + 8, 0)};
#pragma unroll
    for (int j = 0; j < N / 8; j++, column += 8) {
        double w_scales[2];
        float bias[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
            w_scales[c] = is_grouped ? 0 : (double)w_scale(p, column + c, 0);
            bias[c] = p.bias ? p.bias[hc_min(column + c, p.n - 1)] : 0;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            char *to = p.y + (row + r * 8) * p.y_row + column * p.y_column;
            alignas(8) float y[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int i = j * 4 + r * 2 + c;
                y[c] = finished<is_grouped>(x_scales[r] * w_scales[c], dots[i], sums[is_grouped ? i : 0]);
                y[c] = p.bias ? y[c] + bias[c] : y[c];
            }
            if (row + r * 8 >= p.m)
                continue;
            if (has_pairs && column + 1 < p.n) {
                memcpy(__builtin_assume_aligned(to, 8), y, 8);
            } else {
                if (column < p.n)
                    *(float *)to = y[0];
                if (column + 1 < p.n)
                    *(float *)(to + p.y_column) = y[1];
            }
        }
    }
}

template <bool is_grouped, int N, template <int, int> class weights_of>
static inline HC_DEVICE void many_rows(const typename weights_of<N, 2>::params &p) {
    enum { PENDING = is_grouped ? 0 : 1, AHEAD = STAGES - 1 - PENDING };
    typedef weights_of<N, 2 + PENDING> weights;
    enum { STAGE_BYTES = X_BYTES + weights::STAGE_BYTES };
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, half = (int)threadIdx.x / 128;
    const int64_t row = (int64_t)blockIdx.x * BM, column = (int64_t)blockIdx.y * N;
    const int steps = (int)((p.ld + STEP - 1) / STEP);
    const int64_t own_row = row + half * 64 + thread / 32 * 16 + lane / 4, own_column = column + lane % 4 * 2;
    const side<BM> x(p.x, row, p.m, p.ld);
    weights w(p, column);
    int32_t dots[N / 2] = {};
    float sums[is_grouped ? N / 2 : 1] = {};
    for (int i = 0; i < AHEAD; i++) {
        if (i < steps) {
            x.load(hc_shared() + i * STAGE_BYTES, i, p.ld);
            w.load(hc_shared() + i * STAGE_BYTES + X_BYTES, i);
        }
        hc_copy_commit();
    }
    hc_copy_wait<AHEAD - 1>();
    w.decode(0);
    int64_t segment = 0, rest = p.length;
    bool adds = false;
    for (int step = 0; step < steps; step++) {
        hc_fence_shared();
        hc_barrier();
        if (step + 1 < steps)
            w.fetch(step + 1);
        const unsigned char *stage = hc_shared() + step % STAGES * STAGE_BYTES;
        const uint64_t a = hc_descriptor(hc_shared_address(stage + half * (X_BYTES / 2)));
        const uint64_t b = hc_descriptor(hc_shared_address(weights::operand(stage + X_BYTES, step)));
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
                hc_wgmma_wait<0>(dots);
#pragma unroll
                for (int i = 0; i < N / 2; i++)
                    add_segment(p, own_row + i / 2 % 2 * 8, own_column + i / 4 * 8 + i % 2, segment, dots[i], &sums[i]);
                adds = false;
                rest = p.length;
                segment++;
            }
        }
        hc_wgmma_commit();
        const int next = step + AHEAD;
        if (next < steps) { /* into a stage whose products ended for all before the barrier */
            unsigned char *to = hc_shared() + next % STAGES * STAGE_BYTES;
            x.load(to, next, p.ld);
            w.load(to + X_BYTES, next);
        }
        hc_copy_commit();
        hc_copy_wait<AHEAD - 1>();
        if constexpr (PENDING > 0)
            hc_wgmma_wait<PENDING>(dots);
        if (step + 1 < steps)
            w.decode(step + 1);
        if constexpr (PENDING == 0)
            hc_wgmma_wait<0>(dots);
    }
    hc_wgmma_wait<0>(dots);
    hc_copy_wait<0>();
    store_all<is_grouped, N>(p, own_row, own_column, dots, sums);
}

} // namespace

HC_KERNEL(hc_gemm_90a_folded, hc_cuda_gemm, 256) { many_rows<false, 128, bytes>(p); }
HC_KERNEL(hc_gemm_90a_folded_256, hc_cuda_gemm, 256) { many_rows<false, 256, bytes>(p); }
HC_KERNEL(hc_gemm_90a_grouped, hc_cuda_gemm, 256) { many_rows<true, 128, bytes>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_folded, hc_cuda_gemm_s4, 256) { many_rows<false, 128, codes>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_folded_256, hc_cuda_gemm_s4, 256) { many_rows<false, 256, codes>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_grouped, hc_cuda_gemm_s4, 256) { many_rows<true, 128, codes>(p); }
