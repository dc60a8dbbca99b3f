/* Few vectors of floats times rows whose codes are read as words, lanes and chains as in gemv.h: codes of 4 bits are integers with a sign
 * or stand for entries of a table, an argument of the kernel; those of 8 are integers with a sign.
 */
#ifndef HC_CUDA_WORDS_H
#define HC_CUDA_WORDS_H

#include "cuda/gemv.h"

/* Codes read as words. */
typedef enum { HC_GEMV_NIBBLES, HC_GEMV_TABLE, HC_GEMV_BYTES } hc_gemv_codes;

/* A word as its codes are read: of a table, even and odd codes as bytes times four, which lie so far into it; of bytes, unsigned ones. */
template <hc_gemv_codes CODES> struct hc_gemv_word_of {
    uint32_t even, odd;
    HC_DEVICE void set(uint32_t word) {
        even = CODES == HC_GEMV_TABLE ? word << 2 & 0x3c3c3c3cu : CODES == HC_GEMV_BYTES ? word ^ 0x80808080u : word;
        odd = CODES == HC_GEMV_TABLE ? word >> 2 & 0x3c3c3c3cu : 0;
    }
    /* Code c + i as a float, exactly, c a multiple of four: below the exponent of 2^(23 - place), bit `place` has the weight 1. There
     * integers with a sign are unsigned ones, 8 more, or 128. */
    HC_DEVICE float code(const float *table, int c, int i) const {
        if (CODES == HC_GEMV_TABLE)
            return *(const float *)((const char *)table +
                                    hc_permute_bytes(i % 2 ? odd : even, 0, 0x4440 + (c + i) / 2));
        if (CODES == HC_GEMV_BYTES)
            return hc_f32_from_bits(hc_permute_bytes(even, 0x4b000000u, 0x7440 + i)) - 8388736.0f;
        const int place = 4 * i;
        return hc_f32_from_bits(
                   hc_and_xor(even >> 4 * c, 15u << place, (0x4b000000u - ((uint32_t)place << 23)) | 8u << place)) -
               (float)((1 << (23 - place)) + 8);
    }
};

/* One of four registers, also where `i` is no constant. */
static inline HC_DEVICE uint32_t hc_gemv_word(const uint32_t (&words)[4], int i) {
    return i < 2 ? (i == 0 ? words[0] : words[1]) : i == 2 ? words[2] : words[3];
}

/* Columns of x from an address on. */
struct hc_gemv_input {
    const char *x;
    int64_t stride;
    HC_DEVICE void load(float (&four)[4], int v, int column) const {
        hc_load_16(four, x + v * stride + column * (int)sizeof(float));
    }
};
/* Columns of x of a lane in shared memory, where a vector has BYTES. */
template <int BYTES> struct hc_gemv_here {
    const unsigned char *x;
    HC_DEVICE void load(float (&four)[4], int v, int column) const {
        memcpy(four, __builtin_assume_aligned(x + v * BYTES + column * (int)sizeof(float), 16), 16);
    }
};

/* ROWS rows of words, as many codes in all as WORDS hold, times values of x: one chain of fma, or one for each of eight values. */
template <hc_gemv_codes CODES, int WORDS, typename values, int CHAINS, int MOST, int ROWS>
static inline HC_DEVICE void hc_gemv_piece(const hc_cuda_gemv &p, const float *table, const uint32_t (&words)[ROWS][4],
                                           int first_word, const values &x, float (&chains)[ROWS][MOST][CHAINS]) {
    enum { IN_WORD = CODES == HC_GEMV_BYTES ? 4 : 8 };
    enum { UNROLLED = MOST == 1 || CHAINS > 1 ? IN_WORD / 4 : 1 /* chains are registers */ };
    enum { WORDS_UNROLLED = CODES == HC_GEMV_BYTES && MOST > 1 && CHAINS == 1 ? 1 : WORDS /* else registers spill */ };
#pragma unroll(WORDS_UNROLLED)
    for (int w = 0; w < WORDS; w++) {
        hc_gemv_word_of<CODES> word[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            word[r].set(hc_gemv_word(words[r], first_word + w));
#pragma unroll(UNROLLED)
        for (int c = 0; c < IN_WORD; c += 4) {
            float codes[ROWS][4], four[4];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    codes[r][i] = word[r].code(table, c, i);
#pragma unroll
            for (int v = 0; v < MOST; v++) {
                if (MOST > 1 && v >= (int)p.vectors)
                    continue;
                x.load(four, v, (first_word + w) * IN_WORD + c);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float *chain = &chains[r][v][CHAINS == 1 ? 0 : w * IN_WORD + c + i];
                        *chain = fmaf(four[i], codes[r][i], *chain);
                    }
            }
        }
    }
}

/* How a family declares scales that gemv reads as they are stored: their widths next to codes of so many bits, whether HC_COARSE
 * multiplies them, and their value. With HC_DECODED_SCALES, whole groups of other scales are read by words too. */
enum { HC_DECODED_SCALES = 1 };
#define HC_STORED_SCALES(widths, has_coarse, value)                                                                    \
    enum { HAS_COARSE = has_coarse };                                                                                  \
    static constexpr HC_DEVICE int scale_widths(int bits) { return (void)bits, widths; }                               \
    static HC_DEVICE float stored_scale(uint32_t bits, int width, float coarse) {                                      \
        (void)width, (void)coarse;                                                                                     \
        return value;                                                                                                  \
    }
/* A float of 32 or 16 bits. */
static inline HC_DEVICE float hc_gemv_float(uint32_t bits, int width) {
    return width == 32 ? hc_f32_from_bits(bits) : hc_f16_to_f32((uint16_t)bits);
}

/* A scale of WIDTH bits, or the byte it is part of. */
template <int WIDTH> static inline HC_DEVICE uint32_t hc_gemv_scale_bits(const uint8_t *from) {
    if constexpr (WIDTH == 32)
        return *(const uint32_t *)from;
    else if constexpr (WIDTH == 16)
        return *(const uint16_t *)from;
    else
        return WIDTH ? *from : 0;
}

/* The rows of a thread, each as an array of one row, and their sums. */
template <typename format, bool has_groups, hc_gemv_codes CODES, int MOST, int ROWS> struct hc_gemv_reader {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, IN_WORD = CODES == HC_GEMV_BYTES ? 4 : 8 };
    /* Tables are read from shared memory, which then passes as much as it can: whole groups of codes do not go through it. */
    enum { IN_REGISTERS = CODES == HC_GEMV_TABLE };
    typedef uint32_t piece[ROWS][4];
    const hc_cuda_gemv &p;
    const float *table;
    hc_geometry by_group; /* a column of it is a group, whose scale decode_codes gives */
    hc_components parts[ROWS];
    const int lane;
    float sums[ROWS][MOST][CHAINS], row_scale[ROWS], coarse[ROWS];

    HC_DEVICE hc_gemv_reader(const hc_cuda_gemv &given, const float *levels)
        : p(given), table(levels), lane((int)threadIdx.x % LANES), sums{} {
        by_group = p.geometry;
        by_group.group = 1;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int row = hc_min(row_of(r), (int)p.geometry.rows - 1);
            for (int i = 0; i < HC_N_COMPONENTS; i++)
                parts[r].part[i] = {p.parts.part[i].data + row * p.parts.part[i].row_stride, 0, 0};
            parts[r].first_row = p.parts.first_row + row;
            scale_of(r, 0, &row_scale[r]);
            coarse[r] = format::HAS_COARSE ? hc_load_f32(parts[r].part[HC_COARSE].data) : 1;
        }
    }
    HC_DEVICE int row_of(int r) const { return (int)(blockIdx.x * blockDim.x + threadIdx.x) / LANES * ROWS + r; }
    HC_DEVICE float scale_of(int r, int64_t group, float *of_row) const {
        float scale = 1, code;
        const hc_tile tile = {0, 1, group, 1};
        const hc_code_tile out = {&code, 1, &scale, 1, of_row};
        format::decode_codes(&p.format, &by_group, &parts[r], &tile, &out);
        return scale;
    }
    /* Where codes are `byte` bytes into a row, and the scale of group `lane`, of WIDTH bits; in loops, addresses are carried on. */
    template <int WIDTH> struct place {
        enum { TURN = LANES * WIDTH / 8 }; /* bytes from a lane's scale to its next */
        const uint8_t *codes[ROWS], *scales[ROWS];
        HC_DEVICE place(const hc_gemv_reader &reader, int64_t byte) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                codes[r] = reader.parts[r].part[HC_CODES].data + byte;
                if (has_groups)
                    scales[r] = reader.parts[r].part[HC_SCALES].data + reader.lane * WIDTH / 8;
            }
        }
        HC_DEVICE void load_scales(uint32_t (&scale)[ROWS], int turns) const {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                scale[r] = hc_gemv_scale_bits<WIDTH>(scales[r] + turns * TURN);
        }
        HC_DEVICE void move(int64_t bytes) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                codes[r] += bytes;
        }
        HC_DEVICE void move_scales(int turns) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                scales[r] += turns * TURN;
        }
    };
    HC_DEVICE void end_group(const float (&scale)[ROWS], const float (&chains)[ROWS][MOST][1]) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int v = 0; v < MOST; v++)
                if (MOST == 1 || v < (int)p.vectors)
                    sums[r][v][0] = fmaf(scale[r], chains[r][v][0], sums[r][v][0]);
    }
    template <int WIDTH>
    HC_DEVICE void end_group_of(const uint32_t (&found)[ROWS], int64_t group, const float (&chains)[ROWS][MOST][1]) {
        float scale[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const uint32_t bits = WIDTH == 4 ? found[r] >> lane % 2 * 4 & 15 : found[r];
            float unused;
            scale[r] = WIDTH ? format::stored_scale(bits, WIDTH, coarse[r]) : scale_of(r, group, &unused);
        }
        end_group(scale, chains);
    }
    HC_DEVICE const char *x_at(int64_t column) const { return p.x.data + column * (int64_t)sizeof(float); }

    /* A step, 16 bytes of codes of each lane and the values of x for them, arrives in shared memory some steps ahead. x serves all
     * rows of a block: a lane has a line, of which each thread copies a piece. A gap of 16 follows 128 bytes, so that eight lanes read
     * all banks. */
    struct coming_steps {
        enum { STAGES = IN_REGISTERS ? 2 : HC_CUDA_GEMV_STAGES(MOST), COLUMNS = 4 * IN_WORD, PIECES = COLUMNS / 4 };
        enum { BYTES = LANES * COLUMNS * 4 / 8 * 9, CODE_BYTES = HC_CUDA_GEMV_THREADS * 16 };
        typedef hc_gemv_here<BYTES> values;
        const hc_cuda_gemv &p;
        const char *from; /* this thread's piece of x of the step that is copied next */
        const int to, own, codes_at, codes_to, stage_bytes;
        int at, last; /* the stage that is read, and where the next goes, which is free at that time */
        /* block_bytes: of a row, whose lanes have some of each block of a step */
        HC_DEVICE coming_steps(const hc_cuda_gemv &given, const char *first, int lane, int block_bytes)
            : p(given), from(first), to(place_of(line()) + x_piece() * 16), own(place_of(lane)),
              codes_at(BYTES * (MOST == 1 ? 1 : (int)p.vectors)),
              codes_to(place_of_codes(lane * 16 / block_bytes) * block_bytes + lane * 16 % block_bytes),
              stage_bytes(codes_at + ROWS * CODE_BYTES), at((STAGES - 1) * stage_bytes), last(0) {}
        /* Blocks of all rows are neighbours, those of a row at different banks. */
        static HC_DEVICE int place_of_codes(int block) {
            return block * (HC_CUDA_GEMV_THREADS / LANES) + ((int)threadIdx.x / LANES ^ block);
        }
        static HC_DEVICE int line() { return (int)threadIdx.x / PIECES; }
        static HC_DEVICE int x_piece() { return (int)threadIdx.x % PIECES; }
        static HC_DEVICE int place_of(int line) { return (line * PIECES + line * PIECES / 8) * 16; }
        static HC_DEVICE unsigned char *stage(int at) { return hc_shared() + sizeof(hc_cuda_gemv::table) + at; }
        HC_DEVICE int after(int stage) const { return stage == (STAGES - 1) * stage_bytes ? 0 : stage + stage_bytes; }
        /* The next step, as far as this thread's pieces are there; then x moves on. */
        HC_DEVICE void copy(bool has_x, int64_t bytes, bool has_codes, const uint8_t *const (&codes)[ROWS]) {
            unsigned char *const stage = this->stage(last);
            if (has_x && line() < LANES)
#pragma unroll
                for (int v = 0; v < MOST; v++)
                    if (MOST == 1 || v < (int)p.vectors)
                        hc_copy_16_of_many(stage + v * BYTES + to, from + v * p.x.rows.stride[0], true);
            if (has_codes)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    hc_copy_16(stage + codes_at + r * CODE_BYTES + codes_to, codes[r]);
            hc_copy_commit();
            from += bytes;
            last = after(last);
        }
        /* The first step that was not waited for, of all threads; then another may be copied. */
        HC_DEVICE values wait() {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            at = after(at);
            return {stage(at) + own};
        }
        /* This thread's words of block i of that step. */
        template <int WORDS> HC_DEVICE void load(piece &words, int i) const {
            const unsigned char *const block =
                stage(at) + codes_at + (place_of_codes(i) * LANES + (int)threadIdx.x % LANES) * (WORDS * 4);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                memcpy(words[r] + i * WORDS, __builtin_assume_aligned(block + r * CODE_BYTES, WORDS * 4), WORDS * 4);
        }
    };

    /* Blocks in which a lane has WORDS words, a group or eight columns, 4 / WORDS blocks at a time; the first block that is left. */
    template <int WORDS, int WIDTH> HC_DEVICE int64_t own_words() {
        enum { AT_ONCE = 4 / WORDS, SPAN = WORDS * IN_WORD, BYTES = LANES * WORDS * 4 }; /* of a block */
        enum { STEP_BYTES = LANES * coming_steps::COLUMNS * (int)sizeof(float) };
        const int blocks = (int)p.geometry.columns / (LANES * SPAN) / AT_ONCE * AT_ONCE;
        const int column = coming_steps::x_piece() * 4; /* of the lane's */
        coming_steps coming(p, x_at(column / SPAN * (LANES * SPAN) + coming_steps::line() * SPAN + column % SPAN), lane,
                            BYTES);
        place<WIDTH> from(*this, lane * 16);
        piece words;
        uint32_t scales[AT_ONCE][ROWS], next_scales[AT_ONCE][ROWS];
        int copied = 0;
        const auto copy = [&]() {
            coming.copy(copied < blocks, STEP_BYTES, copied < blocks, from.codes);
            from.move(AT_ONCE * BYTES);
            copied += AT_ONCE;
        };
        const auto load_scales = [&]() {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                from.load_scales(next_scales[i], i);
        };
        if (has_groups && blocks)
            load_scales();
#pragma unroll
        for (int i = 0; i < coming_steps::STAGES - 1; i++)
            copy();
        for (int block = 0; block < blocks; block += AT_ONCE) {
            const auto values = coming.wait();
            copy();
            if constexpr (has_groups) {
                memcpy(scales, next_scales, sizeof scales);
                from.move_scales(AT_ONCE);
                if (block + AT_ONCE < blocks)
                    load_scales();
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                coming.template load<WORDS>(words, i);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if constexpr (has_groups) {
                    float chains[ROWS][MOST][1] = {};
                    hc_gemv_piece<CODES, WORDS>(p, table, words, i * WORDS, values, chains);
                    end_group_of<WIDTH>(scales[i], (block + i) * LANES + lane, chains);
                } else {
                    hc_gemv_piece<CODES, WORDS>(p, table, words, i * WORDS, values, sums);
                }
            }
        }
        return blocks;
    }
    /* Groups of whole 16 bytes. */
    template <int WIDTH> HC_DEVICE void whole_groups() {
        enum { STEP_BYTES = coming_steps::COLUMNS * (int)sizeof(float) };
        const int groups = (int)p.geometry.groups, parts = (int)p.geometry.group / coming_steps::COLUMNS;
        const int to_next = (LANES - 1) * parts * 16 + 16;
        const int64_t x_to_next = (LANES - 1) * p.geometry.group * (int64_t)sizeof(float) + STEP_BYTES;
        coming_steps coming(p, x_at(coming_steps::line() * p.geometry.group + coming_steps::x_piece() * 4), lane,
                            LANES * 16);
        place<WIDTH> from(*this, lane * (int64_t)parts * 16);
        piece words, next = {};
        uint32_t scales[ROWS] = {};
        int copied = 0, copied_parts = 0; /* groups, and parts of the next */
        const auto copy = [&]() {
            const bool is_last = copied_parts + 1 == parts;
            const bool has_codes = copied + lane < groups;
            coming.copy(copied + coming_steps::line() < groups, is_last ? x_to_next : STEP_BYTES,
                        has_codes && !IN_REGISTERS, from.codes);
            if (has_codes && IN_REGISTERS)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    memcpy(next[r], __builtin_assume_aligned(from.codes[r], 16), 16);
            from.move(is_last ? to_next : 16);
            copied += is_last ? LANES : 0;
            copied_parts = is_last ? 0 : copied_parts + 1;
        };
#pragma unroll
        for (int i = 0; i < coming_steps::STAGES - 1; i++)
            copy();
        for (int first = 0; first < groups;
             first += LANES) { /* the same turns for all threads, which meet at barriers */
            const bool is_valid = first + lane < groups;
            float chains[ROWS][MOST][1] = {};
            if (is_valid)
                from.load_scales(scales, 0);
            from.move_scales(1);
            for (int part = 0; part < parts; part++) {
                const auto values = coming.wait();
                memcpy(words, next, sizeof words);
                copy();
                if (!is_valid)
                    continue;
                if (!IN_REGISTERS)
                    coming.template load<4>(words, 0);
                hc_gemv_piece<CODES, 4>(p, table, words, 0, values, chains);
            }
            if (is_valid)
                end_group_of<WIDTH>(scales, first + lane, chains);
        }
    }
    /* By the fewest words, from a block on: groups may be cut by the end of a run, and there may be several. */
    HC_DEVICE void few_words(int64_t block) {
        enum { WORDS = has_groups || CODES == HC_GEMV_BYTES ? 2 : 1 };
        const hc_geometry &g = p.geometry;
        const int64_t span = has_groups ? g.group : 8, in_run_groups = has_groups ? g.groups_per_run : 0;
        piece words;
        for (int64_t item = block * LANES + lane; item * span < g.padded; item += LANES) {
            const int64_t run = has_groups && g.runs > 1 ? HC_ROW_QUOTIENT(item, in_run_groups) : 0;
            const int64_t first = item * span, in_run = first - run * in_run_groups * span;
            const int64_t values = hc_min(span, (has_groups ? g.run_length : g.columns) - in_run);
            const char *x = x_at(run * g.run_length + in_run);
            float chains[ROWS][MOST][1] = {};
            for (int64_t c = 0; c < values; c += WORDS * IN_WORD) { /* whole pieces, as the planner saw to */
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    memcpy(
                        words[r],
                        __builtin_assume_aligned(parts[r].part[HC_CODES].data + (first + c) * 4 / IN_WORD, WORDS * 4),
                        WORDS * 4);
                const hc_gemv_input there = {x + c * (int)sizeof(float), p.x.rows.stride[0]};
                if constexpr (has_groups)
                    hc_gemv_piece<CODES, WORDS>(p, table, words, 0, there, chains);
                else
                    hc_gemv_piece<CODES, WORDS>(p, table, words, 0, there, sums);
            }
            if constexpr (has_groups) {
                float scale[ROWS], unused;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    scale[r] = scale_of(r, item, &unused);
                end_group(scale, chains);
            }
        }
    }
    /* Groups by words, where their scales have WIDTH bits, or are decoded: 0; how many blocks of them there were. */
    template <int WIDTH> HC_DEVICE void groups_with(int64_t &blocks) {
        const int bytes = (int)p.geometry.group * 4 / IN_WORD;
        constexpr int widths = format::scale_widths(32 / IN_WORD);
        constexpr bool has_room = CODES != HC_GEMV_BYTES || MOST == 1 || widths <= 16; /* else registers spill */
        if constexpr (has_groups && has_room && (widths & (WIDTH ? WIDTH : HC_DECODED_SCALES)))
            if (p.scale_bits == WIDTH) {
                if (CODES != HC_GEMV_BYTES && bytes == 8) {
                    blocks = own_words<2, WIDTH>();
                } else if (bytes % 16 == 0) {
                    whole_groups<WIDTH>();
                    blocks = p.geometry.groups;
                }
            }
    }
    HC_DEVICE void run() {
        int64_t block = 0;
        if (p.has_16) {
            if constexpr (!has_groups)
                block = own_words<CODES == HC_GEMV_BYTES ? 2 : 1, 0>();
            groups_with<0>(block);
            groups_with<4>(block);
            groups_with<8>(block);
            groups_with<16>(block);
            groups_with<32>(block);
        }
        few_words(block);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            hc_gemv_store<has_groups>(p, row_of(r), row_scale[r], sums[r]);
    }
};

template <hc_gemv_codes CODES, int MOST, typename format, bool has_groups>
static inline HC_DEVICE void hc_gemv_words(const hc_cuda_gemv &p) {
    float *table = (float *)hc_shared();
    if constexpr (CODES == HC_GEMV_TABLE) {
        for (int i = (int)threadIdx.x; i < 16; i += (int)blockDim.x)
            table[i] = p.table[i];
        hc_barrier();
    }
    hc_gemv_reader<format, has_groups, CODES, MOST, MOST == 1 ? HC_CUDA_GEMV_ROWS : 1>(p, table).run();
}

/* Those that read words of so many bits a code: of one vector, and of up to eight. */
#define HC_GEMV_WORDS(family, format, kinds, bits, codes)                                                              \
    HC_KERNEL(hc_gemv_##family##_b##bits##_v1, hc_cuda_gemv, 128, 4) {                                                 \
        HC_GEMV_KINDS(kinds, hc_gemv_words, codes, 1, format);                                                         \
    }                                                                                                                  \
    HC_KERNEL(hc_gemv_##family##_b##bits##_v8, hc_cuda_gemv, 128, kinds == HC_WITH_GROUPS ? 5 : 3) {                   \
        HC_GEMV_KINDS(kinds, hc_gemv_words, codes, HC_GEMV_VECTORS, format);                                           \
    }

#endif
