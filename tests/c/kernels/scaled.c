/* Packed weights with scales times few integer vectors, against the scalar kernel, or the equation if a family has none. */
#include "kernels.h"

#include "base/convert.h"

#include <inttypes.h>
#include <string.h>

#define D PRId64

/* gemv_dots and gemv_chain of the rows; absent rows are skipped. */
static void scaled_definition(const hc_gemv_scaled_args *args) {
    enum { MOST_SEGMENTS = 512 };
    const int64_t ld = hc_round_up(args->segments, 16), row_bytes = args->segments * args->words * 4;
    static int32_t dots[16 * MOST_SEGMENTS], corrections[MOST_SEGMENTS];
    static float scales[16 * MOST_SEGMENTS];
    for (int line = 0; line < args->n_lines; line++) {
        for (int row = 0; row < args->n_rows; row++) {
            hc_gemv_dots_args of_row = {.bits = args->bits,
                                        .flip = args->flip,
                                        .table = args->table,
                                        .segment = args->words * 32 / args->bits,
                                        .segments = args->segments,
                                        .row_bytes = row_bytes,
                                        .codes = args->codes + row * args->code_stride,
                                        .n_lines = 1,
                                        .x = args->x + line * args->x_bytes,
                                        .dots = dots + row * ld};
            hc_gemv_dots_scalar(&of_row);
            for (int64_t s = 0; args->zeros && s < args->segments; s++)
                dots[row * ld + s] -=
                    (int32_t)args->zeros[row * args->ld_zeros + s] * args->x_sums[line * args->ld_scales + s];
            const uint8_t *from = args->scales + row * args->scale_stride;
            if (args->scale_bits == 16)
                hc_gemv_scales_scalar(from, HC_SCALES_F16, 1, args->segments, scales + row * ld);
            else
                memcpy(scales + row * ld, from, (size_t)args->segments * 4);
        }
        for (int64_t s = 0; s < args->segments; s++) {
            corrections[s] = 0;
            for (int64_t w = 0; w < args->words; w++)
                corrections[s] -= args->start[line * args->ld_start + s * args->words + w];
        }
        hc_gemv_chain_scalar(args->segments, ld, args->x_scales + line * args->ld_scales, scales, dots, corrections,
                             args->out + line * 16);
    }
}

const uint8_t *unpacked_rows(const uint8_t *stored, int64_t stride, int64_t row_bytes, int bits, int n_rows,
                             int64_t n) {
    uint8_t *bytes = items(n_rows * (n + 8), 1);
    for (int row = 0; row < n_rows; row++)
        hc_gemv_unpack_scalar(stored + row * stride, row_bytes, bits, n, bytes + row * (n + 8));
    return bytes;
}

/* Zero points of codes of so many bits. */
static void draw_zeros(hc_gemv_scaled_args *args, integer_kind kind) {
    const int64_t ld = args->ld_zeros = hc_round_up(args->segments, 16);
    float *zero_points = zeros(args->n_rows * ld, 4);
    for (int64_t i = 0; i < args->n_rows * ld; i++)
        zero_points[i] = (float)draw_integer(0, args->bits == 4 ? 15 : 255, kind);
    args->zeros = zero_points;
}

/* The sums of x over segments. */
static const int32_t *sum_segments(const hc_gemv_scaled_args *args) {
    const int32_t *of_words = make_start(args->bits, -1, args->n_lines, args->x_bytes, args->x);
    int32_t *x_sums = zeros((args->n_lines - 1) * args->ld_scales + hc_round_up(args->segments, 8), 4);
    for (int line = 0; line < args->n_lines; line++)
        for (int64_t w = 0; w < args->segments * args->words; w++)
            x_sums[line * args->ld_scales + w / args->words] += of_words[line * args->ld_start + w];
    return x_sums;
}

/* packed_bits: the bits of a stored code if they are not bytes, otherwise 0. has_zeros: each group has a zero point. */
static void scaled_case(const hc_kernel *kernel, int bits, int packed_bits, bool has_zeros, int words, int64_t segments,
                        int n_rows, int n_lines, int scale_bits, integer_kind codes, integer_kind values,
                        float_kind kind) {
    const int64_t row_bytes = segments * words * (packed_bits ? packed_bits : 8) / 2, gap = n_rows % 3 * 5;
    const int64_t scale_bytes = segments * scale_bits / 8, words_bytes = segments * words * 4;
    begin("%d bits, %" D " segments of %d words, %d rows, %d lines, scales of %d bits, codes %s, x %s, scales %s",
          packed_bits ? packed_bits : bits, segments, words, n_rows, n_lines, scale_bits, integer_kind_name(codes),
          integer_kind_name(values), float_kind_name(kind));
    const bool tabled = bits == 4 && !has_zeros && draw_below(3) == 0;
    const bool is_signed = !tabled && !has_zeros && draw_below(2);
    const bool is_small = bits == 8 && !packed_bits && !has_zeros && draw_below(2);
    const int flip = is_signed ? 1 << ((packed_bits ? packed_bits : is_small ? 6 : bits) - 1) : 0;
    const int zero = has_zeros                 ? 0
                     : tabled                  ? 15
                     : is_small || packed_bits ? flip
                     : bits == 8               ? (is_signed ? 128 : (int)draw_below(256))
                                               : draw_zero(is_signed);
    const int64_t x_bytes = hc_round_up(words_bytes, 64) * 8 / bits,
                  code_bytes = (n_rows - 1) * (row_bytes + gap) + row_bytes;
    uint8_t *stored = draw_integer_codes(code_bytes, packed_bits ? 0 : flip * (bits == 4 ? 17 : 1), codes);
    for (int64_t i = 0; i < code_bytes && is_small; i++)
        stored[i] &= 63;
    uint8_t *table = tabled ? items(16, 1) : NULL;
    for (int i = 0; tabled && i < 16; i++)
        table[i] = (uint8_t)draw_integer(0, 30, codes);
    static _Alignas(HC_CACHE_LINE) uint8_t scratch[HC_GEMV_SCALED_BYTES];
    hc_gemv_scaled_args args = {.bits = bits,
                                .flip = flip,
                                .table = table,
                                .words = words,
                                .scale_bits = scale_bits,
                                .is_small = is_small,
                                .n_rows = n_rows,
                                .n_lines = n_lines,
                                .segments = segments,
                                .code_stride = row_bytes + gap,
                                .scale_stride = scale_bytes + 2 * gap,
                                .codes = stored,
                                .x_bytes = x_bytes,
                                .ld_start = x_bytes * bits / 32,
                                .ld_scales = segments,
                                .x = draw_lines(bits, n_lines, x_bytes, words_bytes * 8 / bits, values),
                                .x_scales = floats(n_lines * segments, kind),
                                .scratch = scratch},
                        other;
    uint8_t *scales = random_bytes((n_rows - 1) * (scale_bytes + 2 * gap) + scale_bytes);
    for (int row = 0; row < n_rows && scale_bits == 32; row++)
        for (int64_t s = 0; s < segments; s++)
            memcpy(scales + row * args.scale_stride + 4 * s, (float[]){draw_float(kind)}, 4);
    for (int row = 0; row < n_rows && scale_bits == 16 && kind != SPECIAL; row++) /* without infinities and NaN */
        for (int64_t s = 0; s < segments; s++)
            scales[row * args.scale_stride + 2 * s + 1] &= 0xbf;
    args.scales = scales;
    args.start = make_start(bits, zero, n_lines, x_bytes, args.x);
    args.x_sums = sum_segments(&args);
    args.zero = zero;
    if (has_zeros)
        draw_zeros(&args, codes);
    other = args;
    args.out = items(16 * n_lines, 4);
    other.out = items(16 * n_lines, 4);
    if (packed_bits) {
        other.codes = unpacked_rows(stored, args.code_stride, row_bytes, packed_bits, n_rows, words_bytes);
        other.code_stride = words_bytes + 8;
        args.bits = packed_bits;
    }
    hc_gemv_scaled_fn *const fn = packed_bits ? kernel->fn.gemv_scaled_packed
                                  : has_zeros ? kernel->fn.gemv_scaled_zeros
                                              : kernel->fn.gemv_scaled;
    scaled_definition(&other);
    fn(&args);
    for (int line = 0; line < n_lines; line++)
        same("out", F32, args.out + 16 * line, other.out + 16 * line, n_rows);
    BENCH(scaled_definition(&other), fn(&args));
}

static void scaled_cases(const hc_kernel *kernel, int bits, int packed_bits, bool has_zeros) {
    int i = 0;
    for (int words = 4; words <= 32; words *= 2)
        FOR_EACH(int64_t, segments, 1, 2, 3, 4, 5, 15, 16, 17, 31, 67, 131)
    for (int n_lines = 1; n_lines <= hc_max(kernel->mr, 4); n_lines += kernel->mr ? 1 : n_lines)
        for (int scale_bits = 16; scale_bits <= 32; scale_bits += 16, i++)
            scaled_case(kernel, bits, packed_bits, has_zeros, words, *segments,
                        i % 5 == 0 ? 16 : 1 + (int)draw_below(16), n_lines, scale_bits,
                        (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(i / 3 % N_INTEGER_KINDS),
                        (float_kind)(i / 2 % N_FLOAT_KINDS));
}

void check_gemv_scaled(const hc_kernel *kernel) {
    scaled_cases(kernel, 4, 0, false);
    scaled_cases(kernel, 8, 0, false);
    usual();
    scaled_case(kernel, 4, 0, false, 4, 128, 16, 1, 16, ANY, ANY, PLAIN);
}

void check_gemv_scaled_zeros(const hc_kernel *kernel) {
    scaled_cases(kernel, 4, 0, true);
    scaled_cases(kernel, 8, 0, true);
    usual();
    scaled_case(kernel, 4, 0, true, 4, 128, 16, 1, 16, ANY, ANY, PLAIN);
}

void check_gemv_scaled_packed(const hc_kernel *kernel) {
    for (int bits = 2; bits <= 7; bits++)
        if (bits != 4)
            scaled_cases(kernel, 8, bits, false);
    usual();
    scaled_case(kernel, 8, 6, false, 4, 128, 16, 1, 32, ANY, ANY, PLAIN);
}

/* The sums by their equation, in int64. */
static void turned_definition(const hc_gemv_scaled_args *args) {
    for (int line = 0; line < args->n_lines; line++)
        for (int row = 0; row < args->n_rows; row++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < args->segments * args->words * 4; k++) {
                float factor;
                memcpy(&factor, args->scales + row * args->scale_stride + k / 4 / args->words * 4, sizeof factor);
                sum += (int64_t)factor * ((args->codes[row * args->code_stride + k] ^ args->flip) - args->zero) *
                       args->x[line * args->x_bytes + k];
            }
            args->sums[line * 16 + row] = sum;
        }
}

static void turned_case(const hc_kernel *kernel, int packed_bits, int words, int64_t segments, int n_rows, int n_lines,
                        integer_kind codes, integer_kind values) {
    const bool is_small = !packed_bits && draw_below(2);
    const int bits = packed_bits ? packed_bits : 8, flip = is_small ? 32 : 1 << (bits - 1);
    const int64_t row_bytes = segments * words * bits / 2, gap = n_rows % 3 * 5, bytes = segments * words * 4;
    begin("%d bits, %" D " segments of %d words, %d rows, %d lines, codes %s, x %s", bits, segments, words, n_rows,
          n_lines, integer_kind_name(codes), integer_kind_name(values));
    uint8_t *stored = draw_integer_codes((n_rows - 1) * (row_bytes + gap) + row_bytes, packed_bits ? 0 : flip, codes);
    for (int64_t i = 0; i < (n_rows - 1) * (row_bytes + gap) + row_bytes && is_small; i++)
        stored[i] &= 63;
    float *scales = items(n_rows * segments, 4);
    for (int64_t i = 0; i < n_rows * segments; i++)
        scales[i] = (float)draw_integer(0, 255, codes == ANY ? ANY : MOST);
    static _Alignas(HC_CACHE_LINE) uint8_t scratch[HC_GEMV_SCALED_BYTES];
    hc_gemv_scaled_args args = {.bits = 8,
                                .flip = flip,
                                .words = words,
                                .scale_bits = 32,
                                .is_small = is_small,
                                .n_rows = n_rows,
                                .n_lines = n_lines,
                                .segments = segments,
                                .code_stride = row_bytes + gap,
                                .scale_stride = segments * 4,
                                .codes = stored,
                                .scales = (const uint8_t *)scales,
                                .x_bytes = hc_round_up(bytes, 64),
                                .ld_start = hc_round_up(bytes, 64) / 4,
                                .ld_scales = segments,
                                .zero = flip,
                                .scratch = scratch,
                                .most = INT32_MAX / ((int64_t)words * 4 * 128 * flip * 255)},
                        other;
    args.x = draw_lines(8, n_lines, args.x_bytes, bytes, values);
    args.x_sums = sum_segments(&args);
    other = args;
    args.bits = bits;
    args.sums = items(16 * n_lines, 8);
    other.sums = items(16 * n_lines, 8);
    if (packed_bits) {
        other.codes = unpacked_rows(stored, args.code_stride, row_bytes, packed_bits, n_rows, bytes);
        other.code_stride = bytes + 8;
    }
    hc_gemv_scaled_fn *const fn = packed_bits ? kernel->fn.gemv_turned_packed : kernel->fn.gemv_turned;
    turned_definition(&other);
    fn(&args);
    for (int line = 0; line < n_lines; line++)
        same("sums", I64, args.sums + 16 * line, other.sums + 16 * line, n_rows);
    BENCH(turned_definition(&other), fn(&args));
}

static void turned_cases(const hc_kernel *kernel, int packed_bits) {
    int i = 0;
    for (int words = 4; words <= 32; words *= 2)
        FOR_EACH(int64_t, segments, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 67)
    for (int n_lines = 1; n_lines <= kernel->mr; n_lines++, i++)
        turned_case(kernel, packed_bits, words, *segments, i % 5 == 0 ? 16 : 1 + (int)draw_below(16), n_lines,
                    (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(i / 3 % N_INTEGER_KINDS));
}

void check_gemv_turned(const hc_kernel *kernel) {
    turned_cases(kernel, 0);
    usual();
    turned_case(kernel, 0, 16, 32, 16, 8, ANY, ANY);
}

void check_gemv_turned_packed(const hc_kernel *kernel) {
    for (int bits = 2; bits <= 7; bits++)
        turned_cases(kernel, bits);
    usual();
    turned_case(kernel, 6, 4, 128, 16, 8, ANY, ANY);
}
