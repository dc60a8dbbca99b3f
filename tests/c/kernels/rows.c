/* Dot products of rows as they are stored, or with the rows of x interleaved, against the scalar kernels. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

/* Rows with padding and gaps; x is 0 up to a whole step, and w ends at its last column. */
static void rows_case(const hc_kernel *kernel, int n_x, int64_t n_w, int64_t columns, int64_t gap, int hints,
                      integer_kind x_kind, integer_kind w_kind) {
    const int64_t ld_x = (columns + HC_ROWS_STEP - 1) / HC_ROWS_STEP * HC_ROWS_STEP + gap, ld_w = columns + gap;
    const int64_t ldc = n_w + gap, n_c = (n_x - 1) * ldc + n_w, w_bytes = n_w ? (n_w - 1) * ld_w + columns : 0;
    begin("%d x %" D " rows of %" D ", gap %" D ", hints %d, x %s, w %s", n_x, n_w, columns, gap, hints,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    int8_t *x = items(n_x * ld_x - gap, 1), *w = items(w_bytes, 1);
    int32_t *sums = items(n_x, 4), *wanted = items(n_c, 4);
    for (int64_t i = 0; i < n_x * ld_x - gap; i++)
        x[i] = (int8_t)(i % ld_x < columns ? draw_integer(-128, 127, x_kind) : i % ld_x < ld_x - gap ? 0 : 77);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (int8_t)(hints & 4 ? draw_integer(-8, 8, w_kind) : draw_integer(-128, 127, w_kind));
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    for (int64_t i = 0; i < n_x; i++) {
        uint32_t sum = 0;
        for (int64_t k = 0; k < columns; k++)
            sum += (uint32_t)x[i * ld_x + k];
        sums[i] = (int32_t)sum;
    }
    hc_rows_s8_args args = {.n_x = n_x, .n_w = n_w, .columns = columns, .ld_x = ld_x, .ld_w = ld_w, .ldc = ldc};
    args.x = x;
    args.w = w;
    args.x_sums = sums;
    args.accumulate = hints % 2;
    args.next = hints & 2 ? w + ld_w : NULL;
    args.part = 1;
    args.parts = 2;
    args.is_small = hints & 4;
    hc_rows_s8_args other = args;
    int32_t *got = copy_of(wanted, n_c, 4);
    args.c = wanted;
    other.c = got;
    hc_rows_s8_scalar(&args);
    kernel->fn.rows_s8(&other);
    same("c", I32, got, wanted, n_c);
    BENCH(hc_rows_s8_scalar(&args), kernel->fn.rows_s8(&other));
}

void check_rows_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200, 223, 225, 449)
    for (int n_x = 1; n_x <= kernel->mr; n_x++)
        for (int i = 0; i < 8; i++)
            rows_case(kernel, n_x, 1 + (n_x * 3 + i) % 7, *columns, i % 3 * 5, i, (integer_kind)(i % N_INTEGER_KINDS),
                      (integer_kind)(n_x % N_INTEGER_KINDS));
    rows_case(kernel, 3, 0, 64, 0, 0, ANY, ANY);
    for (int n_x = 1; n_x <= kernel->mr; n_x++) { /* so many rows of w that x may be converted first, in pieces */
        int i = 0;
        FOR_EACH(int64_t, columns, 3, 16, 33, 200, 1024, 1031, 2100)
        for (int more = 0; more < 2; more++, i++)
            rows_case(kernel, n_x, 32 + (n_x + i) % 5, *columns, i % 3 * 5, i % 8, ANY, ANY);
    }
    for (int i = 0; i < 16; i++) /* the largest sum that is allowed */
        rows_case(kernel, 2, 2, 65536, 0, i % 8, i & 1 ? LEAST : MOST, i & 8 ? LEAST : MOST);
    usual();
    rows_case(kernel, kernel->mr, 24, 1024, 0, 0, ANY, ANY);
    rows_case(kernel, kernel->mr, 24, 1024, 0, 4, ANY, ANY);
}

static int nibble(const uint8_t *bytes, int64_t i) { return bytes[i / 2] >> (i % 2 * 4) & 15; }

/* The scale times the code. */
static int value_of(const hc_rows_s8_args *args, int64_t j, int64_t k) {
    const int code = (nibble((const uint8_t *)args->w + j * args->ld_w, k) ^ 8) - 8;
    return args->words ? nibble(args->scales + j * args->ld_scales, k / (8 * args->words)) * code : code;
}

/* The index of column k of x. */
static int64_t ordered(int64_t k) { return k / 128 * 128 + k % 2 * 64 + k % 128 / 2; }

static void rows_s4_definition(const hc_rows_s8_args *args) {
    for (int i = 0; i < args->n_x; i++)
        for (int64_t j = 0; j < args->n_w; j++) {
            int32_t *c = args->c + i * args->ldc + j;
            uint32_t sum = args->accumulate ? (uint32_t)*c : 0;
            for (int64_t k = 0; k < args->columns; k++)
                sum += (uint32_t)(args->x[i * args->ld_x + ordered(k)] * value_of(args, j, k));
            *c = (int32_t)sum;
        }
}

/* Codes and scales end at their last byte; its upper half may hold anything. */
static hc_rows_s8_args stored_rows(int64_t n_w, int64_t columns, int words, int64_t gap, int hints, integer_kind kind) {
    hc_rows_s8_args args = {
        .n_w = n_w, .columns = columns, .words = words, .accumulate = hints % 2, .part = 1, .parts = 2};
    const int64_t row_bytes = (columns + 1) / 2, groups = words ? (columns + 8 * words - 1) / (8 * words) : 0;
    args.ld_w = row_bytes + gap;
    args.ld_scales = (groups + 1) / 2 + gap;
    const int64_t w_bytes = n_w ? (n_w - 1) * args.ld_w + row_bytes : 0;
    const int64_t scale_bytes = n_w && words ? (n_w - 1) * args.ld_scales + (groups + 1) / 2 : 0;
    uint8_t *w = items(w_bytes, 1), *scales = items(scale_bytes, 1);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (uint8_t)(draw_integer(-8, 7, kind) & 15) | (uint8_t)((uint32_t)draw_integer(-8, 7, kind) << 4);
    for (int64_t i = 0; i < scale_bytes; i++)
        scales[i] = (uint8_t)(hints & 4 ? 255 : draw_integer(0, 255, ANY));
    args.w = (const int8_t *)w;
    args.scales = scales;
    args.next = hints & 2 ? args.w + args.ld_w : NULL;
    return args;
}

static void rows_s4_case(const hc_kernel *kernel, int n_x, int64_t n_w, int64_t columns, int words, int64_t gap,
                         int hints, integer_kind x_kind, integer_kind w_kind) {
    const int64_t whole = (columns + 127) / 128 * 128, ld_x = whole + gap, ldc = n_w + gap;
    const int64_t n_c = (n_x - 1) * ldc + n_w;
    begin("%d x %" D " rows of %" D ", %d words, gap %" D ", hints %d, x %s, w %s", n_x, n_w, columns, words, gap,
          hints, integer_kind_name(x_kind), integer_kind_name(w_kind));
    hc_rows_s8_args args = stored_rows(n_w, columns, words, gap, hints, w_kind);
    int8_t *x = items(n_x * ld_x - gap, 1);
    int32_t *sums = items(n_x, 4), *start = items(n_x * whole / 8, 4), *wanted = items(n_c, 4);
    memset(x, 0, (size_t)(n_x * ld_x - gap));
    memset(sums, 0, (size_t)n_x * 4);
    memset(start, 0, (size_t)(n_x * whole / 8) * 4);
    for (int64_t i = 0; i < n_x; i++)
        for (int64_t k = 0; k < columns; k++) {
            const int8_t value = (int8_t)draw_integer(-128, 127, x_kind);
            x[i * ld_x + ordered(k)] = value;
            sums[i] += value;
            start[i * (whole / 8) + k / 8] -= 8 * value;
        }
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    args.n_x = n_x;
    args.ld_x = ld_x;
    args.ldc = ldc;
    args.x = x;
    args.x_sums = sums;
    args.start = words && hints & 8 ? start : NULL;
    args.ld_start = whole / 8;
    hc_rows_s8_args other = args;
    int32_t *got = copy_of(wanted, n_c, 4);
    args.c = wanted;
    other.c = got;
    rows_s4_definition(&args);
    kernel->fn.rows_s4(&other);
    same("c", I32, got, wanted, n_c);
    BENCH(rows_s4_definition(&args), kernel->fn.rows_s4(&other));
}

static const int WORDS[] = {0, 2, 4, 8};

void check_rows_s4(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 15, 16, 17, 63, 65, 127, 128, 129, 200, 513, 2047, 2049)
    for (int n_x = 1; n_x <= kernel->mr; n_x++)
        for (int i = 0; i < 16; i++)
            rows_s4_case(kernel, n_x, 1 + (n_x * 3 + i) % 7, *columns, WORDS[i % 4], i % 3 * 5, (i * 7 + n_x) % 16,
                         (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(n_x % N_INTEGER_KINDS));
    rows_s4_case(kernel, 3, 0, 64, 2, 0, 0, ANY, ANY);
    for (int i = 0; i < 32; i++) /* the largest sum that is allowed */
        rows_s4_case(kernel, 1 + i / 4 % 3, 2, 65536, WORDS[i % 4], 0, 4 + i / 4 % 2 * 8, i & 16 ? LEAST : MOST,
                     i & 8 ? LEAST : MOST);
    usual();
    for (int i = 0; i < 2; i++) {
        rows_s4_case(kernel, 1, 24, 1024, WORDS[i], 0, 8, ANY, ANY);
        rows_s4_case(kernel, 8, 24, 1024, WORDS[i], 0, 8, ANY, ANY);
    }
}

/* The rows of x interleaved, plus 128; w ends at its last column. */
static void lanes_case(const hc_kernel *kernel, int lanes, int64_t n_w, int64_t columns, int64_t gap, int hints,
                       integer_kind x_kind, integer_kind w_kind) {
    const int64_t ld_w = columns + gap, ldc = lanes + gap, n_c = n_w ? (n_w - 1) * ldc + lanes : 0;
    const int64_t width = lanes == HC_LANES_FEW ? 8 : 4;
    const int64_t n_x = hc_round_up(columns, width) * lanes, w_bytes = n_w ? (n_w - 1) * ld_w + columns : 0;
    begin("%d lanes x %" D " rows of %" D ", gap %" D ", hints %d, x %s, w %s", lanes, n_w, columns, gap, hints,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    uint8_t *x = items(n_x, 1);
    int8_t *w = items(w_bytes, 1);
    int32_t *wanted = items(n_c, 4);
    for (int64_t i = 0; i < n_x; i++)
        x[i] = (uint8_t)draw_integer(0, 255, x_kind);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (int8_t)draw_integer(-128, 127, w_kind);
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    hc_lanes_s8_args args = {.lanes = lanes, .n_w = n_w, .columns = columns, .ld_w = ld_w, .ldc = ldc, .x = x, .w = w};
    args.accumulate = hints % 2;
    args.next = hints / 2 ? w + ld_w : NULL;
    args.part = 1;
    args.parts = 2;
    hc_lanes_s8_args other = args;
    int32_t *got = copy_of(wanted, n_c, 4);
    args.c = wanted;
    other.c = got;
    hc_lanes_s8_scalar(&args);
    kernel->fn.lanes_s8(&other);
    same("c", I32, got, wanted, n_c);
    BENCH(hc_lanes_s8_scalar(&args), kernel->fn.lanes_s8(&other));
}

void check_lanes_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 3, 4, 5, 63, 64, 65, 130, HC_LANES_COLUMNS - 1)
    for (int n = 0; n <= HC_LANES_X; n++)
        for (int i = 0; i < 4; i++)
            lanes_case(kernel, n ? n * kernel->mr : HC_LANES_FEW, 1 + (n * 7 + i * 5) % 19, *columns, i % 3 * 5, i,
                       (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(n % N_INTEGER_KINDS));
    lanes_case(kernel, kernel->mr, 0, 64, 0, 0, ANY, ANY);
    for (int i = 0; i < 8; i++) /* the largest sum that is allowed */
        lanes_case(kernel, i < 4 ? kernel->mr : HC_LANES_FEW, 2 + i % 4 * 3, HC_LANES_COLUMNS, 0, i % 4,
                   i % 2 ? LEAST : MOST, i / 2 % 2 ? LEAST : MOST);
    usual();
    lanes_case(kernel, HC_LANES_X * kernel->mr, 24, 1024, 0, 0, ANY, ANY);
}

static void lanes_s4_case(const hc_kernel *kernel, int lanes, int64_t n_w, int64_t columns, int words, int64_t gap,
                          int hints, integer_kind x_kind, integer_kind w_kind) {
    const int64_t whole = (columns + 127) / 128 * 128, width = lanes == HC_LANES_FEW ? 8 : 4, ldc = lanes + gap;
    const int64_t n_x = whole * lanes, n_c = n_w ? (n_w - 1) * ldc + lanes : 0;
    begin("%d lanes x %" D " rows of %" D ", %d words, gap %" D ", hints %d, x %s, w %s", lanes, n_w, columns, words,
          gap, hints, integer_kind_name(x_kind), integer_kind_name(w_kind));
    const hc_rows_s8_args rows = stored_rows(n_w, columns, words, gap, hints, w_kind);
    uint8_t *x = items(n_x, 1);
    int32_t *wanted = items(n_c, 4);
    for (int64_t i = 0; i < n_x; i++)
        x[i] = (uint8_t)draw_integer(0, 255, x_kind);
    for (int64_t k = columns; k < whole; k++)
        for (int i = 0; i < lanes; i++)
            x[(ordered(k) / width * lanes + i) * width + ordered(k) % width] = 128;
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    int32_t *got = copy_of(wanted, n_c, 4);
    hc_lanes_s8_args args = {.lanes = lanes, .n_w = n_w, .columns = columns, .ld_w = rows.ld_w, .ldc = ldc, .x = x};
    args.w = rows.w;
    args.accumulate = rows.accumulate;
    args.next = rows.next;
    args.part = rows.part;
    args.parts = rows.parts;
    args.scales = rows.scales;
    args.ld_scales = rows.ld_scales;
    args.words = rows.words;
    args.c = got;
    for (int64_t j = 0; j < n_w; j++)
        for (int i = 0; i < lanes; i++) {
            uint32_t sum = args.accumulate ? (uint32_t)wanted[j * ldc + i] : 0;
            for (int64_t k = 0; k < columns; k++) {
                const int64_t at = ordered(k);
                sum += (uint32_t)((x[(at / width * lanes + i) * width + at % width] - 128) * value_of(&rows, j, k));
            }
            wanted[j * ldc + i] = (int32_t)sum;
        }
    kernel->fn.lanes_s4(&args);
    same("c", I32, got, wanted, n_c);
    BENCH((void)0, kernel->fn.lanes_s4(&args));
}

void check_lanes_s4(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 15, 16, 17, 63, 65, 127, 128, 129, 200, 513, 2047, HC_LANES_COLUMNS)
    for (int n = 0; n <= HC_LANES_X; n++)
        for (int i = 0; i < 16; i++)
            lanes_s4_case(kernel, n ? n * kernel->mr : HC_LANES_FEW, (n * 7 + i * 5) % 19, *columns, WORDS[i % 4],
                          i % 3 * 5, i, (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(n % N_INTEGER_KINDS));
    for (int i = 0; i < 32; i++) /* the largest sum that is allowed */
        lanes_s4_case(kernel, i & 16 ? kernel->mr : HC_LANES_FEW, 9, HC_LANES_COLUMNS, WORDS[i % 4], 0, 0,
                      i & 4 ? LEAST : MOST, i & 8 ? LEAST : MOST);
    usual();
    for (int i = 0; i < 2; i++)
        lanes_s4_case(kernel, HC_LANES_X * kernel->mr, 24, 1024, WORDS[i], 0, 0, ANY, ANY);
}

static void lanes_groups_case(const hc_kernel *kernel, bool split, int lanes, int64_t n_w, int64_t columns,
                              int64_t group, int64_t gap, bool accumulate, float_kind kind) {
    const int64_t whole = (columns + 3) / 4 * 4, groups = (columns + group - 1) / group;
    const int64_t ld_w = whole + gap, ldc = lanes + gap, ld_scales = groups + gap;
    const int64_t n_c = n_w ? (n_w - 1) * ldc + lanes : 0, n_scales = n_w ? (n_w - 1) * ld_scales + groups : 0;
    begin("%d lanes x %" D " rows of %" D ", groups of %" D ", gap %" D ", accumulate %d, scales %s", lanes, n_w,
          columns, group, gap, accumulate, float_kind_name(kind));
    int8_t *x = items(whole * lanes, 1), *w = items(n_w ? (n_w - 1) * ld_w + whole : 0, 1);
    int32_t *start = items(groups * lanes, 4), *factors = items(n_scales, 4);
    float *x_scales = items(lanes, 4), *w_scales = items(n_scales, 4), *wanted = items(n_c, 4);
    memset(start, 0, (size_t)(groups * lanes) * 4);
    for (int64_t k = 0; k < whole; k++)
        for (int i = 0; i < lanes; i++) {
            int8_t *value = x + (k / 4 * lanes + i) * 4 + k % 4;
            *value = k < columns ? (int8_t)draw_integer(-128, 127, ANY) : 0;
            start[k / group * lanes + i] -= 128 * *value;
        }
    for (int64_t i = 0; i < (n_w ? (n_w - 1) * ld_w + whole : 0); i++)
        w[i] = i % ld_w < columns ? (int8_t)draw_integer(-128, 127, ANY) : 0;
    for (int i = 0; i < lanes; i++)
        x_scales[i] = draw_float(kind);
    for (int64_t i = 0; i < n_scales; i++)
        w_scales[i] = draw_float(kind), factors[i] = (int32_t)draw();
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = draw_float(kind);
    float *got = copy_of(wanted, n_c, 4);
    hc_lanes_groups_args args = {
        .lanes = lanes, .n_w = n_w, .columns = columns, .group = group, .ld_w = ld_w, .ldc = ldc};
    args.ld_scales = ld_scales;
    args.x = x;
    args.w = w;
    args.start = start;
    args.x_scales = x_scales;
    args.w_scales = w_scales;
    args.factors = factors;
    args.accumulate = accumulate;
    args.c = got;
    for (int64_t j = 0; j < n_w; j++)
        for (int i = 0; i < lanes; i++) {
            float sum = accumulate ? wanted[j * ldc + i] : 0;
            uint32_t integer = 0;
            if (accumulate)
                memcpy(&integer, wanted + j * ldc + i, sizeof integer);
            for (int64_t g = 0; g < groups; g++) {
                int32_t dot = 0;
                for (int64_t k = g * group; k < columns && k < (g + 1) * group; k++)
                    dot += x[(k / 4 * lanes + i) * 4 + k % 4] * w[j * ld_w + k];
                integer += (uint32_t)factors[j * ld_scales + g] * (uint32_t)dot;
                sum = fmaf(x_scales[i] * w_scales[j * ld_scales + g], (float)dot, sum);
            }
            memcpy(wanted + j * ldc + i, split ? (const void *)&integer : &sum, sizeof sum);
        }
    if (split)
        kernel->fn.lanes_s8_split(&args);
    else
        kernel->fn.lanes_s8_scaled(&args);
    same("c", split ? I32 : F32, got, wanted, n_c);
    BENCH((void)0, split ? kernel->fn.lanes_s8_split(&args) : kernel->fn.lanes_s8_scaled(&args));
}

static void check_groups(const hc_kernel *kernel, bool split) {
    FOR_EACH(int64_t, columns, 0, 1, 3, 4, 8, 31, 32, 33, 64, 100, 257)
    for (int n = 1; n <= HC_LANES_X; n++)
        for (int i = 0; i < 12; i++)
            lanes_groups_case(kernel, split, n * kernel->mr, (n * 7 + i * 5) % 27, *columns, 8 << i % 4, i % 3 * 5,
                              i % 2, (float_kind)(i % N_FINITE_KINDS));
    usual();
    lanes_groups_case(kernel, split, HC_LANES_X * kernel->mr, 24, 1024, 32, 0, false, PLAIN);
}

void check_lanes_s8_scaled(const hc_kernel *kernel) { check_groups(kernel, false); }
void check_lanes_s8_split(const hc_kernel *kernel) { check_groups(kernel, true); }
