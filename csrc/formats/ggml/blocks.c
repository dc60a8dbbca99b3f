/* Blocks of ggml, one byte at a time. heterocompute/reference/formats/ggml/storage.py is the definition. */
#include "formats/ggml/blocks.h"

#include "formats/bytes.h"

#define PLANE(shift, width, inner) {HC_FIELD_PLANE, shift, width, inner}
#define D {HC_FIELD_SCALE, 0, 0, 0}
#define M {HC_FIELD_MINIMUM, 0, 0, 0}
#define COARSE(i) {HC_FIELD_COARSE, i, 0, 0}
#define BYTES {HC_FIELD_BYTES, 0, 0, 0}
#define SMALL {HC_FIELD_SMALL, 0, 0, 0}
#define TRITS {HC_FIELD_TRITS, 0, 0, 0}

static const hc_block_kind KINDS[] = {
    {"q4_0", 4, 8, false, 32, 1, 0, HC_SMALL_NONE, {D, PLANE(0, 4, 16)}},
    {"q4_1", 4, 0, false, 32, 1, 0, HC_SMALL_NONE, {D, M, PLANE(0, 4, 16)}},
    {"q5_0", 5, 16, false, 32, 1, 0, HC_SMALL_NONE, {D, PLANE(4, 1, 1), PLANE(0, 4, 16)}},
    {"q5_1", 5, 0, false, 32, 1, 0, HC_SMALL_NONE, {D, M, PLANE(4, 1, 1), PLANE(0, 4, 16)}},
    {"q8_0", 8, 0, false, 32, 1, 0, HC_SMALL_NONE, {D, PLANE(0, 8, 1)}},
    {"q2_k", 2, 0, false, 256, 16, 4, HC_SMALL_Q2, {SMALL, PLANE(0, 2, 32), COARSE(0), COARSE(1)}},
    {"q3_k", 3, 4, false, 256, 16, 6, HC_SMALL_Q3, {PLANE(2, 1, 32), PLANE(0, 2, 32), SMALL, COARSE(0)}},
    {"q4_k", 4, 0, false, 256, 8, 6, HC_SMALL_Q4, {COARSE(0), COARSE(1), SMALL, PLANE(0, 4, 32)}},
    {"q5_k", 5, 0, false, 256, 8, 6, HC_SMALL_Q4, {COARSE(0), COARSE(1), SMALL, PLANE(4, 1, 32), PLANE(0, 4, 32)}},
    {"q6_k", 6, 32, false, 256, 16, 8, HC_SMALL_Q6, {PLANE(0, 4, 64), PLANE(4, 2, 32), SMALL, COARSE(0)}},
    {"iq4_nl", 4, 0, false, 32, 1, 0, HC_SMALL_NONE, {D, PLANE(0, 4, 16)}},
    {"iq4_xs", 4, 0, false, 256, 8, 6, HC_SMALL_IQ4, {COARSE(0), SMALL, PLANE(0, 4, 16)}},
    {"tq1_0", 2, 1, false, 256, 1, 0, HC_SMALL_NONE, {TRITS, D}},
    {"tq2_0", 2, 1, false, 256, 1, 0, HC_SMALL_NONE, {PLANE(0, 2, 32), D}},
    {"mxfp4", 4, 0, true, 32, 1, 8, HC_SMALL_NONE, {BYTES, PLANE(0, 4, 16)}},
    {"nvfp4", 4, 0, true, 64, 4, 8, HC_SMALL_NONE, {BYTES, PLANE(0, 4, 8)}},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, MAX_GROUPS = 16, SMALL_SIGN = 32, TRIT_BYTES = 52 };

const hc_block_kind *hc_find_blocks(const char *name) {
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    return NULL;
}

static int64_t small_bytes(const hc_block_kind *kind) {
    static const int8_t bytes[] = {0, 16, 12, 12, 16, 6};
    return bytes[kind->small];
}

static int64_t field_bytes(const hc_block_kind *kind, const hc_field *field) {
    switch (field->kind) {
    case HC_FIELD_END:
        return 0;
    case HC_FIELD_BYTES:
        return kind->groups;
    case HC_FIELD_SMALL:
        return small_bytes(kind);
    case HC_FIELD_PLANE:
        return kind->block * field->width / 8;
    case HC_FIELD_TRITS:
        return TRIT_BYTES;
    default:
        return 2;
    }
}

int64_t hc_block_bytes(const hc_block_kind *kind) {
    int64_t bytes = 0;
    for (int i = 0; i < HC_MAX_FIELDS; i++)
        bytes += field_bytes(kind, &kind->field[i]);
    return bytes;
}

static bool has_minima(const hc_block_kind *kind) { return kind->small == HC_SMALL_Q2 || kind->small == HC_SMALL_Q4; }

int64_t hc_block_part(const hc_block_kind *kind, hc_component_id id) {
    int64_t numbers[3] = {0};
    for (int i = 0; i < HC_MAX_FIELDS; i++) {
        const hc_field_kind found = kind->field[i].kind;
        numbers[0] += found == HC_FIELD_SCALE;
        numbers[1] += found == HC_FIELD_MINIMUM;
        numbers[2] += found == HC_FIELD_COARSE;
    }
    switch (id) {
    case HC_CODES:
        return kind->block * kind->bits / 8;
    case HC_SCALES:
        return 2 * numbers[0] + kind->groups * kind->scale_bits / 8;
    case HC_MINIMA:
        return 2 * numbers[1] + (has_minima(kind) ? kind->groups * kind->scale_bits / 8 : 0);
    case HC_COARSE:
        return 2 * numbers[2];
    default:
        return 0;
    }
}

/* Eight bytes of a plane at a time. Packing combines one code of each eight into a byte. */
static void split(const uint8_t *from, const hc_field *plane, int64_t block, uint8_t *codes) {
    const int n = 8 / plane->width;
    const uint64_t mask = hc_low_bits(plane->width) * HC_EACH_BYTE;
    if (plane->width == 8) {
        memcpy(codes, from, (size_t)block);
        return;
    }
    if (plane->inner == 1) { /* one bit */
        for (int64_t i = 0; i < block; i += 8, from++) {
            uint64_t known;
            memcpy(&known, codes + i, 8);
            known |= hc_spread_codes(*from, 1) << plane->shift;
            memcpy(codes + i, &known, 8);
        }
        return;
    }
    for (int64_t first = 0; first < block; first += (int64_t)n * plane->inner)
        for (int l = 0; l < plane->inner; l += 8, from += 8) {
            uint64_t x;
            memcpy(&x, from, 8);
            for (int i = 0; i < n; i++) {
                uint8_t *at = codes + first + i * plane->inner + l;
                uint64_t known;
                memcpy(&known, at, 8);
                known |= (x >> (i * plane->width) & mask) << plane->shift;
                memcpy(at, &known, 8);
            }
        }
}

static void join(const uint8_t *codes, const hc_field *plane, int64_t block, uint8_t *to) {
    const int n = 8 / plane->width;
    const uint64_t mask = hc_low_bits(plane->width) * HC_EACH_BYTE;
    if (plane->width == 8) {
        memcpy(to, codes, (size_t)block);
        return;
    }
    if (plane->inner == 1) { /* one bit */
        for (int64_t i = 0; i < block; i += 8) {
            uint64_t x;
            memcpy(&x, codes + i, 8);
            *to++ = (uint8_t)hc_gather_codes(x >> plane->shift & mask, 1);
        }
        return;
    }
    for (int64_t first = 0; first < block; first += (int64_t)n * plane->inner)
        for (int l = 0; l < plane->inner; l += 8, to += 8) {
            uint64_t joined = 0;
            for (int i = 0; i < n; i++) {
                uint64_t x;
                memcpy(&x, codes + first + i * plane->inner + l, 8);
                joined |= (x >> plane->shift & mask) << (i * plane->width);
            }
            memcpy(to, &joined, 8);
        }
}

/* Base-3 digits of 256 codes, 5 codes per byte: first codes 32 apart, then codes 16 apart, and finally 4 codes, 4
 * apart. The first code is the leading digit. A byte is ceil(256 / 243 times the number with these 5 digits). */
static const struct {
    int16_t first;
    int8_t inner, digits;
} TRIT_RUNS[] = {{0, 32, 5}, {160, 16, 5}, {240, 4, 4}};
enum { N_TRIT_RUNS = sizeof TRIT_RUNS / sizeof *TRIT_RUNS };

static void split_trits(const uint8_t *from, uint8_t *codes) {
    for (int run = 0; run < N_TRIT_RUNS; run++) {
        const int inner = TRIT_RUNS[run].inner;
        for (int l = 0; l < inner; l++) {
            uint8_t rest = *from++; /* a fraction: its digits are extracted at the top */
            for (int i = 0; i < TRIT_RUNS[run].digits; i++) {
                codes[TRIT_RUNS[run].first + i * inner + l] = (uint8_t)(rest * 3 >> 8);
                rest = (uint8_t)(rest * 3);
            }
        }
    }
}

static void join_trits(const uint8_t *codes, uint8_t *to) {
    for (int run = 0; run < N_TRIT_RUNS; run++) {
        const int inner = TRIT_RUNS[run].inner;
        for (int l = 0; l < inner; l++) {
            uint32_t number = 0;
            for (int i = 0; i < 5; i++)
                number =
                    number * 3 + (i < TRIT_RUNS[run].digits ? codes[TRIT_RUNS[run].first + i * inner + l] % 3u : 0);
            *to++ = (uint8_t)((number * 256 + 242) / 243);
        }
    }
}

/* Unpacks scales s and minima m. */
static void read_small(hc_small_kind kind, const uint8_t *f, uint8_t s[MAX_GROUPS], uint8_t m[MAX_GROUPS]) {
    switch (kind) {
    case HC_SMALL_Q2:
        for (int i = 0; i < 16; i++) {
            s[i] = f[i] & 15;
            m[i] = f[i] >> 4;
        }
        return;
    case HC_SMALL_Q3: /* low 4 bits of i and i + 8, then 2 bits of i, i + 4, i + 8, i + 12 */
        for (int i = 0; i < 16; i++)
            s[i] = (uint8_t)((f[i % 8] >> (i / 8 * 4) & 15) | (f[8 + i % 4] >> (i / 4 * 2) & 3) << 4) ^ SMALL_SIGN;
        return;
    case HC_SMALL_Q4: /* the top 2 bits of the last four are the top bits of the first */
        for (int i = 0; i < 4; i++) {
            s[i] = f[i] & 63;
            m[i] = f[4 + i] & 63;
            s[4 + i] = (uint8_t)((f[8 + i] & 15) | f[i] >> 6 << 4);
            m[4 + i] = (uint8_t)(f[8 + i] >> 4 | f[4 + i] >> 6 << 4);
        }
        return;
    case HC_SMALL_Q6:
        memcpy(s, f, 16);
        return;
    case HC_SMALL_IQ4: /* 2 bits of each, then pairs of 4 */
        for (int i = 0; i < 8; i++)
            s[i] = (uint8_t)((f[2 + i / 2] >> (i % 2 * 4) & 15) | (f[i / 4] >> (i % 4 * 2) & 3) << 4) ^ SMALL_SIGN;
        return;
    case HC_SMALL_NONE:
        return;
    }
}

static void write_small(hc_small_kind kind, const uint8_t s[MAX_GROUPS], const uint8_t m[MAX_GROUPS], uint8_t *f) {
    switch (kind) {
    case HC_SMALL_Q2:
        for (int i = 0; i < 16; i++)
            f[i] = (uint8_t)(s[i] | m[i] << 4);
        return;
    case HC_SMALL_Q3:
        memset(f, 0, 12);
        for (int i = 0; i < 16; i++) {
            const uint8_t x = s[i] ^ SMALL_SIGN;
            f[i % 8] |= (uint8_t)((x & 15) << (i / 8 * 4));
            f[8 + i % 4] |= (uint8_t)(x >> 4 << (i / 4 * 2));
        }
        return;
    case HC_SMALL_Q4:
        for (int i = 0; i < 4; i++) {
            f[i] = (uint8_t)(s[i] | s[4 + i] >> 4 << 6);
            f[4 + i] = (uint8_t)(m[i] | m[4 + i] >> 4 << 6);
            f[8 + i] = (uint8_t)((s[4 + i] & 15) | (m[4 + i] & 15) << 4);
        }
        return;
    case HC_SMALL_Q6:
        memcpy(f, s, 16);
        return;
    case HC_SMALL_IQ4:
        memset(f, 0, 6);
        for (int i = 0; i < 8; i++) {
            const uint8_t x = s[i] ^ SMALL_SIGN;
            f[i / 4] |= (uint8_t)(x >> 4 << (i % 4 * 2));
            f[2 + i / 2] |= (uint8_t)((x & 15) << (i % 2 * 4));
        }
        return;
    case HC_SMALL_NONE:
        return;
    }
}

/* 4-bit codes stay packed: 8 bytes of a plane contain two runs of 8 codes, `inner` apart. */
static inline __attribute__((always_inline)) void split_halves(const uint8_t *from, int inner, int64_t block,
                                                               uint8_t flip, uint8_t *to) {
    const uint64_t mask = 15 * HC_EACH_BYTE;
    const uint32_t flips = (uint32_t)hc_repeat_code(flip, 4);
    for (int64_t first = 0; first < block / 2; first += inner)
        for (int l = 0; l < inner; l += 8, from += 8) {
            uint64_t x;
            memcpy(&x, from, 8);
            const uint32_t low = (uint32_t)hc_gather_codes(x & mask, 4) ^ flips;
            const uint32_t high = (uint32_t)hc_gather_codes(x >> 4 & mask, 4) ^ flips;
            memcpy(to + first + l / 2, &low, 4);
            memcpy(to + first + inner / 2 + l / 2, &high, 4);
        }
}

static inline __attribute__((always_inline)) void join_halves(const uint8_t *codes, int inner, int64_t block,
                                                              uint8_t flip, uint8_t *to) {
    const uint64_t flips = flip * HC_EACH_BYTE;
    for (int64_t first = 0; first < block / 2; first += inner)
        for (int l = 0; l < inner; l += 8, to += 8) {
            uint32_t low, high;
            memcpy(&low, codes + first + l / 2, 4);
            memcpy(&high, codes + first + inner / 2 + l / 2, 4);
            const uint64_t x = (hc_spread_codes(low, 4) ^ flips) | (hc_spread_codes(high, 4) ^ flips) << 4;
            memcpy(to, &x, 8);
        }
}

/* With constant arguments, loops of two steps are unrolled. */
static void split_any(const uint8_t *from, int inner, int64_t block, uint8_t flip, uint8_t *to) {
    if (inner == 16 && block == 32)
        split_halves(from, 16, 32, flip, to);
    else
        split_halves(from, inner, block, flip, to);
}

static void join_any(const uint8_t *codes, int inner, int64_t block, uint8_t flip, uint8_t *to) {
    if (inner == 16 && block == 32)
        join_halves(codes, 16, 32, flip, to);
    else
        join_halves(codes, inner, block, flip, to);
}

static void move_codes(uint8_t *codes, int64_t n, uint8_t by, int bits) {
    const uint8_t mask = (uint8_t)hc_low_bits(bits);
    for (int64_t i = 0; by && i < n; i++)
        codes[i] = (uint8_t)(codes[i] + by) & mask;
}

/* Codes are at most 15. */
static void clear_minus_zero(uint8_t *codes, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = codes[i] == 8 ? 0 : codes[i];
}

/* The parts of a row, each continued from block to block, and the fields of a block with their bytes. */
typedef struct {
    int n_fields;
    int64_t field_bytes[HC_MAX_FIELDS];
    uint8_t *codes, *scales, *minima, *coarse;
    int64_t codes_step, scales_step, minima_step, coarse_step;
} row_parts;

static row_parts parts_of(const hc_block_kind *kind, const hc_components *components, int64_t row) {
    row_parts parts = {.codes = hc_part(components, HC_CODES, row),
                       .scales = hc_part(components, HC_SCALES, row),
                       .minima = hc_part(components, HC_MINIMA, row),
                       .coarse = hc_part(components, HC_COARSE, row),
                       .codes_step = hc_block_part(kind, HC_CODES),
                       .scales_step = hc_block_part(kind, HC_SCALES),
                       .minima_step = hc_block_part(kind, HC_MINIMA),
                       .coarse_step = hc_block_part(kind, HC_COARSE)};
    for (; parts.n_fields < HC_MAX_FIELDS && kind->field[parts.n_fields].kind != HC_FIELD_END; parts.n_fields++)
        parts.field_bytes[parts.n_fields] = field_bytes(kind, &kind->field[parts.n_fields]);
    return parts;
}

static void next_block(row_parts *at) {
    at->codes += at->codes_step;
    at->scales += at->scales_step;
    at->minima += at->minima_step;
    at->coarse += at->coarse_step;
}

void hc_blocks_to_row(const hc_block_kind *kind, int64_t blocks, const uint8_t *from, const hc_components *to,
                      int64_t row) {
    uint8_t codes[HC_MAX_BLOCK], s[MAX_GROUPS], m[MAX_GROUPS];
    row_parts at = parts_of(kind, to, row);
    const bool halves = kind->bits == 4;
    for (int64_t b = 0; b < blocks; b++, next_block(&at)) {
        if (!halves)
            memset(codes, 0, (size_t)kind->block);
        for (int i = 0; i < at.n_fields; i++) {
            const hc_field *field = &kind->field[i];
            switch (field->kind) {
            case HC_FIELD_END:
                break;
            case HC_FIELD_SCALE:
                memcpy(at.scales, from, 2);
                break;
            case HC_FIELD_MINIMUM:
                memcpy(at.minima, from, 2);
                break;
            case HC_FIELD_COARSE:
                memcpy(at.coarse + 2 * field->shift, from, 2);
                break;
            case HC_FIELD_BYTES:
                memcpy(at.scales, from, (size_t)kind->groups);
                break;
            case HC_FIELD_SMALL:
                read_small(kind->small, from, s, m);
                hc_pack_bytes(s, kind->scale_bits, kind->groups, at.scales);
                if (has_minima(kind))
                    hc_pack_bytes(m, kind->scale_bits, kind->groups, at.minima);
                break;
            case HC_FIELD_PLANE:
                if (halves)
                    split_any(from, field->inner, kind->block, kind->offset, at.codes);
                else
                    split(from, field, kind->block, codes);
                break;
            case HC_FIELD_TRITS:
                split_trits(from, codes);
                break;
            }
            from += at.field_bytes[i];
        }
        if (halves)
            continue;
        move_codes(codes, kind->block, (uint8_t)-kind->offset, kind->bits);
        hc_pack_bytes(codes, kind->bits, kind->block, at.codes);
    }
}

void hc_blocks_from_row(const hc_block_kind *kind, int64_t blocks, const hc_components *from, int64_t row,
                        uint8_t *to) {
    uint8_t codes[HC_MAX_BLOCK], s[MAX_GROUPS], m[MAX_GROUPS];
    row_parts at = parts_of(kind, from, row);
    for (int64_t b = 0; b < blocks; b++, next_block(&at)) {
        const bool halves = kind->bits == 4 && !kind->has_minus_zero;
        if (!halves) {
            hc_unpack_bytes(at.codes, kind->bits, kind->block, codes);
            move_codes(codes, kind->block, kind->offset, kind->bits);
        }
        if (kind->has_minus_zero)
            clear_minus_zero(codes, kind->block);
        for (int i = 0; i < at.n_fields; i++) {
            const hc_field *field = &kind->field[i];
            switch (field->kind) {
            case HC_FIELD_END:
                break;
            case HC_FIELD_SCALE:
                memcpy(to, at.scales, 2);
                break;
            case HC_FIELD_MINIMUM:
                memcpy(to, at.minima, 2);
                break;
            case HC_FIELD_COARSE:
                memcpy(to, at.coarse + 2 * field->shift, 2);
                break;
            case HC_FIELD_BYTES:
                memcpy(to, at.scales, (size_t)kind->groups);
                break;
            case HC_FIELD_SMALL:
                hc_unpack_bytes(at.scales, kind->scale_bits, kind->groups, s);
                if (has_minima(kind))
                    hc_unpack_bytes(at.minima, kind->scale_bits, kind->groups, m);
                write_small(kind->small, s, m, to);
                break;
            case HC_FIELD_PLANE:
                if (halves)
                    join_any(at.codes, field->inner, kind->block, kind->offset, to);
                else
                    join(codes, field, kind->block, to);
                break;
            case HC_FIELD_TRITS:
                join_trits(codes, to);
                break;
            }
            to += at.field_bytes[i];
        }
    }
}
