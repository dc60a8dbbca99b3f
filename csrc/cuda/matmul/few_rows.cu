/* Folded matmul of up to 64 rows, whose time is that of reading w: y^T = w x^T. A warp has 16 rows of w and, of every 128 columns of
 * k, each of its lanes 32, straight from memory to registers, some steps ahead.
 *
 * Lane 4 g + t holds rows g and g + 8. A matrix unit may take k in any order that both sides share:
 *
 *   bytes    columns 16 t to 16 t + 15, and 64 more; words 2 j and 2 j + 1 of these are its part of mma j
 *   nibbles  columns 32 t to 32 t + 31; the even and the odd codes of word j. x lies in that order (hc_cuda_integers: for_nibbles),
 *            so that these are words j and 4 + j
 *
 * Warps of a block share its rows of w, and every stage of k: their exact sums are added at the end. Rows of x are whole steps, zeros
 * behind their columns, so what is read of w for these does not matter. Nor do rows beyond the last, whose sums are not stored.
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"

namespace {

enum { STEP = 128, STEP_MMAS = STEP / 32, MOST_TILES = 8 };

/* Where the rows of a lane begin. */
template <typename type> struct own_rows {
    const type *at[2];
    HC_DEVICE own_rows(const type *from, int64_t first, int64_t n, int64_t stride) {
#pragma unroll
        for (int r = 0; r < 2; r++)
            at[r] = from + hc_min(first + r * 8, n - 1) * stride;
    }
};

/* 16 rows of w of a step, as matrix units take them, and of 8 rows of x what a lane has of its row. */
struct operand {
    uint32_t a[STEP_MMAS][4];
};
template <typename side> struct part_of_x {
    alignas(16) uint32_t word[2 * STEP_MMAS];

    template <typename byte> HC_DEVICE part_of_x(const byte *x) {
#pragma unroll
        for (int part = 0; part < 2; part++)
            memcpy(word + part * 4, __builtin_assume_aligned(x + side::x_place(part), 16), 16);
    }
    HC_DEVICE void multiply(int32_t sums[4], const operand &w) const {
#pragma unroll
        for (int j = 0; j < STEP_MMAS; j++) {
            const uint32_t b[2] = {word[side::x_word(j, 0)], word[side::x_word(j, 1)]};
            hc_mma_s8(sums, w.a[j], b);
        }
    }
};

template <int STEPS_AHEAD> struct bytes {
    typedef hc_cuda_gemm params, shared_params;
    typedef ::operand operand;
    typedef ::part_of_x<bytes> part_of_x;
    enum {
        AHEAD = STEPS_AHEAD,
        GAP = 64
    }; /* GAP: between rows of x in shared memory, so that eight lanes read all banks */
    struct piece {
        alignas(16) uint32_t word[2][2][4];
    };
    const own_rows<int8_t> rows;
    const int most; /* where the last step begins */

    static HC_DEVICE int x_place(int part) { return (int)threadIdx.x % 4 * 16 + part * 64; }
    static constexpr HC_DEVICE int x_word(int j, int half) { return 2 * j + half; }
    HC_DEVICE bytes(const params &p, int64_t row) : rows(p.w + x_place(0), row, p.n, p.ld), most((int)p.ld - STEP) {}
    HC_DEVICE void load(piece &to, int step) const {
        const uint32_t at = (uint32_t)hc_min(step * STEP, most);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int part = 0; part < 2; part++)
                hc_load_16_once(to.word[r][part], rows.at[r] + at + part * 64);
    }
    static HC_DEVICE void unpack(const piece &from, operand &to) {
#pragma unroll
        for (int j = 0; j < STEP_MMAS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to.a[j][i] = from.word[i % 2][j / 2][j % 2 * 2 + i / 2];
    }
};

template <int STEPS_AHEAD> struct nibbles {
    typedef hc_cuda_gemm_s4 params, shared_params;
    typedef ::operand operand;
    typedef ::part_of_x<nibbles> part_of_x;
    enum { AHEAD = STEPS_AHEAD, GAP = 16 };
    struct piece {
        alignas(16) uint32_t word[2][4];
        uint32_t scales[2]; /* of 4 bits, each of 16 codes */
    };
    const own_rows<uint8_t> rows, scales;
    const uint32_t own, most; /* its first byte of a row, and its last 16 */
    const bool has_scales;

    static HC_DEVICE int x_place(int part) { return (int)threadIdx.x % 4 * 32 + part * 16; }
    static constexpr HC_DEVICE int x_word(int j, int half) { return j + 4 * half; }
    HC_DEVICE nibbles(const params &p, int64_t row)
        : rows(p.w, row, p.n, p.w_stride), scales(p.group_scales, row, p.n, p.group_scales_stride),
          own(threadIdx.x % 4 * 16), most((uint32_t)p.w_row_bytes - 16), has_scales(p.group_scales) {}
    HC_DEVICE void load(piece &to, int step) const {
        const uint32_t at = hc_min(own + (uint32_t)step * (STEP / 2), most);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            hc_load_16_once(to.word[r], rows.at[r] + at);
            to.scales[r] = has_scales ? scales.at[r][at / 16] : 0x11;
        }
    }
    static HC_DEVICE void unpack(const piece &from, operand &to) {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int j = 0; j < STEP_MMAS; j++) {
                const uint32_t word = from.word[r][j], scale = j < 2 ? from.scales[r] & 15 : from.scales[r] >> 4;
                to.a[j][r] = hc_scaled_codes(hc_unsigned_codes(word), scale);
                to.a[j][r + 2] = hc_scaled_codes(hc_unsigned_codes(word >> 4), scale);
            }
    }
};

/* A block that nothing was kept of has no places yet: the first two, as zeros are there. */
static inline HC_DEVICE uint32_t legal_places(uint32_t places) {
    const uint32_t differs = (places ^ places >> 2) & 0x33333333u;
    return places | (~(differs | differs >> 1) & 0x11111111u) << 2;
}

/* What a pattern 2:4 kept, 64 bytes of a step: lane t has bytes 16 t to 16 t + 15 of its rows, and words 2 j and 2 j + 1 of these are
 * its part of mma j. A word stands for eight columns of x, and the unit wants four of each word of lane u = t / 2 from lanes 2 u and
 * 2 u + 1, those of lanes 2 and 3 in other registers. */
template <int STEPS_AHEAD> struct kept {
    typedef hc_cuda_gemm_24 params;
    typedef hc_cuda_gemm shared_params;
    enum { AHEAD = STEPS_AHEAD, GAP = 16 };
    struct piece {
        alignas(16) uint32_t word[2][4], places[4];
    };
    typedef piece operand; /* places of both mmas alone */
    struct part_of_x {
        uint32_t word[2][4];

        template <typename byte> HC_DEVICE part_of_x(const byte *x) {
            const byte *from = x + (int)threadIdx.x % 4 / 2 * 32 + (int)threadIdx.x % 2 * 4;
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    word[r][i] = *(const uint32_t *)(from + r * 64 + i * 8);
        }
        HC_DEVICE void multiply(int32_t sums[4], const operand &w) const {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t a[4] = {w.word[0][2 * j], w.word[1][2 * j], w.word[0][2 * j + 1], w.word[1][2 * j + 1]};
                const uint32_t b[4] = {word[0][2 * j], word[1][2 * j], word[0][2 * j + 1], word[1][2 * j + 1]};
                hc_mma_sparse_s8(sums, a, b, w.places[j]);
            }
        }
    };
    const own_rows<int8_t> rows;
    const uint32_t *places; /* of the row whose places this lane gives */
    const int last;

    HC_DEVICE kept(const params &p, int64_t row)
        : rows(p.gemm.w + threadIdx.x % 4 * 16, row, p.gemm.n, p.gemm.ld / 2),
          places(p.metadata + hc_min(row + threadIdx.x % 2 * 8, p.gemm.n - 1) * (p.gemm.ld / 32)),
          last((int)p.gemm.ld / STEP - 1) {}
    HC_DEVICE void load(piece &to, int wanted) const {
        const int step = hc_min(wanted, last);
#pragma unroll
        for (int r = 0; r < 2; r++)
            hc_load_16_once(to.word[r], rows.at[r] + step * (STEP / 2));
        memcpy(to.places, __builtin_assume_aligned(places + step * (STEP / 32), 16), 16);
    }
    /* Of four lanes, byte 2 j of the words of places, or byte 2 j + 1. */
    static HC_DEVICE void unpack(const piece &from, operand &to) {
        const uint32_t half = threadIdx.x / 2 % 2 * 0x11;
        memcpy(to.word, from.word, sizeof to.word);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t which = (0x40 + j * 0x22) + half;
            to.places[j] =
                legal_places(hc_permute_bytes(hc_permute_bytes(from.places[0], from.places[1], which),
                                              hc_permute_bytes(from.places[2], from.places[3], which), 0x5410));
        }
    }
};

/* What the kernels share of their parameters. */
static inline HC_DEVICE const hc_cuda_gemm &gemm_of(const hc_cuda_gemm_24 &p) { return p.gemm; }
static inline HC_DEVICE const hc_cuda_gemm &gemm_of(const hc_cuda_gemm &p) { return p; }
static inline HC_DEVICE const hc_cuda_gemm_s4 &gemm_of(const hc_cuda_gemm_s4 &p) { return p; }

/* Adds what all warps have, of `tiles` tiles of 8 rows of x each, and stores it. */
template <typename params>
static inline HC_DEVICE void add_slices(const params &p, int64_t column, int w_warps, int tiles,
                                        const int32_t (&sums)[MOST_TILES][4]) {
    const int lane = hc_lane(), warp = hc_warp(), items = w_warps * tiles * HC_WARP;
    int32_t *const shared = (int32_t *)hc_shared();
#pragma unroll
    for (int i = 0; i < MOST_TILES; i++)
        if (i < tiles)
            hc_store_16(shared + ((warp * tiles + i) * HC_WARP + lane) * 4, sums[i]);
    hc_barrier();
    HC_SHORT_LOOP
    for (int item = (int)threadIdx.x; item < items; item += (int)blockDim.x) {
        alignas(16) int32_t all[4] = {}, more[4];
        HC_SHORT_LOOP
        for (int at = item; at < (int)blockDim.x * tiles; at += items) {
            memcpy(more, __builtin_assume_aligned(shared + at * 4, 16), 16);
#pragma unroll
            for (int i = 0; i < 4; i++)
                all[i] += more[i];
        }
        const int w_warp = item / HC_WARP / tiles, tile = item / HC_WARP % tiles;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const line_of<params> line(p, tile * 8 + lane % 4 * 2 + c);
#pragma unroll
            for (int r = 0; r < 2; r++)
                line.template store<false>(column + w_warp * 16 + lane / 4 + r * 8, all[r * 2 + c], 0.0f);
        }
    }
}

/* Up to 8 rows of x, which stay in the cache of a multiprocessor. The warps of a block have the same rows of w. */
template <typename side> static inline HC_DEVICE void few_rows(const typename side::params &given) {
    const typename side::shared_params &p = gemm_of(given);
    const int lane = hc_lane(), warp = hc_warp(), warps = (int)blockDim.x / HC_WARP;
    const int steps = (int)p.ld / STEP;
    const int64_t column = (int64_t)blockIdx.x * 16 + lane / 4;
    const side w(given, column);
    const int8_t *const x = p.x + hc_min(lane / 4, (int)p.m - 1) * p.ld;
    typename side::piece pieces[side::AHEAD];
    alignas(16) int32_t sums[4] = {};
#pragma unroll
    for (int i = 0; i < side::AHEAD; i++)
        w.load(pieces[i], warp + i * warps);
    const line_of<typename side::shared_params> lines[2] = {{p, lane % 4 * 2}, {p, lane % 4 * 2 + 1}};
    const float scales[2] = {folded_scale(p, hc_min(column, p.n - 1)), folded_scale(p, hc_min(column + 8, p.n - 1))};
    int step = warp;
    while (step < steps)
#pragma unroll
        for (int i = 0; i < side::AHEAD; i++) {
            if (i > 0 && step >= steps)
                break;
            const typename side::part_of_x own(x + (uint32_t)step * STEP);
            typename side::operand a;
            side::unpack(pieces[i], a);
            w.load(pieces[i], step + side::AHEAD * warps);
            own.multiply(sums, a);
            step += warps;
        }
    hc_store_16(hc_shared() + threadIdx.x * 16, sums);
    hc_barrier();
    if (warp > 0)
        return;
    HC_SHORT_LOOP
    for (int i = 1; i < warps; i++) {
        alignas(16) int32_t more[4];
        memcpy(more, __builtin_assume_aligned(hc_shared() + (i * HC_WARP + lane) * 16, 16), 16);
#pragma unroll
        for (int r = 0; r < 4; r++)
            sums[r] += more[r];
    }
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (lines[c].is_valid && column + r * 8 < p.n)
                lines[c].put(column + r * 8,
                             finished<false>((double)lines[c].scale * (double)scales[r], sums[r * 2 + c], 0.0f));
}

/* Turns of all, of which each block begins with another: blocks that run at once read different columns of x. */
struct turns {
    const int n;
    int next;
    HC_DEVICE turns(int count) : n(count), next((int)(blockIdx.x % (unsigned)count)) {}
    HC_DEVICE int take() {
        const int taken = next;
        next = taken + 1 == n ? 0 : taken + 1;
        return taken;
    }
};

/* Up to 64 rows of x, which come through shared memory stage by stage: a step for each of the warps that share rows of w. */
template <typename side> static inline HC_DEVICE void many_rows(const typename side::params &given) {
    const typename side::shared_params &p = gemm_of(given);
    enum { STAGES = 3 };
    const int lane = hc_lane(), warp = hc_warp(), w_warps = p.w_warps;
    const int slices = (int)blockDim.x / HC_WARP / w_warps, slice = warp / w_warps, tiles = ((int)p.m + 7) / 8;
    const int steps = (int)p.ld / STEP, stages = (steps + slices - 1) / slices;
    const int pitch = slices * STEP + side::GAP, stage_bytes = tiles * 8 * pitch;
    const int64_t column = (int64_t)blockIdx.x * (w_warps * 16);
    const side w(given, column + warp % w_warps * 16 + lane / 4);
    /* a thread copies the same piece of some rows of x */
    const int row_pieces = slices * (STEP / 16), lines = (int)blockDim.x / row_pieces;
    const int first_row = (int)threadIdx.x / row_pieces, piece = (int)threadIdx.x % row_pieces * 16;
    const auto copy = [&](int stage, int at) {
        const int from = stage * slices * STEP + piece;
        HC_SHORT_LOOP
        for (int row = first_row; row < tiles * 8; row += lines) {
            const bool is_valid = row < (int)p.m && from < (int)p.ld;
            hc_copy_16_or_zeros(hc_shared() + at + row * pitch + piece, p.x + (is_valid ? row * p.ld + from : 0),
                                is_valid);
        }
    };
    typename side::piece pieces[side::AHEAD];
    alignas(16) int32_t sums[MOST_TILES][4] = {};
    turns of_w(stages), of_x = of_w;
#pragma unroll
    for (int i = 0; i < side::AHEAD; i++)
        w.load(pieces[i], of_w.take() * slices + slice);
    HC_SHORT_LOOP
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < stages)
            copy(of_x.take(), i * stage_bytes);
        hc_copy_commit();
    }
    const unsigned char *const x = hc_shared() + lane / 4 * pitch + slice * STEP;
    /* the stage that is read next, and the one before it, which is free then */
    int at = 0, last = (STAGES - 1) * stage_bytes;
    for (int first = 0; first < stages; first += side::AHEAD)
#pragma unroll
        for (int i = 0; i < side::AHEAD; i++) {
            const int stage = first + i;
            if (i > 0 && stage >= stages)
                break;
            typename side::operand a;
            side::unpack(pieces[i], a);
            w.load(pieces[i], of_w.take() * slices + slice);
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            if (stage + STAGES - 1 < stages)
                copy(of_x.take(), last);
            hc_copy_commit();
            const unsigned char *from = x + at;
            last = at, at = at == (STAGES - 1) * stage_bytes ? 0 : at + stage_bytes;
#pragma unroll
            for (int tile = 0; tile < MOST_TILES; tile++) {
                if (tile >= tiles)
                    break;
                typename side::part_of_x(from).multiply(sums[tile], a);
                from += 8 * pitch;
            }
        }
    hc_copy_wait<0>();
    hc_barrier();
    add_slices(p, column, w_warps, tiles, sums);
}

} // namespace

HC_KERNEL(hc_gemm_few_s4_8, hc_cuda_gemm_s4, 256, 2) { few_rows<nibbles<4>>(p); }
HC_KERNEL(hc_gemm_few_s8_8, hc_cuda_gemm, 256, 2) { few_rows<bytes<2>>(p); }
HC_KERNEL(hc_gemm_few_24_8, hc_cuda_gemm_24, 256, 2) { few_rows<kept<3>>(p); }
HC_KERNEL(hc_gemm_few_s4_64, hc_cuda_gemm_s4, 512) { many_rows<nibbles<2>>(p); }
HC_KERNEL(hc_gemm_few_s8_64, hc_cuda_gemm, 512) { many_rows<bytes<1>>(p); }
HC_KERNEL(hc_gemm_few_24_64, hc_cuda_gemm_24, 512) { many_rows<kept<2>>(p); }
