/* Packed weights times few float vectors, against the scalar kernels, for every storage of codes and scales. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

enum { ZERO_NONE = -1, ZERO_DRAWN = -2, ZERO_EACH = -3 }; /* flip; one for all; one per group (gemv_rows: row) */
typedef enum { TABLE_NONE, TABLE_SHORT, TABLE_LONG, TABLE_ROWS } table_kind; /* bfloat16; float32; one per row */

/* How codes are stored. */
typedef struct {
    const char *name;
    int bits, flip, zero;
    table_kind table;
    int fraction_bits, exponent_bits, special_bits;
} code_form;
static const code_form FORMS[] = {
    {"int4", 4, 8, ZERO_NONE, TABLE_NONE, 0, 0, 0},
    {"uint4", 4, 0, 0, TABLE_NONE, 0, 0, 0},
    {"uint4 - zero", 4, 0, ZERO_DRAWN, TABLE_NONE, 0, 0, 0},
    {"uint4 - zeros", 4, 0, ZERO_EACH, TABLE_NONE, 0, 0, 0},
    {"a bfloat16 table", 4, 0, 0, TABLE_SHORT, 0, 0, 0},
    {"a table", 4, 0, 0, TABLE_LONG, 0, 0, 0},
    {"a table a row", 4, 0, 0, TABLE_ROWS, 0, 0, 0},
    {"float32", 32, 0, 0, TABLE_NONE, 0, 0, 0},
    {"int8", 8, 128, ZERO_NONE, TABLE_NONE, 0, 0, 0},
    {"uint8", 8, 0, 0, TABLE_NONE, 0, 0, 0},
    {"uint8 - zero", 8, 0, ZERO_DRAWN, TABLE_NONE, 0, 0, 0},
    {"uint8 - zeros", 8, 0, ZERO_EACH, TABLE_NONE, 0, 0, 0},
    {"fp8_e4m3fn", 8, 0, 0, TABLE_NONE, 0, 4, 0x7f},
    {"fp8_e5m2", 8, 0, 0, TABLE_NONE, 0, 5, 0x7c},
    {"fp6_e3m2, lifted", 8, 0, 0, TABLE_NONE, 0, 3, 0xff},
    {"int8 / 64", 8, 128, ZERO_NONE, TABLE_NONE, 6, 0, 0}, /* the last of gemv_groups */
    {"float16", 16, 0, 0, TABLE_NONE, 0, 5, 0},
    {"bfloat16", 16, 0, 0, TABLE_NONE, 0, 8, 0},
};
enum { N_ROW_FORMS = sizeof FORMS / sizeof *FORMS, N_4_BITS = 7, N_FORMS = N_ROW_FORMS - 2 };

static uint16_t draw_half(float_kind kind) {
    const uint64_t bits = draw();
    if (kind == SPECIAL)
        return (uint16_t)bits;
    if (kind == ZEROS && bits >> 16 & 3)
        return bits & 0x8000;
    return (uint16_t)((bits & 0x83ff) | (kind == TINY ? 0 : 10 + (bits >> 18 & 7)) << 10);
}

/* Random codes, padding included, and the tables and n_zeros zero points of each row. */
static void draw_codes(const code_form *form, int64_t bytes, int64_t n_zeros, float_kind kind,
                       hc_gemv_floats_args *args) {
    float shared[16];
    draw_floats(shared, 16, kind);
    args->bits = form->bits;
    args->flip = form->flip;
    args->zero = (float)(form->zero == ZERO_NONE    ? form->flip
                         : form->zero == ZERO_DRAWN ? draw_below(1 << form->bits)
                                                    : 0);
    args->unit = ldexpf(1, -form->fraction_bits);
    args->exponent_bits = form->exponent_bits;
    args->special_bits = form->special_bits;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        uint8_t *codes = random_bytes(bytes);
        for (int64_t i = 0; form->bits == 32 && i < bytes / 4; i++)
            memcpy(codes + 4 * i, (float[]){draw_float(kind)}, 4);
        for (int64_t i = 0; form->special_bits == 0xff && i < bytes; i++)
            codes[i] &= 0xfc;
        args->codes[r] = args->next[r] = codes;
        if (form->table != TABLE_NONE) {
            float *table = items(16, 4);
            for (int i = 0; i < 16; i++) {
                uint32_t entry;
                memcpy(&entry, form->table == TABLE_ROWS ? (float[]){draw_float(kind)} : &shared[i], 4);
                entry &= form->table == TABLE_SHORT ? 0xffff0000 : ~0u;
                memcpy(table + i, &entry, 4);
            }
            args->table[r] = table;
        }
        float *zeros = form->zero == ZERO_EACH ? items(n_zeros, 4) : NULL;
        for (int64_t i = 0; zeros && i < n_zeros; i++)
            zeros[i] = (float)draw_below(1 << form->bits);
        args->zeros[r] = zeros;
    }
}

static void draw_scales(int bits, int64_t groups, float_kind kind, hc_gemv_floats_args *args) {
    args->scale_bits = bits;
    args->groups = groups;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        uint8_t *scales = random_bytes((groups * bits + 7) / 8);
        for (int64_t g = 0; g < groups && bits == 32; g++)
            memcpy(scales + 4 * g, (float[]){draw_float(kind)}, 4);
        for (int64_t g = 0; g < groups && bits == 16; g++)
            memcpy(scales + 2 * g, (uint16_t[]){draw_half(kind)}, 2);
        args->scales[r] = scales;
    }
}

/* span: the number of columns of a group. */
static float *draw_x_of_groups(int64_t span, int64_t columns, int64_t groups, int n_vectors, float_kind kind) {
    const int64_t n = (groups + 15) / 16 * span * n_vectors * 16;
    float *x = items(n, 4);
    memset(x, 0, (size_t)n * 4);
    for (int64_t k = 0; k < columns; k++)
        for (int v = 0; v < n_vectors; v++)
            x[((k / span / 16 * span + k % span) * n_vectors + v) * 16 + k / span % 16] = draw_float(kind);
    return x;
}

static void groups_case(const hc_kernel *kernel, const code_form *form, int64_t words, int64_t groups, int64_t missing,
                        int n_vectors, int scale_bits, float_kind kind) {
    const int64_t group = words * 32 / form->bits, columns = groups * group - missing;
    begin("%s, %" D " columns, group %" D ", %d vectors, scales of %d bits, %s", form->name, columns, group, n_vectors,
          scale_bits, float_kind_name(kind));
    hc_gemv_floats_args args = {.n_vectors = n_vectors, .columns = columns, .group = group}, other;
    draw_codes(form, groups * words * 4, groups, kind, &args);
    draw_scales(scale_bits, groups, kind, &args);
    args.x = draw_x_of_groups(group, columns, groups, n_vectors, kind);
    const int64_t n = HC_GEMV_ROWS * n_vectors;
    other = args;
    args.out = items(n, 4);
    other.out = items(n, 4);
    hc_gemv_groups_scalar(&other);
    kernel->fn.gemv_groups(&args);
    same("out", F32, args.out, other.out, n);
    BENCH(hc_gemv_groups_scalar(&other), kernel->fn.gemv_groups(&args));
}

void check_gemv_groups(const hc_kernel *kernel) {
    int i = 0;
    for (const code_form *form = FORMS; form < FORMS + N_FORMS; form++)
        FOR_EACH(int64_t, words, 1, 2, 3, 4, 8, 9, 16, 17, 33)
    FOR_EACH(int64_t, groups, 0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 21, 33)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2, i++) {
        const int64_t group = *words * 32 / form->bits;
        const int64_t missing = *groups == 0 || i % 3 == 0 ? 0 : i % 3 == 1 ? group - 1 : draw_below(group);
        groups_case(kernel, form, *words, *groups, missing, n_vectors, (const int[]){32, 16, 4}[i / 3 % 3],
                    (float_kind)(i / 2 % N_FLOAT_KINDS));
    }
    usual();
    groups_case(kernel, FORMS, 4, 128, 0, 1, 32, PLAIN);
}

static void rows_case(const hc_kernel *kernel, const code_form *form, int64_t columns, int n_vectors, float_kind kind) {
    begin("%s, %" D " columns, %d vectors, %s", form->name, columns, n_vectors, float_kind_name(kind));
    hc_gemv_floats_args args = {.n_vectors = n_vectors, .columns = columns}, other;
    draw_codes(form, (columns * form->bits + 7) / 8, 1, kind, &args);
    const int64_t n_x = (columns + 63) / 64 * 64 * n_vectors, n = HC_GEMV_ROWS * n_vectors;
    float *x = items(n_x, 4);
    memset(x, 0, (size_t)n_x * 4);
    for (int64_t k = 0; k < columns; k++)
        for (int v = 0; v < n_vectors; v++) {
            const int64_t place = form->bits >= 16  ? k % 64
                                  : form->bits == 8 ? k % 4 * 16 + k / 4 % 16
                                                    : k % 8 * 8 + k / 8 % 8;
            x[(k / 64 * n_vectors + v) * 64 + place] = draw_float(kind);
        }
    args.x = x;
    other = args;
    args.out = items(n, 4);
    other.out = items(n, 4);
    hc_gemv_rows_scalar(&other);
    kernel->fn.gemv_rows(&args);
    same("out", F32, args.out, other.out, n);
    BENCH(hc_gemv_rows_scalar(&other), kernel->fn.gemv_rows(&args));
}

void check_gemv_rows(const hc_kernel *kernel) {
    int i = 0;
    const code_form *const end = FORMS + N_ROW_FORMS;
    for (const code_form *form = FORMS; form < end; form += form + 1 < end && form[1].fraction_bits ? 2 : 1)
        FOR_EACH(int64_t, columns, 0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 191, 211)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2)
        for (int j = 0; j < 2; j++, i++)
            rows_case(kernel, form, *columns, n_vectors, (float_kind)(i % N_FLOAT_KINDS));
    usual();
    rows_case(kernel, FORMS, 4096, 1, PLAIN);
}

static void values_case(const hc_kernel *kernel, int bits, int64_t columns, int64_t group, int n_vectors,
                        float_kind kind) {
    begin("%d bits, %" D " columns, group %" D ", %d vectors, %s", bits, columns, group, n_vectors,
          float_kind_name(kind));
    const code_form form = {"", bits, 0, 0, TABLE_NONE, 0, 0, 0};
    const int64_t groups = (columns + group - 1) / group, n = HC_GEMV_ROWS * n_vectors;
    hc_gemv_floats_args args = {.n_vectors = n_vectors, .columns = columns, .group = group}, other = args;
    draw_codes(&form, (columns * bits + 7) / 8, 0, kind, &args);
    other.bits = 32;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        float *scales = items(groups + 3, 4), *minima = items(groups + 3, 4), *values = items(columns, 4);
        for (int64_t g = 0; g < groups + 3; g++) {
            hc_gemv_scales_scalar((const uint8_t *)(uint16_t[]){draw_half(kind)}, HC_SCALES_F16, 1, 1, scales + g);
            minima[g] = draw_float(kind);
        }
        for (int64_t k = 0; k < columns; k++)
            values[k] = fmaf(scales[k / group], (float)bits_at(args.codes[r], k, bits), minima[k / group]);
        args.scales[r] = (const uint8_t *)scales;
        args.minima[r] = minima;
        other.codes[r] = other.next[r] = (const uint8_t *)values;
    }
    const int64_t n_x = (columns + 63) / 64 * 64 * n_vectors;
    float *x = items(n_x, 4), *x_values = items(n_x, 4);
    memset(x, 0, (size_t)n_x * 4);
    memset(x_values, 0, (size_t)n_x * 4);
    for (int64_t k = 0; k < columns; k++)
        for (int v = 0; v < n_vectors; v++) {
            const int64_t first = (k / 64 * n_vectors + v) * 64;
            x[first + (bits == 8 ? k % 64 : k % 8 * 8 + k / 8 % 8)] = x_values[first + k % 64] = draw_float(kind);
        }
    args.x = x;
    other.x = x_values;
    args.out = items(n, 4);
    other.out = items(n, 4);
    hc_gemv_rows_scalar(&other);
    kernel->fn.gemv_values(&args);
    same("out", F32, args.out, other.out, n);
    BENCH(hc_gemv_rows_scalar(&other), kernel->fn.gemv_values(&args));
}

void check_gemv_values(const hc_kernel *kernel) {
    int i = 0;
    for (int bits = 4; bits <= 8; bits += 4)
        FOR_EACH(int64_t, group, 16, 32, 64, 128, 192, 0 /* a row */)
    FOR_EACH(int64_t, columns, 1, 7, 16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 191, 211, 400)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2, i++)
        values_case(kernel, bits, *columns, *group ? *group : *columns, n_vectors, (float_kind)(i % N_FLOAT_KINDS));
    usual();
    values_case(kernel, 4, 4096, 32, 1, PLAIN);
}

/* Two ascending positions of 2 bits for every block of 4. */
static uint8_t *draw_quads(int64_t codes) {
    static const uint8_t PAIRS[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    uint8_t *metadata = random_bytes((codes + 3) / 4);
    for (int64_t quad = 0; quad < codes / 2; quad++)
        put_bits(metadata, quad, 4, PAIRS[draw_below(6)]);
    return metadata;
}

static void quads_definition(const hc_gemv_24_floats_args *args) {
    const hc_gemv_floats_args *f = &args->floats;
    const int n = f->n_vectors;
    for (int i = 0; i < HC_GEMV_ROWS * n; i++) {
        const int r = i / n, v = i % n;
        float *acc = f->out + i * 16;
        memset(acc, 0, 16 * sizeof *acc);
        for (int64_t g = 0; g < f->groups; g++) {
            const uint8_t *scales = f->scales[r];
            float p = 0, scale = (float)bits_at(scales, f->scale_bits == 4 ? g : 0, 4);
            if (f->scale_bits != 4)
                hc_gemv_scales_scalar(scales + g * f->scale_bits / 8, HC_SCALES_F16, 1, 1, &scale);
            if (f->scale_bits == 32)
                memcpy(&scale, scales + 4 * g, 4);
            for (int64_t t = 0; t < f->group; t++) {
                const int64_t at = g * f->group + t, k = t / 2 * 4 + bits_at(args->metadata[r], at, 2);
                const int code = (int)bits_at(f->codes[r], at, 4);
                const float c = f->table[r] ? f->table[r][code] : (float)(code ^ f->flip) - f->zero;
                p = fmaf(f->x[((g / 16 * 2 * f->group + k) * n + v) * 16 + g % 16], c, p);
            }
            acc[g % 16] = fmaf(scale, p, acc[g % 16]);
        }
    }
}

static void quads_case(const hc_kernel *kernel, const code_form *form, int64_t group, int64_t groups, int n_vectors,
                       int scale_bits, float_kind kind) {
    const int64_t codes = groups * group, n = HC_GEMV_ROWS * n_vectors * 16;
    begin("%s, %" D " groups of %" D " codes, %d vectors, scales of %d bits, %s", form->name, groups, group, n_vectors,
          scale_bits, float_kind_name(kind));
    hc_gemv_24_floats_args args = {.floats = {.n_vectors = n_vectors, .columns = codes, .group = group}}, other;
    draw_codes(form, codes / 2, groups, kind, &args.floats);
    draw_scales(scale_bits, groups, kind, &args.floats);
    for (int r = 0; r < HC_GEMV_ROWS; r++)
        args.metadata[r] = draw_quads(codes);
    args.floats.x = draw_x_of_groups(2 * group, 2 * codes, groups, n_vectors, kind);
    other = args;
    args.floats.out = items(n, 4);
    other.floats.out = items(n, 4);
    quads_definition(&other);
    kernel->fn.gemv_24_groups(&args);
    same("out", F32, args.floats.out, other.floats.out, n);
    BENCH(quads_definition(&other), kernel->fn.gemv_24_groups(&args));
}

void check_gemv_24_groups(const hc_kernel *kernel) {
    int i = 0;
    for (const code_form *form = FORMS; form < FORMS + N_4_BITS; form++)
        for (int64_t group = 16; group <= 64; group *= 2)
            FOR_EACH(int64_t, groups, 0, 1, 2, 15, 16, 17, 33)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2)
        for (int j = 0; j < 2 && form->zero != ZERO_EACH; j++, i++)
            quads_case(kernel, form, group, *groups, n_vectors, (const int[]){32, 4, 16}[i % 3],
                       (float_kind)(i / 2 % N_FLOAT_KINDS));
    usual();
    quads_case(kernel, FORMS, 32, 64, 1, 4, PLAIN);
}

static void scales_case(const hc_kernel *kernel, int kind, int64_t n, float_kind factors) {
    const int bits = kind == HC_SCALES_U4 ? 4 : kind == HC_SCALES_F16 ? 16 : 8;
    begin("kind %d, n %" D ", factor %s", kind, n, float_kind_name(factors));
    uint8_t *stored = random_bytes((n * bits + 7) / 8);
    for (int64_t i = 0; bits == 8 && n >= 256 && i < 256; i++) /* every byte once */
        stored[i] = (uint8_t)i;
    const float factor = draw_float(factors);
    float *wanted = items(n, 4), *got = items(n, 4);
    hc_gemv_scales_scalar(stored, kind, factor, n, wanted);
    kernel->fn.gemv_scales(stored, kind, factor, n, got);
    same("out", F32, got, wanted, n);
    BENCH(hc_gemv_scales_scalar(stored, kind, factor, n, wanted), kernel->fn.gemv_scales(stored, kind, factor, n, got));
}

void check_gemv_scales(const hc_kernel *kernel) {
    FOR_EACH(int, kind, HC_SCALES_U4, HC_SCALES_U8, HC_SCALES_F16, HC_SCALES_E8M0, HC_SCALES_E4M3)
    for (int factors = 0; factors < N_FLOAT_KINDS; factors++) {
        for (int64_t n = 0; n <= 35; n++)
            scales_case(kernel, *kind, n, (float_kind)factors);
        scales_case(kernel, *kind, 256, (float_kind)factors);
        scales_case(kernel, *kind, *kind == HC_SCALES_F16 ? 9999 : 257, (float_kind)factors);
    }
    usual();
    scales_case(kernel, HC_SCALES_F16, 256, PLAIN);
}

static void unpack_case(const hc_kernel *kernel, int bits, int64_t n, int64_t behind) {
    const int64_t bytes = (n * bits + 7) / 8 + behind, n_out = (n + 7) / 8 * 8;
    begin("%d bits, n %" D ", row of %" D " bytes", bits, n, bytes);
    const uint8_t *stored = random_bytes(bytes);
    uint8_t *wanted = items(n, 1), *got = items(n_out, 1);
    hc_gemv_unpack_scalar(stored, bytes, bits, n, wanted);
    kernel->fn.gemv_unpack(stored, bytes, bits, n, got);
    same("out", U8, got, wanted, n);
    BENCH(hc_gemv_unpack_scalar(stored, bytes, bits, n, wanted), kernel->fn.gemv_unpack(stored, bytes, bits, n, got));
}

static void nibbles_case(const hc_kernel *kernel, int bits, int64_t n, int64_t behind) {
    const int64_t bytes = (n * bits + 7) / 8 + behind, n_out = (n + 7) / 8 * 4;
    begin("%d bits, n %" D ", row of %" D " bytes", bits, n, bytes);
    const uint8_t *stored = random_bytes(bytes);
    uint8_t *wanted = items(n_out, 1), *got = items(n_out, 1);
    hc_gemv_nibbles_scalar(stored, bytes, bits, n, wanted);
    kernel->fn.gemv_nibbles(stored, bytes, bits, n, got);
    same("out", U8, got, wanted, n_out);
    BENCH(hc_gemv_nibbles_scalar(stored, bytes, bits, n, wanted), kernel->fn.gemv_nibbles(stored, bytes, bits, n, got));
}

void check_gemv_nibbles(const hc_kernel *kernel) {
    for (int bits = 1; bits <= 3; bits++)
        FOR_EACH(int64_t, behind, 0, 1, 9, 64)
    for (int64_t n = 0; n <= 260; n += n < 20 || (n % 64 > 60) || n % 64 < 4 ? 1 : 5)
        nibbles_case(kernel, bits, n, *behind);
    usual();
    nibbles_case(kernel, 2, 4096, 0);
}

void check_gemv_unpack(const hc_kernel *kernel) {
    for (int bits = 1; bits <= 8; bits++)
        FOR_EACH(int64_t, behind, 0, 1, 9, 64)
    for (int64_t n = 0; n <= 140; n += n < 20 || (n % 64 > 60) || n % 64 < 4 ? 1 : 5)
        unpack_case(kernel, bits, n, *behind);
    usual();
    unpack_case(kernel, 3, 4096, 0);
}
