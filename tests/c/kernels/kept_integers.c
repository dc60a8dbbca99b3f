/* N:M sparse integer weights times few integer vectors, against the equations of kernels/sparse/nm.h. */
#include "kernels.h"

#include <inttypes.h>
#include <string.h>

#define D PRId64

/* A row as it is stored: `kept` codes, then codes of 0 up to whole groups, and the scales of groups. */
typedef struct {
    int bits, flip, zero;
    int64_t kept, padded, groups, group; /* group 0: one scale for all */
    integer_kind kind;
} stored_row;

static void draw_row(const stored_row *row, uint8_t *codes, uint8_t *scales) {
    for (int64_t t = 0; t < row->padded; t++)
        put_bits(codes, t, row->bits,
                 (unsigned)(t < row->kept ? draw_integer(0, (1 << row->bits) - 1, row->kind) : row->zero) ^
                     (unsigned)row->flip);
    for (int64_t g = 0; scales && g < row->groups; g++)
        put_bits(scales, g, 4, (unsigned)draw_integer(0, 15, row->kind == ANY ? ANY : MOST));
}

/* The integer of code t times its scale. */
static int64_t scaled_code(const stored_row *row, const uint8_t *codes, const uint8_t *scales, int64_t t) {
    const int code = (int)bits_at(codes, t, row->bits);
    if (row->bits == 8)
        return (int8_t)code;
    return ((code ^ row->flip) - row->zero) * (int64_t)bits_at(scales, row->group ? t / row->group : 0, 4);
}

/* Vectors in the order of a kernel: `place` gives the index of column k; bytes without a column are 128. */
typedef int64_t place_fn(int64_t k);
static uint8_t *draw_x(int n_vectors, int64_t ldx, int64_t n, int64_t columns, place_fn *place, integer_kind kind) {
    const int64_t bytes = (n_vectors - 1) * ldx + n;
    uint8_t *x = items(bytes, 1);
    memset(x, 128, (size_t)bytes);
    for (int v = 0; v < n_vectors; v++)
        for (int64_t k = 0; k < columns; k++)
            x[v * ldx + place(k)] = (uint8_t)draw_integer(0, 255, kind);
    return x;
}

static int64_t in_order(int64_t k) { return k; }
static int64_t by_places(int64_t k) { return k / 256 * 256 + k % 4 * 64 + k % 256 / 4; }
static int64_t by_panels(int64_t k) {
    const int64_t group = k / 32 % 16, quad = k / 4 % 8, c = k % 4;
    const int64_t n = group / 2 % 4 * 8 + group / 8 * 4 + group % 2 * 2 + quad / 2 % 2;
    return 512 * (k / 512) + 128 * (quad / 4 * 2 + quad % 2) + (quad % 2 ? n % 16 + 16 * c + 64 * (n / 16) : 4 * n + c);
}

/* The arguments of gemv_nm_dots (codes of 8 bits) or gemv_nm_folded (4). */
typedef struct {
    stored_row row;
    hc_gemv_nm_integers_args args;
} nm_case_args;

static void nm_definition(const nm_case_args *of) {
    const hc_gemv_nm_integers_args *a = &of->args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int v = 0; v < a->n_vectors; v++) {
            int64_t sum = 0;
            for (int64_t t = 0; t < of->row.kept; t++) {
                const unsigned position = bits_at(a->metadata + r * a->metadata_stride, t, a->position_bits);
                const int64_t k = t / 4 * a->kr + (position | (a->base >> 8 * (t % 4) & 255));
                sum += (a->x[v * a->ldx + k] - 128) *
                       scaled_code(&of->row, a->codes + r * a->codes_stride, a->scales + r * a->scales_stride, t);
            }
            a->sums[r * a->ld_sums + v] = sum;
        }
}

/* kr columns hold kr / m blocks that keep equally many; m = 0: positions of 8 bits among all kr. */
static void nm_case(hc_gemv_nm_integers_fn *fn, int bits, int kr, int m, int words, int64_t kept, int64_t rows,
                    int n_vectors, integer_kind codes, integer_kind values) {
    begin("kr %d, m %d, %d words a group, %" D " codes, %" D " rows, %d vectors, codes %s, x %s", kr, m, words, kept,
          rows, n_vectors, integer_kind_name(codes), integer_kind_name(values));
    const int flip =
        bits == 4 && codes != MOST && draw_below(2) ? 8 : 0; /* a row is filled up to 4 codes with codes of 0 */
    const int64_t group = words * 8, gap = rows % 2 * 3;
    nm_case_args of = {.row = {.bits = bits,
                               .flip = bits == 8 ? 128 : flip,
                               .zero = bits == 8 ? 128 : flip,
                               .kept = kept,
                               .padded = group ? hc_round_up(kept, group) : hc_round_up(kept, 2),
                               .groups = group ? hc_ceil_div(kept, group) : 1,
                               .group = group,
                               .kind = codes}};
    hc_gemv_nm_integers_args *a = &of.args;
    *a = (hc_gemv_nm_integers_args){.kr = kr,
                                    .position_bits = m ? hc_position_bits(m) : 8,
                                    .flip = flip,
                                    .zero = flip,
                                    .words = words,
                                    .n_vectors = n_vectors,
                                    .rows = rows,
                                    .ldx = hc_round_up(of.row.padded, 64) / 4 * kr + n_vectors % 2 * 7,
                                    .ld_sums = n_vectors + rows % 3};
    for (int j = 0; m && j < 4; j++)
        a->base |= (uint32_t)(j / (4 * m / kr) * m) << 8 * j;
    a->code_bytes = of.row.padded * bits / 8;
    a->metadata_bytes = hc_ceil_div(kept * a->position_bits, 8);
    a->scale_bytes = bits == 4 ? hc_ceil_div(of.row.groups, 2) : 1;
    a->codes_stride = a->code_bytes + gap;
    a->metadata_stride = a->metadata_bytes + gap;
    a->scales_stride = words ? a->scale_bytes + gap : 0;
    const int64_t last = rows > 0 ? rows - 1 : 0, any = rows > 0;
    uint8_t *of_codes = random_bytes(any * (last * a->codes_stride + a->code_bytes));
    uint8_t *metadata = random_bytes(any * (last * a->metadata_stride + a->metadata_bytes));
    uint8_t *scales = random_bytes(last * a->scales_stride + a->scale_bytes);
    for (int64_t r = 0; r < rows; r++) {
        draw_row(&of.row, of_codes + r * a->codes_stride,
                 bits == 4 && (r == 0 || words) ? scales + r * a->scales_stride : NULL);
        for (int64_t t = 0; t < kept && !m; t++)
            metadata[r * a->metadata_stride + t] &= (uint8_t)(kr - 1);
    }
    a->codes = of_codes;
    a->metadata = metadata;
    a->scales = scales;
    a->x =
        draw_x(n_vectors, a->ldx, hc_round_up(of.row.padded, 64) / 4 * kr, hc_ceil_div(kept, 4) * kr, in_order, values);
    const int64_t n = last * a->ld_sums + n_vectors;
    int64_t *got = items(n, 8);
    a->sums = items(n, 8);
    nm_definition(&of);
    hc_gemv_nm_integers_args args = *a;
    args.sums = got;
    fn(&args);
    same("sums", I64, got, a->sums, n);
    BENCH(nm_definition(&of), fn(&args));
}

static void check_nm(hc_gemv_nm_integers_fn *fn, int bits) {
    int i = 0;
    for (int kr = 8; kr <= 64; kr *= 2)
        for (int part = 0; part < 4;
             part++) /* blocks of kr, kr / 2, kr / 4; or 8-bit positions, with 8-bit codes alone */
            FOR_EACH(int64_t, kept, 0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 250, 391)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2, i++) {
        const int m = part < 3 ? kr >> part : 0, words = (const int[]){0, 2, 4, 8}[i % 4];
        if (m > HC_MAX_M || (part == 3 && bits == 4))
            continue;
        nm_case(fn, bits, kr, m, bits == 4 ? words : 0, *kept, i % 7 == 0 ? draw_below(9) : 1 + i % 3, n_vectors,
                (integer_kind)(i / 3 % N_INTEGER_KINDS), (integer_kind)(i / 5 % N_INTEGER_KINDS));
    }
    nm_case(fn, bits, 8, 8, bits == 4 ? 8 : 0, 1 << 18, 1, 1, LEAST, MOST); /* the largest sum that is allowed */
    nm_case(fn, bits, 8, 8, bits == 4 ? 8 : 0, 1 << 18, 1, 1, MOST, LEAST);
    usual();
    nm_case(fn, bits, 16, 16, bits == 4 ? 2 : 0, 1024, 8, 1, ANY, ANY);
}

void check_gemv_nm_dots(const hc_kernel *kernel) { check_nm(kernel->fn.gemv_nm_dots, 8); }
void check_gemv_nm_folded(const hc_kernel *kernel) { check_nm(kernel->fn.gemv_nm_folded, 4); }

/* 2:4: two ascending positions for each block of 4. */
static void draw_quads(int64_t kept, uint8_t *metadata) {
    static const uint8_t PAIRS[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    for (int64_t t = 0; t < kept; t += 2) {
        const uint8_t pair = PAIRS[draw_below(6)];
        put_bits(metadata, t, 2, pair & 3);
        if (t + 1 < kept)
            put_bits(metadata, t + 1, 2, pair >> 2);
    }
}

static int64_t quads_sum(const stored_row *row, const uint8_t *codes, const uint8_t *metadata, const uint8_t *scales,
                         const uint8_t *x, place_fn *place) {
    int64_t sum = 0;
    for (int64_t t = 0; t < row->kept; t++)
        sum += (x[place(t / 2 * 4 + bits_at(metadata, t, 2))] - 128) * scaled_code(row, codes, scales, t);
    return sum;
}

static stored_row quads_row(int words, int64_t kept, integer_kind codes) {
    const bool is_signed = (codes == ANY || codes == ENDS) && draw_below(2);
    const int zero = codes == MOST ? 0 : codes == LEAST ? 15 : (int)draw_below(16); /* far from the codes */
    return (stored_row){.bits = 4,
                        .flip = is_signed ? 8 : 0,
                        .zero = is_signed ? 8 : zero,
                        .kept = kept,
                        .padded = hc_round_up(kept, words * 8),
                        .groups = hc_ceil_div(kept, words * 8),
                        .group = words * 8,
                        .kind = codes};
}

static void quads_definition(const stored_row *row, const hc_gemv_24_args *a) {
    for (int v = 0; v < a->n_vectors; v++)
        a->sums[v] = quads_sum(row, a->codes, a->metadata, a->scales, (const uint8_t *)a->x + v * a->ldx, by_places);
}

static void quads_case(const hc_kernel *kernel, int words, int64_t kept, int n_vectors, integer_kind codes,
                       integer_kind values) {
    begin("%" D " codes, %d words a group, %d vectors, codes %s, x %s", kept, words, n_vectors,
          integer_kind_name(codes), integer_kind_name(values));
    const stored_row row = quads_row(words, kept, codes);
    const int64_t n = hc_round_up(row.padded * 2, 512), ldx = n + n_vectors % 2 * 64;
    uint8_t *stored = items(row.padded / 2, 1), *metadata = random_bytes(hc_ceil_div(kept, 4));
    uint8_t *scales = random_bytes(hc_ceil_div(row.groups, 2));
    draw_row(&row, stored, scales);
    draw_quads(kept, metadata);
    hc_gemv_24_args args = {.flip = row.flip,
                            .zero = row.zero,
                            .words = words,
                            .n_vectors = n_vectors,
                            .code_bytes = row.padded / 2,
                            .metadata_bytes = hc_ceil_div(kept, 4),
                            .ldx = ldx,
                            .codes = stored,
                            .metadata = metadata,
                            .scales = scales,
                            .x = draw_x(n_vectors, ldx, n, hc_ceil_div(kept, 2) * 4, by_places, values)},
                    other = args;
    args.sums = items(n_vectors, 8);
    other.sums = items(n_vectors, 8);
    quads_definition(&row, &other);
    kernel->fn.gemv_24_folded(&args);
    same("sums", I64, args.sums, other.sums, n_vectors);
    BENCH(quads_definition(&row, &other), kernel->fn.gemv_24_folded(&args));
}

static void panels_definition(const stored_row *row, const hc_gemv_24_panels_args *a) {
    for (int v = 0; v < a->n_vectors; v++)
        for (int r = 0; r < HC_GEMV_ROWS; r++)
            a->sums[v * HC_GEMV_ROWS + r] =
                (int32_t)quads_sum(row, a->codes[r], a->metadata[r], a->scales[r], a->x + v * a->ldx, by_panels);
}

static void panels_case(const hc_kernel *kernel, int words, int64_t kept, int n_vectors, integer_kind codes,
                        integer_kind values) {
    begin("%" D " codes, %d words a group, %d vectors, codes %s, x %s", kept, words, n_vectors,
          integer_kind_name(codes), integer_kind_name(values));
    const stored_row row = quads_row(words, kept, codes);
    hc_gemv_24_panels_args args = {.flip = row.flip,
                                   .zero = row.zero,
                                   .words = words,
                                   .n_vectors = n_vectors,
                                   .code_bytes = row.padded / 2,
                                   .metadata_bytes = hc_ceil_div(kept, 4),
                                   .ldx = hc_round_up(row.padded * 2, 1024)},
                           other;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        uint8_t *stored = items(row.padded / 2, 1), *metadata = random_bytes(args.metadata_bytes);
        uint8_t *scales = random_bytes(hc_ceil_div(row.groups, 2));
        draw_row(&row, stored, scales);
        draw_quads(kept, metadata);
        args.codes[r] = stored;
        args.metadata[r] = metadata;
        args.scales[r] = scales;
    }
    args.x = draw_x(n_vectors, args.ldx, args.ldx, hc_ceil_div(kept, 2) * 4, by_panels, values);
    other = args;
    args.sums = items(n_vectors * HC_GEMV_ROWS, 4);
    other.sums = items(n_vectors * HC_GEMV_ROWS, 4);
    panels_definition(&row, &other);
    kernel->fn.gemv_24_panels(&args);
    same("sums", I32, args.sums, other.sums, n_vectors * HC_GEMV_ROWS);
    BENCH(panels_definition(&row, &other), kernel->fn.gemv_24_panels(&args));
}

typedef void quads_fn(const hc_kernel *kernel, int words, int64_t kept, int n_vectors, integer_kind codes,
                      integer_kind values);
static void check_quads(const hc_kernel *kernel, quads_fn *test, int64_t most) {
    int i = 0;
    for (int words = 2; words <= 8; words *= 2)
        FOR_EACH(int64_t, kept, 0, 1, 2, 3, 4, 15, 16, 17, 31, 33, 64, 127, 128, 129, 255, 256, 257, 383, 511, 512, 513,
                 700)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2)
        for (int j = 0; j < 2; j++, i++)
            test(kernel, words, *kept, n_vectors, (integer_kind)(i % N_INTEGER_KINDS),
                 (integer_kind)(i / 3 % N_INTEGER_KINDS));
    test(kernel, 2, most, 1, LEAST, MOST); /* the largest sum that is allowed */
    test(kernel, 8, most, 1, MOST, LEAST);
    usual();
    test(kernel, 2, 2048, 1, ANY, ANY);
}

void check_gemv_24_folded(const hc_kernel *kernel) { check_quads(kernel, quads_case, 1 << 18); }
void check_gemv_24_panels(const hc_kernel *kernel) { check_quads(kernel, panels_case, 1 << 16); }
