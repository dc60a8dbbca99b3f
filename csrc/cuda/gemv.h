/* Few vectors of floats times packed rows, in the CPU's order. With groups, thread i of 16 has the groups i, i + 16, ...: one chain
 * of fma in a group, one over its groups. Without, thread i of 8 has the columns 8 i to 8 i + 7 of every 64, an accumulator each.
 *
 * Where the planner allows, codes are read as words: codes of 4 bits are integers with a sign or stand for entries of a table,
 * those of 8 are integers with a sign. Else a thread decodes a piece of its row to shared memory.
 */
#ifndef HC_CUDA_GEMV_H
#define HC_CUDA_GEMV_H

#include "cuda/codec.h"

enum { HC_GEMV_VECTORS = 8 };
/* Codes read as words. */
typedef enum { HC_GEMV_NIBBLES, HC_GEMV_TABLE, HC_GEMV_BYTES } hc_gemv_codes;

/* Adds what the lanes of a row have, and the answers that are there. */
template <bool has_groups, int MOST, int CHAINS>
static inline HC_DEVICE void hc_gemv_store(const hc_cuda_gemv &p, int64_t row, float row_scale,
                                           float (&sums)[MOST][CHAINS]) {
    enum { LANES = has_groups ? 16 : 8 };
#pragma unroll
    for (int v = 0; v < MOST; v++) {
        if (v >= (int)p.vectors)
            continue;
#pragma unroll
        for (int mask = LANES / 2; mask > 0; mask /= 2)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                sums[v][i] = hc_shuffle_add(sums[v][i], mask);
#pragma unroll
        for (int half = CHAINS / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; i++)
                sums[v][i] = sums[v][i] + sums[v][i + half];
        float sum = sums[v][0] * row_scale;
        if (sum != sum)
            sum = hc_f32_from_bits(0x7fc00000); /* every NaN is the same one */
        if (row >= p.geometry.rows || (int)threadIdx.x % LANES)
            continue;
        if (p.bias)
            sum += p.bias[row];
        *(float *)(p.y + v * p.y_row + row * p.y_column) = sum;
    }
}

/* A thread decodes. */
template <typename format, bool has_groups> static inline HC_DEVICE void hc_gemv_decoded(const hc_cuda_gemv &p) {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, MOST = HC_GEMV_VECTORS };
    const hc_geometry &g = p.geometry;
    const int lane = (int)threadIdx.x % LANES, vectors = (int)p.vectors;
    const int64_t wanted = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES, row = hc_min(wanted, g.rows - 1);
    const int64_t padded_run = g.padded / g.runs, span = has_groups ? g.group : 8;
    float *codes = (float *)hc_shared() + (int64_t)threadIdx.x * p.ld;
    float scale = 1, row_scale = 1, sums[MOST][CHAINS] = {};
    for (int64_t first = lane * span; first < g.padded; first += LANES * span) {
        const int columns = (int)hc_min(span, g.padded - first);
        /* a group lies in one run, and is padded at its end */
        const int64_t run = has_groups ? first / padded_run : 0, in_run = first - run * padded_run;
        const int values = (int)hc_min(columns, has_groups ? g.run_length - in_run : g.columns - first);
        const char *x = p.x.data + (has_groups ? run * g.run_length + in_run : first) * p.x.column_stride;
        float chains[MOST][1] = {};
        const hc_tile tile = {row, 1, first, columns};
        const hc_code_tile out = {codes, columns, &scale, 1, &row_scale};
        format::decode_codes(&p.format, &g, &p.parts, &tile, &out);
        for (int c = 0; c < values; c += CHAINS)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) {
                if (c + i >= values)
                    continue;
#pragma unroll
                for (int v = 0; v < MOST; v++) {
                    if (v >= vectors)
                        continue;
                    float *sum = has_groups ? &chains[v][0] : &sums[v][i];
                    const char *at = x + v * p.x.rows.stride[0] + (c + i) * p.x.column_stride;
                    *sum = fmaf(hc_load_value(at, p.x.dtype), codes[c + i], *sum);
                }
            }
#pragma unroll
        for (int v = 0; v < MOST; v++)
            if (has_groups && v < vectors)
                sums[v][0] = fmaf(scale, chains[v][0], sums[v][0]);
    }
    hc_gemv_store<has_groups>(p, wanted, row_scale, sums);
}

/* Code i of the first four of a word as a float, exactly: below the exponent of 2^(23 - place), bit `place` has the weight 1. */
template <hc_gemv_codes CODES> static inline HC_DEVICE float hc_gemv_code(const float *table, uint32_t word, int i) {
    if (CODES == HC_GEMV_TABLE)
        return table[word >> 4 * i & 15];
    if (CODES == HC_GEMV_BYTES)
        return hc_f32_from_bits(hc_permute_bytes(word ^ 0x80808080u, 0x4b000000u, 0x7440 + i)) - 8388736.0f;
    const int place = 4 * i;
    const uint32_t unsigned_code = (word ^ 0x8888u) & 15u << place;
    return hc_f32_from_bits(unsigned_code | (0x4b000000u - ((uint32_t)place << 23))) - (float)((1 << (23 - place)) + 8);
}

/* ROWS rows of words, as many codes in all as WORDS hold, times values of x: one chain of fma, or one for each of eight values. */
template <hc_gemv_codes CODES, int WORDS, int CHAINS, int MOST, int ROWS>
static inline HC_DEVICE void hc_gemv_piece(const hc_cuda_gemv &p, const float *table, const uint32_t (&words)[ROWS][4],
                                           int first_word, const char *x, float (&chains)[ROWS][MOST][CHAINS]) {
    enum { IN_WORD = CODES == HC_GEMV_BYTES ? 4 : 8, BITS = 32 / IN_WORD };
    enum { UNROLLED = MOST == 1 || CHAINS > 1 ? IN_WORD / 4 : 1 /* chains are registers */ };
#pragma unroll
    for (int w = 0; w < WORDS; w++)
#pragma unroll(UNROLLED)
        for (int c = 0; c < IN_WORD; c += 4) {
            float codes[ROWS][4], four[4];
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    codes[r][i] = hc_gemv_code<CODES>(table, words[r][first_word + w] >> BITS * c, i);
#pragma unroll
            for (int v = 0; v < MOST; v++) {
                if (v >= (int)p.vectors)
                    continue;
                hc_load_16(four, x + v * p.x.rows.stride[0] + (w * IN_WORD + c) * (int)sizeof(float));
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

/* Words of 16 bytes that neighbouring lanes share: lane i of 4 / WORDS has read those of block i, and takes its own of all blocks. */
template <int WORDS> static inline HC_DEVICE void hc_gemv_exchange(uint32_t (&words)[4]) {
#pragma unroll
    for (int bit = WORDS; bit < 4; bit *= 2) { /* a bit of the word, and that of the lane */
        const bool is_odd = (int)threadIdx.x & bit / WORDS;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & bit)
                continue;
            const uint32_t other = hc_shuffle_xor(is_odd ? words[i] : words[i | bit], bit / WORDS);
            words[i] = is_odd ? other : words[i];
            words[i | bit] = is_odd ? words[i | bit] : other;
        }
    }
}

/* Row by row of a thread: where codes lie, and its sums. */
template <typename format, bool has_groups, hc_gemv_codes CODES, int MOST, int ROWS> struct hc_gemv_reader {
    enum { LANES = has_groups ? 16 : 8, CHAINS = has_groups ? 1 : 8, IN_WORD = CODES == HC_GEMV_BYTES ? 4 : 8 };
    const hc_cuda_gemv &p;
    const float *table;
    hc_geometry by_group; /* a column of it is a group, whose scale decode_codes gives */
    const uint8_t *from[ROWS];
    int64_t row[ROWS];
    int lane;
    float sums[ROWS][MOST][CHAINS], row_scale[ROWS];

    HC_DEVICE hc_gemv_reader(const hc_cuda_gemv &given, const float *levels) : p(given), table(levels), sums{} {
        const int64_t team = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
        lane = (int)threadIdx.x % LANES;
        by_group = p.geometry;
        by_group.group = 1;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            row[r] = team * ROWS + r;
            const int64_t there = hc_min(row[r], p.geometry.rows - 1);
            from[r] = p.parts.part[HC_CODES].data + there * p.parts.part[HC_CODES].row_stride;
            scale_of(r, 0, &row_scale[r]);
        }
    }
    HC_DEVICE float scale_of(int r, int64_t group, float *of_row) const {
        float scale = 1, code;
        const hc_tile tile = {hc_min(row[r], p.geometry.rows - 1), 1, group, 1};
        const hc_code_tile out = {&code, 1, &scale, 1, of_row};
        format::decode_codes(&p.format, &by_group, &p.parts, &tile, &out);
        return scale;
    }
    HC_DEVICE void load_16(uint32_t (&words)[ROWS][4], int64_t byte) const {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float four[4];
            hc_load_16(four, from[r] + byte);
#pragma unroll
            for (int i = 0; i < 4; i++)
                words[r][i] = hc_f32_bits(four[i]);
        }
    }
    /* Some words at a multiple of their size. */
    template <int WORDS> HC_DEVICE void load_few(uint32_t (&words)[ROWS][4], int64_t byte) const {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            memcpy(words[r], __builtin_assume_aligned(from[r] + byte, WORDS * 4), WORDS * 4);
    }
    HC_DEVICE void end_group(int64_t group, float (&chains)[ROWS][MOST][1]) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float unused;
            const float scale = scale_of(r, group, &unused);
#pragma unroll
            for (int v = 0; v < MOST; v++)
                if (v < (int)p.vectors)
                    sums[r][v][0] = fmaf(scale, chains[r][v][0], sums[r][v][0]);
        }
    }
    HC_DEVICE const char *x_at(int64_t column) const { return p.x.data + column * (int64_t)sizeof(float); }

    /* Blocks in which a lane has WORDS words, 4 / WORDS blocks at a time; the first block that is left. */
    template <int WORDS> HC_DEVICE int64_t shared_words() {
        enum { AT_ONCE = 4 / WORDS, COLUMNS = WORDS * IN_WORD, BLOCK = LANES * COLUMNS };
        const int64_t blocks = p.geometry.columns / BLOCK / AT_ONCE * AT_ONCE;
        const int64_t own = lane % AT_ONCE * (int64_t)(LANES * WORDS * 4) + lane / AT_ONCE * 16;
        uint32_t words[ROWS][4], next[ROWS][4];
        if (blocks)
            load_16(next, own);
        for (int64_t block = 0; block < blocks; block += AT_ONCE) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    words[r][i] = next[r][i];
                hc_gemv_exchange<WORDS>(words[r]);
            }
            if (block + AT_ONCE < blocks)
                load_16(next, own + (block + AT_ONCE) * (LANES * WORDS * 4));
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                add_item<WORDS>(words, i * WORDS, block + i, COLUMNS);
        }
        return blocks;
    }
    /* Words of one block: a group, or eight columns. */
    template <int WORDS>
    HC_DEVICE void add_item(const uint32_t (&words)[ROWS][4], int first_word, int64_t block, int columns) {
        const int64_t item = block * LANES + lane;
        if constexpr (has_groups) {
            float chains[ROWS][MOST][1] = {};
            hc_gemv_piece<CODES, WORDS>(p, table, words, first_word, x_at(item * columns), chains);
            end_group(item, chains);
        } else {
            hc_gemv_piece<CODES, WORDS>(p, table, words, first_word, x_at(item * columns), sums);
        }
    }
    /* Groups of whole 16 bytes, the next of which are on their way. */
    HC_DEVICE void whole_groups() {
        const int64_t groups = p.geometry.groups, bytes = p.geometry.group * 4 / IN_WORD;
        uint32_t words[ROWS][4], next[ROWS][4];
        if (lane < groups)
            load_16(next, lane * bytes);
        for (int64_t group = lane; group < groups; group += LANES) {
            float chains[ROWS][MOST][1] = {};
            for (int64_t byte = 0; byte < bytes; byte += 16) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        words[r][i] = next[r][i];
                if (byte + 16 < bytes)
                    load_16(next, group * bytes + byte + 16);
                else if (group + LANES < groups)
                    load_16(next, (group + LANES) * bytes);
                hc_gemv_piece<CODES, 4>(p, table, words, 0, x_at(group * p.geometry.group + byte * IN_WORD / 4),
                                        chains);
            }
            end_group(group, chains);
        }
    }
    /* By the fewest words, from a block on: groups may be cut by the end of a run, and there may be several. */
    HC_DEVICE void few_words(int64_t block) {
        enum { WORDS = has_groups || CODES == HC_GEMV_BYTES ? 2 : 1 };
        const hc_geometry &g = p.geometry;
        const int64_t span = has_groups ? g.group : 8, in_run_groups = has_groups ? g.groups_per_run : 0;
        uint32_t words[ROWS][4];
        for (int64_t item = block * LANES + lane; item * span < g.padded; item += LANES) {
            /* 32 bits, as the planner saw to: those of 64 are calls, around which registers are spilled */
            const int64_t run = has_groups && g.runs > 1 ? (uint32_t)item / (uint32_t)in_run_groups : 0;
            const int64_t first = item * span, in_run = first - run * in_run_groups * span;
            const int64_t values = hc_min(span, (has_groups ? g.run_length : g.columns) - in_run);
            const char *x = x_at(run * g.run_length + in_run);
            if constexpr (has_groups) {
                float chains[ROWS][MOST][1] = {};
                for (int64_t c = 0; c < values; c += WORDS * IN_WORD) { /* whole pieces, as the planner saw to */
                    load_few<WORDS>(words, (first + c) * 4 / IN_WORD);
                    hc_gemv_piece<CODES, WORDS>(p, table, words, 0, x + c * (int)sizeof(float), chains);
                }
                end_group(item, chains);
            } else if (values > 0) {
                load_few<WORDS>(words, first * 4 / IN_WORD);
                hc_gemv_piece<CODES, WORDS>(p, table, words, 0, x, sums);
            }
        }
    }
    HC_DEVICE void run() {
        int64_t block = 0;
        if constexpr (!has_groups) {
            if (p.has_16)
                block = shared_words<CODES == HC_GEMV_BYTES ? 2 : 1>();
        } else {
            if (p.has_16 && p.geometry.group * 4 / IN_WORD == 8)
                block = shared_words<2>();
            else if (p.has_16 && p.geometry.group * 4 / IN_WORD % 16 == 0) {
                whole_groups();
                block = p.geometry.groups;
            }
        }
        few_words(block);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            hc_gemv_store<has_groups>(p, row[r], row_scale[r], sums[r]);
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

/* The formats of a family that have groups, have none, or are of both kinds. */
enum { HC_WITH_GROUPS = 1, HC_WITHOUT_GROUPS = 2, HC_BOTH = 3 };
#define HC_GEMV_KINDS(kinds, function, ...)                                                                            \
    if constexpr (kinds == HC_WITH_GROUPS)                                                                             \
        function<__VA_ARGS__, true>(p);                                                                                \
    else if constexpr (kinds == HC_WITHOUT_GROUPS)                                                                     \
        function<__VA_ARGS__, false>(p);                                                                               \
    else if (p.lanes == 16)                                                                                            \
        function<__VA_ARGS__, true>(p);                                                                                \
    else                                                                                                               \
        function<__VA_ARGS__, false>(p)

#define HC_GEMV(family, format, kinds)                                                                                 \
    HC_KERNEL(hc_gemv_##family, hc_cuda_gemv, 128) { HC_GEMV_KINDS(kinds, hc_gemv_decoded, format); }
/* Those that read words of so many bits a code: of one vector, and of up to eight. */
#define HC_GEMV_WORDS(family, format, kinds, bits, codes)                                                              \
    HC_KERNEL(hc_gemv_##family##_b##bits##_v1, hc_cuda_gemv, 128, 6) {                                                 \
        HC_GEMV_KINDS(kinds, hc_gemv_words, codes, 1, format);                                                         \
    }                                                                                                                  \
    HC_KERNEL(hc_gemv_##family##_b##bits##_v8, hc_cuda_gemv, 128) {                                                    \
        HC_GEMV_KINDS(kinds, hc_gemv_words, codes, HC_GEMV_VECTORS, format);                                           \
    }

#endif
