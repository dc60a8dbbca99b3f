/* Integer matmul of many rows on the matrix units that a warpgroup of sm_90a shares: gemm.cu with other instructions.
 *
 * A block computes 128 x N, each of its two warpgroups 64 x N. A stage is 128 bytes of k of both sides: x in swizzled atoms
 * (wgmma.h), then w. Codes of 4 bits are copied as they are stored. Their thread reads them a step before their products and
 * stores their bytes to one of three operands behind all stages. Stages less two are filled ahead.
 *
 *   folded    products of a step begin before those of the step before have ended
 *   grouped   products of a segment end before its sums are scaled
 */
#include "cuda/matmul/epilogue.h"
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { BM = 128, STEP = HC_ATOM_PITCH, THREADS = 256, X_BYTES = BM * STEP };

/* A thread's pieces of 16 bytes of LINES rows, PIECES of them a row and stage: one of each so many rows, at the same k. Rows
 * beyond the last: hc_row_for. Steps between rows fit 32 bits, so that an address is one sum. */
template <int LINES, int PIECES> struct pieces {
    enum { EACH = THREADS / PIECES, COPIES = LINES / EACH };
    const unsigned char *from;
    uint32_t offset[COPIES];

    static HC_DEVICE int piece() { return (int)threadIdx.x % PIECES; }
    static HC_DEVICE int line() { return (int)threadIdx.x / PIECES; }
    HC_DEVICE pieces(const void *rows, int64_t first, int64_t n, int64_t pitch, int bytes) {
        from = (const unsigned char *)rows + first * pitch + piece() * bytes;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            offset[i] = hc_row_for(line() + i * EACH, n - first) * (uint32_t)pitch;
    }
    /* Those of a stage to `to`, `spread` bytes apart; zeros behind a row's last byte. */
    HC_DEVICE void load(unsigned char *to, int spread, int step, int64_t row_bytes) const {
        const int at = step * (PIECES * 16);
        const bool is_valid = at + piece() * 16 < row_bytes;
        const unsigned char *here = is_valid ? from + at : from;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            hc_copy_16_or_zeros(to + i * spread, here + offset[i], is_valid);
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
template <int N> struct bytes {
    typedef hc_cuda_gemm params;
    enum { STAGE_BYTES = N * STEP, OPERANDS = 0, EARLY = 0 /* steps that its copies are ahead of those of x */ };
    const side<N> w;
    const int64_t ld;

    HC_DEVICE bytes(const params &p, int64_t column) : w(p.w, column, p.n, p.ld), ld(p.ld) {}
    HC_DEVICE void load(unsigned char *to, int step) const { w.load(to, step, ld); }
    HC_DEVICE void fetch(int) {}
    HC_DEVICE void decode(const unsigned char *, unsigned char *) const {}
};

/* N rows of codes of 4 bits, 32 codes of some rows a thread and stage, which this thread alone reads. */
template <int N> struct codes {
    typedef hc_cuda_gemm_s4 params;
    typedef pieces<N, STEP / 32> own;
    enum { STAGE_BYTES = N * STEP / 2, OPERANDS = 3, EARLY = 1, COPIES = own::COPIES };
    const own w, group_scales;
    const int64_t row_bytes;
    const bool has_scales;
    const int place[2];
    uint32_t scales[COPIES],
        next[COPIES]; /* two of 4 bits each, of the stage that is decoded next and of the one after it */

    HC_DEVICE codes(const params &p, int64_t column)
        : w(p.w, column, p.n, p.w_stride, 16), group_scales(p.group_scales, column, p.n, p.group_scales_stride, 1),
          row_bytes(p.w_row_bytes), has_scales(p.group_scales != NULL),
          place{hc_atom_place(own::line(), own::piece() * 2), hc_atom_place(own::line(), own::piece() * 2 + 1)} {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            next[i] = 0x11;
        fetch(0);
    }
    HC_DEVICE void load(unsigned char *to, int step) const {
        w.load(to + threadIdx.x * 16, THREADS * 16, step, row_bytes);
    }
    /* Of a step that is decoded after the next fetch. Codes behind a row's last are zeros, whatever multiplies them. */
    HC_DEVICE void fetch(int step) {
        if (!has_scales) {
#pragma unroll
            for (int i = 0; i < COPIES; i++)
                scales[i] = 0x11;
            return;
        }
        const int at = step * (STEP / 32);
        const unsigned char *from = group_scales.from + ((at + own::piece()) * 16 < row_bytes ? at : -own::piece());
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            scales[i] = next[i];
            next[i] = from[group_scales.offset[i]];
        }
    }
    HC_DEVICE void decode(const unsigned char *stage, unsigned char *to) const {
        alignas(16) uint32_t words[COPIES][4]; /* all are read first: the compiler moves no read before a store */
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            memcpy(words[i], __builtin_assume_aligned(stage + (threadIdx.x + i * THREADS) * 16, 16), 16);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            alignas(16) uint32_t bytes[8];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t scale = j < 2 ? scales[i] & 15 : scales[i] >> 4;
                hc_decode_nibbles(words[i][j], scale, scale, bytes + j * 2);
            }
#pragma unroll
            for (int half = 0; half < 2; half++)
                hc_store_16(to + place[half] + i * (own::EACH * HC_ATOM_PITCH), bytes + half * 4);
        }
    }
};

/* Scales of four segments of 128 rows of x and N of w: from memory to registers, and then to one of three places in shared memory, a line
 * of each segment. A thread brings those of a row. The four of w that a thread needs of 16 columns are neighbours there: 2 t, 2 t + 1,
 * 2 t + 8 and 2 t + 9 at 4 t on. */
template <int N, typename params> struct scales_of_segments {
    enum { LINE = BM + N, FOUR = 4 * LINE, BYTES = 3 * FOUR * (int)sizeof(float) };
    float *const lines;
    const float *const from;
    const int segments, place; /* place: of its row in a line */
    const bool has_16;
    int there; /* fours that are in shared memory */
    float found[4];

    HC_DEVICE scales_of_segments(const params &p, int64_t row, int64_t column, unsigned char *memory)
        : lines((float *)memory), from(row_of(p, row, column)), segments((int)p.segments), place(place_of()),
          has_16(p.segments % 4 == 0 && (uintptr_t)from % 16 == 0), there(0) {}
    static HC_DEVICE const float *row_of(const params &p, int64_t row, int64_t column) {
        const int own = (int)threadIdx.x;
        return own < BM ? p.x_scales + hc_min(row + own, p.m - 1) * p.segments
                        : w_scales_of(p, hc_min(column + own - BM, p.n - 1));
    }
    static HC_DEVICE int place_of() {
        const int own = (int)threadIdx.x, w = own - BM;
        return own < BM ? own : BM + (w & -16) + w % 8 / 2 * 4 + w / 8 % 2 * 2 + w % 2;
    }
    /* A step that begins with this segment ends four at most. */
    HC_DEVICE bool lacks(int segment) const { return (int)hc_min(segment + 3, segments - 1) / 4 >= there; }
    HC_DEVICE void fetch() {
        if (has_16) {
            hc_load_16(found, from + there * 4);
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            found[i] = from[hc_min(there * 4 + i, segments - 1)];
    }
    HC_DEVICE void store() {
        if (N == BM || (int)threadIdx.x < LINE)
#pragma unroll
            for (int i = 0; i < 4; i++)
                lines[there % 3 * FOUR + i * LINE + place] = found[i];
        there++;
    }
    HC_DEVICE const float *line(int segment) const { return lines + segment / 4 % 3 * FOUR + segment % 4 * LINE; }
};

/* An integer as a double: its low word after 2^52 + 2^31, which fewer clocks than a conversion. */
static inline HC_DEVICE double double_of(int32_t dot) {
    const uint64_t bits = (uint64_t)0x43300000 << 32 | ((uint32_t)dot ^ 0x80000000u);
    double sum;
    memcpy(&sum, &bits, sizeof sum);
    return sum - 4503601774854144.0;
}

/* A thread has the sums of two rows, and two columns of each eight. They go through shared memory, so that a thread stores four neighbours
 * of some rows. All products and copies of the block must have ended for this thread. */
template <bool is_grouped, int N, typename params, typename number>
static inline HC_DEVICE void store_all(const params &p, int64_t row, int64_t column, const number (&own)[N / 2]) {
    enum {
        PITCH = N + 8,
        ACROSS = N / 4,
        ROWS = THREADS / ACROSS
    }; /* rows of a warp's eight bytes are in other banks */
    const int lane = hc_lane();
    unsigned char *to = hc_shared() + ((hc_warp() * 16 + lane / 4) * PITCH + lane % 4 * 2) * 4;
    hc_barrier();
#pragma unroll
    for (int i = 0; i < N / 2; i += 2)
        memcpy(__builtin_assume_aligned(to + (i / 2 % 2 * (8 * PITCH) + i / 4 * 8) * 4, 8), own + i, 8);
    hc_barrier();
    const int first = (int)threadIdx.x % ACROSS * 4, first_row = (int)threadIdx.x / ACROSS;
    const bool has_fours = p.y_column == sizeof(float) && ((uintptr_t)p.y | (uintptr_t)p.y_row) % 16 == 0;
    const int there = (int)hc_min(p.n - column - first, 4); /* of the four columns */
    double w_scales[4];
    float bias[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        w_scales[c] = is_grouped ? 0 : (double)w_scale(p, column + first + c, 0);
        bias[c] = p.bias ? p.bias[hc_min(column + first + c, p.n - 1)] : 0;
    }
#pragma unroll 4
    for (int r = 0; r < BM; r += ROWS) {
        const int64_t at = row + first_row + r;
        const double x_of_row = is_grouped ? 0 : (double)x_scale(p, at, 0);
        alignas(16) number four[4];
        alignas(16) float y[4];
        memcpy(four, __builtin_assume_aligned(hc_shared() + ((first_row + r) * PITCH + first) * 4, 16), 16);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if constexpr (is_grouped)
                y[c] = finished<true>(0, 0, four[c]);
            else
                y[c] = (float)(x_of_row * w_scales[c] * double_of(four[c]));
            y[c] = p.bias ? y[c] + bias[c] : y[c];
        }
        if (at >= p.m)
            continue;
        char *line = p.y + at * p.y_row + (column + first) * p.y_column;
        if (has_fours && there == 4) {
            memcpy(__builtin_assume_aligned(line, 16), y, 16);
            continue;
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (c < there)
                *(float *)(line + c * p.y_column) = y[c];
    }
}

/* Where the tile of a block lies. Blocks that run at about the same time read few rows of x and of w: their order is by column within
 * 16 rows of tiles. */
struct tile_of_block {
    enum { ROWS = 16 };
    int64_t row, column; /* of tiles */
    HC_DEVICE tile_of_block() {
        const uint32_t number = blockIdx.y * gridDim.x + blockIdx.x, each = ROWS * gridDim.y;
        const uint32_t first = number / each * ROWS, rows = hc_min(gridDim.x - first, ROWS);
        row = first + number % each % rows;
        column = number % each / rows;
    }
};

/* Stages, operands behind them, and what step each is in. */
template <int N, typename weights> struct stages {
    enum { COUNT = N == 64 ? 8 : N == 128 ? 6 : 4, AHEAD = COUNT - 2 /* steps that copies are ahead */ };
    enum {
        EACH = X_BYTES + weights::STAGE_BYTES,
        OPERAND = N * STEP,
        BYTES = COUNT * EACH + weights::OPERANDS * OPERAND
    };
    const side<BM> x;
    weights w;
    const int64_t ld;
    const int steps;

    template <typename params>
    HC_DEVICE stages(const params &p, int64_t row, int64_t column)
        : x(p.x, row, p.m, p.ld), w(p, column), ld(p.ld), steps((int)((p.ld + STEP - 1) / STEP)) {}
    static HC_DEVICE unsigned char *stage(int step) { return hc_shared() + step % COUNT * EACH; }
    static HC_DEVICE unsigned char *operand(int step) {
        return weights::OPERANDS ? hc_shared() + COUNT * EACH + step % 3 * OPERAND : stage(step) + X_BYTES;
    }
    static HC_DEVICE void wait() { hc_copy_wait<AHEAD - 1>(); }
    HC_DEVICE void load(int step) const {
        if (step < steps)
            x.load(stage(step), step, ld);
        if (step + weights::EARLY < steps)
            w.load(stage(step + weights::EARLY) + X_BYTES, step + weights::EARLY);
        hc_copy_commit();
    }
    HC_DEVICE void decode(int step) {
        if (weights::OPERANDS == 0)
            return;
        w.fetch(step + 1);
        if (step < steps)
            w.decode(stage(step) + X_BYTES, operand(step));
    }
    HC_DEVICE void begin() {
        if (weights::EARLY)
            w.load(stage(0) + X_BYTES, 0);
        for (int i = 0; i < AHEAD; i++)
            load(i);
        wait();
        decode(0);
    }
};

template <int N, typename weights> static inline HC_DEVICE void folded_rows(const typename weights::params &p) {
    const int half = (int)threadIdx.x / 128;
    const tile_of_block tile;
    const int64_t row = tile.row * BM, column = tile.column * N;
    stages<N, weights> own(p, row, column);
    int32_t dots[N / 2] = {};
    own.begin();
    for (int step = 0; step < own.steps; step++) {
        hc_fence_shared();
        hc_barrier();
        const uint64_t a = hc_descriptor(hc_shared_address(own.stage(step) + half * (X_BYTES / 2)));
        const uint64_t b = hc_descriptor(hc_shared_address(own.operand(step)));
        hc_wgmma_fence();
        for (int k = 0; k < STEP; k += 32)
            hc_wgmma_s8(dots, a + k / 16, b + k / 16, true);
        hc_wgmma_commit();
        own.load(step + own.AHEAD); /* into a stage whose products ended for all before the barrier */
        own.decode(step + 1);
        hc_wgmma_wait<1>(dots);
        own.wait();
    }
    hc_wgmma_wait<0>(dots);
    hc_copy_wait<0>();
    store_all<false, N>(p, row, column, dots);
}

/* Sums times the scales of a thread's two rows, and of its columns of N. */
template <int N> struct scales_of_thread {
    float of_rows[2];
    alignas(16) float of_columns[N / 4];

    HC_DEVICE scales_of_thread(const float *x_scales, const float *w_scales) : of_rows{x_scales[0], x_scales[8]} {
#pragma unroll
        for (int j = 0; j < N / 4; j += 4)
            memcpy(of_columns + j, __builtin_assume_aligned(w_scales + j * 4, 16), 16);
    }
    HC_DEVICE void add(const int32_t *dots, float *sums) const {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[i] = fmaf(of_rows[i / 2 % 2] * of_columns[i / 4 * 2 + i % 2], (float)dots[i], sums[i]);
    }
};

/* Products of a segment end before its sums are scaled; those of the other warpgroup run meanwhile. */
template <int N> struct grouped {
    typedef hc_cuda_gemm params;
    typedef stages<N, bytes<N>> all;
    const int own_row, own_column; /* of a line of scales */
    all own;
    scales_of_segments<N, params> scales;
    int32_t dots[N / 2] = {};
    float sums[N / 2] = {};
    int segment = 0, rest; /* rest: bytes of k until it ends */
    bool adds = false;

    HC_DEVICE grouped(const params &p, int64_t row, int64_t column)
        : own_row(hc_warp() * 16 + hc_lane() / 4), own_column(BM + (int)threadIdx.x % 4 * 4), own(p, row, column),
          scales(p, row, column, hc_shared() + all::BYTES), rest(p.length) {}
    /* Half of the scales is read before the wait, as far as registers allow. */
    HC_DEVICE void end_segment(const float *line) {
        const scales_of_thread<N / 2> of_first(line + own_row, line + own_column);
        hc_wgmma_wait<0>(dots);
        of_first.add(dots, sums);
        scales_of_thread<N / 2>(line + own_row, line + own_column + N / 2).add(dots + N / 4, sums + N / 4);
    }
    /* Steps of whole segments of LENGTH. */
    template <int LENGTH> HC_DEVICE void add_whole(uint64_t a, uint64_t b) {
        const float *line = scales.line(segment); /* all are of one four */
#pragma unroll
        for (int k = 0; k < STEP; k += LENGTH) {
            hc_wgmma_fence();
#pragma unroll
            for (int i = k; i < k + LENGTH; i += 32)
                hc_wgmma_s8(dots, a + i / 16, b + i / 16, i > k);
            hc_wgmma_commit();
            end_segment(line + k / LENGTH * scales.LINE);
        }
        segment += STEP / LENGTH;
    }
    HC_DEVICE void add_any(uint64_t a, uint64_t b, int length) {
#pragma unroll 1
        for (int k = 0; k < STEP;) {
            const bool ends = segment < scales.segments && rest <= STEP - k;
            const int until = ends ? k + rest : STEP;
            rest -= until - k;
#pragma unroll 1
            for (; k < until; k += 32) {
                hc_wgmma_fence();
                hc_wgmma_s8(dots, a + k / 16, b + k / 16, adds);
                adds = true;
            }
            hc_wgmma_commit();
            if (!ends) {
                hc_wgmma_wait<0>(dots);
                continue;
            }
            end_segment(scales.line(segment));
            adds = false;
            rest = length;
            segment++;
        }
    }
    /* LENGTH: of all segments, which fill whole steps, or 0: any. */
    template <int LENGTH> HC_DEVICE void run(const params &p) {
        scales.fetch();
        own.begin();
        scales.store();
        for (int step = 0; step < own.steps; step++) {
            hc_fence_shared();
            hc_barrier();
            own.load(step + own.AHEAD);
            /* with the first segment of the next step */
            const bool brings = scales.lacks(segment + (LENGTH        ? STEP / (LENGTH + !LENGTH)
                                                        : rest > STEP ? 0
                                                                      : 1 + (STEP - rest) / p.length));
            if (brings)
                scales.fetch();
            const int warpgroup = (int)threadIdx.x / 128;
            const uint64_t a = hc_descriptor(hc_shared_address(own.stage(step) + warpgroup * (X_BYTES / 2)));
            const uint64_t b = hc_descriptor(hc_shared_address(own.operand(step)));
            if constexpr (LENGTH > 0)
                add_whole<LENGTH>(a, b);
            else
                add_any(a, b, p.length);
            if (brings)
                scales.store();
            own.wait();
        }
        hc_copy_wait<0>();
    }
};

template <int N, int LENGTH> static inline HC_DEVICE void grouped_rows(const hc_cuda_gemm &p) {
    const tile_of_block tile;
    const int64_t row = tile.row * BM, column = tile.column * N;
    grouped<N> own(p, row, column);
    own.template run<LENGTH>(p);
    store_all<true, N>(p, row, column, own.sums);
}

} // namespace

HC_KERNEL(hc_gemm_90a_folded_64, hc_cuda_gemm, 256) { folded_rows<64, bytes<64>>(p); }
HC_KERNEL(hc_gemm_90a_folded, hc_cuda_gemm, 256) { folded_rows<128, bytes<128>>(p); }
HC_KERNEL(hc_gemm_90a_folded_256, hc_cuda_gemm, 256) { folded_rows<256, bytes<256>>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_folded_64, hc_cuda_gemm_s4, 256) { folded_rows<64, codes<64>>(p); }
HC_KERNEL(hc_gemm_90a_nibbles_folded, hc_cuda_gemm_s4, 256) { folded_rows<128, codes<128>>(p); }
HC_KERNEL(hc_gemm_90a_grouped_64, hc_cuda_gemm, 256) { grouped_rows<64, 0>(p); }
HC_KERNEL(hc_gemm_90a_grouped, hc_cuda_gemm, 256) { grouped_rows<128, 0>(p); }
HC_KERNEL(hc_gemm_90a_g32_64, hc_cuda_gemm, 256) { grouped_rows<64, 32>(p); }
HC_KERNEL(hc_gemm_90a_g32, hc_cuda_gemm, 256) { grouped_rows<128, 32>(p); }
HC_KERNEL(hc_gemm_90a_g64, hc_cuda_gemm, 256) { grouped_rows<128, 64>(p); }
HC_KERNEL(hc_gemm_90a_g128_64, hc_cuda_gemm, 256) { grouped_rows<64, 128>(p); }
HC_KERNEL(hc_gemm_90a_g128, hc_cuda_gemm, 256) { grouped_rows<128, 128>(p); }

/* A thread has 16 codes of four rows at a time: neighbours in a row load and store neighbours. */
HC_KERNEL(hc_expand_nibbles, hc_cuda_expand_nibbles, 256) {
    enum { ROWS = 4 };
    const int64_t piece = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (piece * 16 >= p.ld)
        return;
    for (int64_t row = (int64_t)blockIdx.y * ROWS; row < p.n; row += (int64_t)gridDim.y * ROWS) {
        alignas(8) uint32_t words[ROWS][2];
        uint32_t scales[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t own = hc_min(row + i, p.n - 1);
            memcpy(words[i], __builtin_assume_aligned(p.w + own * p.w_stride + piece * 8, 8), 8);
            scales[i] =
                p.group_scales ? p.group_scales[own * p.group_scales_stride + piece / 2] >> piece % 2 * 4 & 15 : 1;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            alignas(16) uint32_t bytes[4];
            hc_decode_nibbles(words[i][0], scales[i], scales[i], bytes);
            hc_decode_nibbles(words[i][1], scales[i], scales[i], bytes + 2);
            if (row + i < p.n)
                memcpy(__builtin_assume_aligned(p.to + (row + i) * p.ld + piece * 16, 16), bytes, 16);
        }
    }
}
