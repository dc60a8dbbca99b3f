/* Packed weights times few integer vectors, against the scalar kernel, or the equation if a family has none. */
#include "kernels.h"

#include "base/convert.h"

#include <inttypes.h>
#include <string.h>

#define D PRId64

void *zeros(int64_t n, int64_t size) { return memset(items(n, size), 0, (size_t)(n * size)); }

/* The index at which gemv_dots stores the x of code k. */
static int64_t place_of(int bits, int64_t k) { return bits == 8 ? k : k / 128 * 128 + k % 2 * 64 + k % 128 / 2; }

/* Lines of n values; those from column `columns` on are 0. */
int8_t *draw_lines(int bits, int n_lines, int64_t n, int64_t columns, integer_kind kind) {
    int8_t *x = zeros(n_lines * n, 1);
    for (int line = 0; line < n_lines; line++)
        for (int64_t k = 0; k < columns; k++)
            x[line * n + place_of(bits, k)] = (int8_t)draw_integer(-128, 127, kind);
    return x;
}

/* The least code is the one that xor with `flip` makes 0. */
uint8_t *draw_integer_codes(int64_t bytes, int flip, integer_kind kind) {
    uint8_t *codes = items(bytes, 1);
    for (int64_t i = 0; i < bytes; i++)
        codes[i] = (uint8_t)(draw_integer(0, 255, kind) ^ flip);
    return codes;
}

/* With 4 bits, `is_narrow` means a table. */
static void dots_case(const hc_kernel *kernel, int bits, int64_t words, int64_t segments, int64_t missing, int n_lines,
                      bool is_signed, bool is_narrow, integer_kind codes, integer_kind values) {
    const int64_t segment = words * 32 / bits, row_bytes = segments * words * 4 - missing;
    const int64_t padded = hc_round_up(segments, 16), ld = padded + 16 * (segments % 2);
    begin("%d bits, %" D " segments of %" D ", row of %" D " bytes, %d lines, %s%s, codes %s, x %s", bits, segments,
          segment, row_bytes, n_lines, is_signed ? "signed" : "unsigned",
          is_narrow ? bits == 4 ? " by a table" : " and narrow" : "", integer_kind_name(codes),
          integer_kind_name(values));
    const int flip = is_signed ? 1 << (bits - 1) : 0;
    const int64_t x_bytes = (words < 16 ? padded : segments) * segment, n = (n_lines - 1) * ld + padded;
    uint8_t *stored = draw_integer_codes(row_bytes, flip * (bits == 4 ? 17 : 1), codes);
    uint8_t table[16];
    for (int code = 0; code < 16; code++)
        table[code] = (uint8_t)draw_integer(0, 63, codes);
    for (int64_t i = 0; is_narrow && bits == 8 && i < row_bytes; i++)
        stored[i] = (uint8_t)(((stored[i] ^ flip) & 127) ^ flip);
    hc_gemv_dots_args args = {.bits = bits,
                              .flip = flip,
                              .table = is_narrow && bits == 4 ? table : NULL,
                              .is_narrow = is_narrow && bits == 8,
                              .segment = segment,
                              .segments = segments,
                              .row_bytes = row_bytes,
                              .codes = stored,
                              .n_lines = n_lines,
                              .x_bytes = x_bytes,
                              .ld = ld,
                              .x = draw_lines(bits, n_lines, x_bytes, row_bytes * 8 / bits, values)},
                      other = args;
    args.dots = items(n, 4);
    other.dots = items(n, 4);
    hc_gemv_dots_scalar(&other);
    kernel->fn.gemv_dots(&args);
    for (int line = 0; line < n_lines; line++) {
        same("dots", I32, args.dots + line * ld, other.dots + line * ld, segments);
        if (line + 1 < n_lines)
            same("what lies between dots", I32, args.dots + line * ld + padded, other.dots + line * ld + padded,
                 ld - padded);
    }
    BENCH(hc_gemv_dots_scalar(&other), kernel->fn.gemv_dots(&args));
}

void check_gemv_dots(const hc_kernel *kernel) {
    int i = 0;
    for (int bits = 4; bits <= 8; bits += 4)
        FOR_EACH(int64_t, words, 1, 2, 4, 8, 16, 32, 48, 80)
    FOR_EACH(int64_t, segments, 1, 2, 7, 8, 9, 15, 16, 17, 33)
    for (int n_lines = 1; n_lines <= 4; n_lines++, i++) {
        const int64_t missing = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : draw_below(*words * 4);
        for (int is_narrow = 0; is_narrow <= 1; is_narrow++)
            dots_case(kernel, bits, *words, *segments, missing, n_lines, i / 2 % 2, is_narrow,
                      (integer_kind)(i / 3 % N_INTEGER_KINDS), (integer_kind)(i / 5 % N_INTEGER_KINDS));
    }
    dots_case(kernel, 8, 65536 / 4, 1, 0, 1, false, false, MOST, LEAST); /* the largest sum that is allowed */
    dots_case(kernel, 8, 65536 / 4, 1, 0, 1, false, false, MOST, MOST);
    usual();
    dots_case(kernel, 4, 4, 128, 0, 1, true, false, ANY, ANY);
}

static void sum_case(const hc_kernel *kernel, int64_t n, integer_kind kind) {
    begin("n %" D ", %s", n, integer_kind_name(kind));
    float *integers = items(n, 4);
    int32_t *dots = items(n, 4), *corrections = items(n, 4);
    for (int64_t i = 0; i < n; i++) {
        integers[i] = (float)draw_integer(i % 3 ? 0 : -(1 << 24) + 1, (1 << 24) - 1, kind);
        dots[i] = (int32_t)draw_integer(INT32_MIN, INT32_MAX, kind);
        corrections[i] = (int32_t)draw();
    }
    const int64_t wanted = hc_gemv_sum_scalar(n, integers, dots, corrections);
    const int64_t got = kernel->fn.gemv_sum(n, integers, dots, corrections);
    same("sum", I64, &got, &wanted, 1);
    BENCH(hc_gemv_sum_scalar(n, integers, dots, corrections), kernel->fn.gemv_sum(n, integers, dots, corrections));
}

void check_gemv_sum(const hc_kernel *kernel) {
    for (int kind = 0; kind < N_INTEGER_KINDS; kind++)
        for (int64_t n = 0; n <= 70; n++)
            sum_case(kernel, n, (integer_kind)kind);
    usual();
    sum_case(kernel, 256, ANY);
}

/* For each word of a line: minus the zero point times the sum of its x. */
int32_t *make_start(int bits, int zero, int n_lines, int64_t x_bytes, const int8_t *x) {
    const int64_t codes = 32 / bits, words = x_bytes / codes;
    int32_t *start = zeros(n_lines * words, 4);
    for (int64_t i = 0; i < n_lines * words * codes; i++)
        start[i / codes] -= zero * x[i / x_bytes * x_bytes + place_of(bits, i % x_bytes)];
    return start;
}

int draw_zero(bool is_signed) { return is_signed ? 8 : (int)draw_below(16); }

static void folded_case(const hc_kernel *kernel, int words, int64_t row_bytes, int n_lines, bool is_signed,
                        integer_kind codes, integer_kind values) {
    begin("row of %" D " bytes, %d words a group, %d lines, %s, codes %s, x %s", row_bytes, words, n_lines,
          is_signed ? "signed" : "unsigned", integer_kind_name(codes), integer_kind_name(values));
    const int zero = is_signed        ? 8
                     : codes == MOST  ? 0
                     : codes == LEAST ? 15
                                      : draw_zero(false); /* as far from the codes as possible */
    const int64_t x_bytes = hc_round_up(row_bytes, 64) * 2, groups = hc_ceil_div(row_bytes, 4 * words);
    hc_gemv_folded_args args = {.flip = is_signed ? 8 : 0,
                                .words = words,
                                .row_bytes = row_bytes,
                                .codes = draw_integer_codes(row_bytes, is_signed ? 0x88 : 0, codes),
                                .scales = draw_integer_codes(hc_ceil_div(groups, 2), 0, codes == ANY ? ANY : MOST),
                                .n_lines = n_lines,
                                .x_bytes = x_bytes,
                                .x = draw_lines(4, n_lines, x_bytes, row_bytes * 2, values)},
                        other;
    args.start = make_start(4, zero, n_lines, x_bytes, args.x);
    other = args;
    args.sums = items(n_lines, 8);
    other.sums = items(n_lines, 8);
    hc_gemv_folded_scalar(&other);
    kernel->fn.gemv_folded(&args);
    same("sums", I64, args.sums, other.sums, n_lines);
    BENCH(hc_gemv_folded_scalar(&other), kernel->fn.gemv_folded(&args));
}

void check_gemv_folded(const hc_kernel *kernel) {
    int i = 0;
    for (int words = 2; words <= 8; words *= 2)
        for (int n_lines = 1; n_lines <= 4; n_lines *= 2)
            for (int64_t row_bytes = 0; row_bytes <= 330; row_bytes += row_bytes < 140 ? 1 : 13)
                for (int j = 0; j < 2; j++, i++)
                    folded_case(kernel, words, row_bytes, n_lines, j, (integer_kind)(i / 2 % N_INTEGER_KINDS),
                                (integer_kind)(i / 3 % N_INTEGER_KINDS));
    folded_case(kernel, 2, 1 << 19, 1, false, MOST, LEAST); /* the largest sum that is allowed */
    folded_case(kernel, 8, 1 << 19, 4, false, LEAST, LEAST);
    usual();
    folded_case(kernel, 2, 2048, 1, true, ANY, ANY);
}

/* The sums by their equation, in int64, of codes of a byte. */
static void folded_bytes_definition(const hc_gemv_folded_bytes_args *args, int64_t columns) {
    for (int line = 0; line < args->n_lines; line++)
        for (int row = 0; row < args->n_rows; row++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < columns; k++) {
                const int64_t factor = args->factors[row * args->ld_factors + k / 4 / args->words];
                sum += factor * (args->codes[row * args->code_stride + k] ^ args->flip) *
                       args->x[line * args->x_bytes + k];
                sum += k % 4 ? 0 : factor * args->start[(line * args->x_bytes + k) / 4];
            }
            args->sums[line * 16 + row] = sum;
        }
}

/* bits: of packed codes, or 8 */
static void folded_bytes_case(const hc_kernel *kernel, int bits, int words, int64_t columns, int n_rows, int n_lines,
                              bool is_small, integer_kind codes, integer_kind values) {
    begin("%d bits, %" D " columns, %d words a group, %d rows, %d lines, small %d, codes %s, x %s", bits, columns,
          words, n_rows, n_lines, is_small, integer_kind_name(codes), integer_kind_name(values));
    const bool is_packed = bits < 8;
    const int flip = is_packed ? 1 << (bits - 1) : is_small ? 32 : 128;
    const int64_t x_bytes = hc_round_up(columns, 64) + 64, groups = hc_ceil_div(columns, 4 * words);
    const int64_t row_bytes = hc_ceil_div(columns * bits, 8), gap = n_rows % 3 * 5, stride = row_bytes + gap;
    const int64_t bytes = (n_rows - 1) * stride + row_bytes, n_factors = n_rows * groups + 3;
    uint8_t *stored = draw_integer_codes(bytes, is_packed ? 0 : flip, codes);
    for (int64_t i = 0; i < bytes && is_small && !is_packed; i++)
        stored[i] &= 63;
    int32_t *factors = items(n_factors, 4);
    for (int64_t g = 0; g < n_factors; g++)
        factors[g] = draw_integer(0, 255, codes == ANY ? ANY : MOST);
    hc_gemv_folded_bytes_args args = {.bits = bits,
                                      .flip = flip,
                                      .words = words,
                                      .is_small = is_small,
                                      .n_rows = n_rows,
                                      .n_lines = n_lines,
                                      .row_bytes = row_bytes,
                                      .most = 4 + 4 * (int64_t)draw_below(is_small ? 120 : 14),
                                      .code_stride = stride,
                                      .codes = stored,
                                      .ld_factors = groups,
                                      .factors = factors,
                                      .x_bytes = x_bytes,
                                      .x = draw_lines(8, n_lines, x_bytes, columns, values)},
                              other;
    args.start = make_start(8, flip, n_lines, x_bytes, args.x);
    other = args;
    args.sums = items(16 * n_lines, 8);
    other.sums = items(16 * n_lines, 8);
    if (is_packed) {
        other.codes = unpacked_rows(stored, stride, row_bytes, bits, n_rows, columns);
        other.code_stride = columns + 8;
    }
    hc_gemv_folded_bytes_fn *const fn = is_packed ? kernel->fn.gemv_folded_packed : kernel->fn.gemv_folded_bytes;
    folded_bytes_definition(&other, columns);
    fn(&args);
    for (int line = 0; line < n_lines; line++)
        same("sums", I64, args.sums + 16 * line, other.sums + 16 * line, n_rows);
    BENCH(folded_bytes_definition(&other, columns), fn(&args));
}

static void folded_bytes_cases(const hc_kernel *kernel, int bits, bool is_small) {
    int i = 0;
    for (int words = 4; words <= 48; words += words < 16 ? words : 16)
        for (int n_lines = 1; n_lines <= 4; n_lines *= 2)
            for (int64_t columns = 8; columns <= 1300; columns += columns < 140 ? 8 : 24, i++)
                folded_bytes_case(kernel, bits, words, columns - (bits == 8 ? (int64_t)draw_below(8) : 0),
                                  i % 5 == 0 ? 16 : 1 + (int)draw_below(16), n_lines, is_small,
                                  (integer_kind)(i / 2 % N_INTEGER_KINDS), (integer_kind)(i / 3 % N_INTEGER_KINDS));
}

void check_gemv_folded_bytes(const hc_kernel *kernel) {
    folded_bytes_cases(kernel, 8, false);
    folded_bytes_cases(kernel, 8, true);
    folded_bytes_case(kernel, 8, 16, 1 << 16, 1, 1, false, LEAST, LEAST);
    folded_bytes_case(kernel, 8, 4, 1 << 16, 1, 4, true, LEAST, LEAST);
    usual();
    folded_bytes_case(kernel, 8, 16, 2048, 16, 1, false, ANY, ANY);
}

void check_gemv_folded_packed(const hc_kernel *kernel) {
    for (int bits = 2; bits <= 7; bits++)
        folded_bytes_cases(kernel, bits, bits < 7);
    usual();
    folded_bytes_case(kernel, 6, 4, 2048, 16, 1, true, ANY, ANY);
}

static void chain_case(const hc_kernel *kernel, int64_t n, int64_t ld, bool corrected, integer_kind dots_kind,
                       float_kind kind) {
    begin("n %" D ", ld %" D ", dots %s, scales %s", n, ld, corrected ? integer_kind_name(dots_kind) : "float32",
          float_kind_name(kind));
    const float *x_scales = floats(n, kind), *scales = floats(16 * ld, kind);
    int32_t *corrections = corrected ? items(n, 4) : NULL, *integers = corrected ? items(16 * ld, 4) : NULL;
    for (int64_t i = 0; corrected && i < 16 * ld; i++)
        integers[i] = (int32_t)draw_integer(INT32_MIN, INT32_MAX, dots_kind);
    for (int64_t i = 0; corrected && i < n; i++)
        corrections[i] = (int32_t)draw();
    const void *dots = corrected ? (const void *)integers : floats(16 * ld, kind);
    float *wanted = items(16, 4), *got = items(16, 4);
    hc_gemv_chain_scalar(n, ld, x_scales, scales, dots, corrections, wanted);
    kernel->fn.gemv_chain(n, ld, x_scales, scales, dots, corrections, got);
    same("out", F32, got, wanted, 16);
    BENCH(hc_gemv_chain_scalar(n, ld, x_scales, scales, dots, corrections, wanted),
          kernel->fn.gemv_chain(n, ld, x_scales, scales, dots, corrections, got));
}

void check_gemv_chain(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 47, 61)
    for (int i = 0; i < 2 * N_FLOAT_KINDS * 2; i++)
        chain_case(kernel, *n, hc_round_up(*n, 16) + 16 * (i / 2 % 2), i % 2, (integer_kind)(i / 4 % N_INTEGER_KINDS),
                   (float_kind)(i / 4));
    usual();
    chain_case(kernel, 128, 128, true, ANY, PLAIN);
}

/* Rows of w are n + gap apart, and those after the first `different` repeat the last of these. */
static void dense_case(const hc_kernel *kernel, int64_t n, int n_rows, int different, int n_vectors, int64_t gap,
                       bool is_far, float_kind kind) {
    const int64_t ld = n + (gap & 1);
    begin("n %" D ", %d rows, %d different, %d vectors, gap %" D ", far %d, %s", n, n_rows, different, n_vectors, gap,
          is_far, float_kind_name(kind));
    const float *x = floats(n_vectors * ld, kind), *w = floats(different * (n + gap) - gap, kind);
    const float *rows[HC_GEMV_DENSE_ROWS];
    for (int i = 0; i < n_rows; i++)
        rows[i] = w + hc_min(i, different - 1) * (n + gap);
    const int64_t sums = n_vectors * HC_GEMV_DENSE_ROWS;
    float *wanted = items(sums, 4), *got = items(sums, 4);
    hc_gemv_dense_scalar(n, n_rows, rows, is_far, n_vectors, x, ld, wanted);
    kernel->fn.gemv_dense(n, n_rows, rows, is_far, n_vectors, x, ld, got);
    for (int v = 0; v < n_vectors; v++)
        same("out", F32, got + v * HC_GEMV_DENSE_ROWS, wanted + v * HC_GEMV_DENSE_ROWS, n_rows);
    BENCH(hc_gemv_dense_scalar(n, n_rows, rows, is_far, n_vectors, x, ld, wanted),
          kernel->fn.gemv_dense(n, n_rows, rows, is_far, n_vectors, x, ld, got));
}

void check_gemv_dense(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 47, 61, 140, 600)
    for (int i = 0; i < 3 * N_FLOAT_KINDS; i++)
        dense_case(kernel, *n, 16 * (1 + i % 4), 40, 1 << i % 3, i % 2, i % 5 == 4, (float_kind)(i / 3));
    for (int i = 0; i < 24; i++) { /* rows a multiple of 2 KiB apart, or nearly, and few of them */
        dense_case(kernel, 509 + i % 5, 16 * (1 + i % 4), i % 7 ? 64 : 9, 1 << i % 3, 3 - i % 5, i % 11 == 10, PLAIN);
        dense_case(kernel, 90 + i, 16 * (1 + i % 4), 1 + i * 3, 1 << i % 3, 512 - 90 - i, false, PLAIN);
    }
    usual();
    dense_case(kernel, 512, 16, 16, 1, 0, false, PLAIN);
}

static void minima_case(const hc_kernel *kernel, int64_t n, int64_t ld, int64_t n_lines, float_kind kind) {
    begin("n %" D ", ld %" D ", %" D " lines, %s", n, ld, n_lines, float_kind_name(kind));
    const float *x_scales = floats(n_lines * ld, kind), *sums = floats(n_lines * ld, kind);
    const float *minima = floats(16 * ld, kind);
    float *wanted = items(16 * n_lines, 4), *got = items(16 * n_lines, 4);
    hc_gemv_minima_scalar(n, ld, n_lines, x_scales, sums, minima, wanted);
    kernel->fn.gemv_minima(n, ld, n_lines, x_scales, sums, minima, got);
    same("out", F32, got, wanted, 16 * n_lines);
    BENCH(hc_gemv_minima_scalar(n, ld, n_lines, x_scales, sums, minima, wanted),
          kernel->fn.gemv_minima(n, ld, n_lines, x_scales, sums, minima, got));
}

void check_gemv_minima(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 130)
    for (int i = 0; i < 4 * N_FLOAT_KINDS; i++)
        minima_case(kernel, *n, hc_round_up(*n, 16) + 16 * (i % 2), 1 + i % 4, (float_kind)(i / 4));
    usual();
    minima_case(kernel, 64, 64, 8, PLAIN);
}

static void minima_halves_case(const hc_kernel *kernel, int64_t n, int64_t n_lines, float_kind kind) {
    const int64_t ld = hc_round_up(n, 16);
    begin("n %" D ", %" D " lines, %s", n, n_lines, float_kind_name(kind));
    const float *x_scales = floats(n_lines * ld, kind), *sums = floats(n_lines * ld, kind);
    float *minima = items(16 * ld, 4), *wanted = items(16 * n_lines, 4), *got = items(16 * n_lines, 4);
    const uint8_t *rows[16];
    for (int i = 0; i < 16; i++) {
        uint8_t *row = items(2 * n, 1);
        rows[i] = row;
        for (int64_t s = 0; s < n; s++) {
            const uint16_t half = (uint16_t)draw();
            memcpy(row + 2 * s, &half, sizeof half);
            minima[i * ld + s] = hc_f16_to_f32(half);
        }
    }
    hc_gemv_minima_scalar(n, ld, n_lines, x_scales, sums, minima, wanted);
    kernel->fn.gemv_minima_halves(n, ld, n_lines, x_scales, sums, rows, got);
    same("out", F32, got, wanted, 16 * n_lines);
    BENCH(hc_gemv_minima_scalar(n, ld, n_lines, x_scales, sums, minima, wanted),
          kernel->fn.gemv_minima_halves(n, ld, n_lines, x_scales, sums, rows, got));
}

void check_gemv_minima_halves(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 2, 7, 8, 9, 15, 16, 17, 18, 33, 48, 64, 65, 130)
    for (int i = 0; i < 6 * N_FLOAT_KINDS; i++)
        minima_halves_case(kernel, *n, 1 + i % 6, (float_kind)(i / 6));
    usual();
    minima_halves_case(kernel, 64, 8, PLAIN);
}
