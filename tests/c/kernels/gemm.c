/* GEMM: tiles against their equations, for panels of any mr, nr, kr and form; packing and dequantization against the
 * scalar kernels. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

static void f32_definition(const hc_kernel *kernel, int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                           bool accumulate, int rows, int columns) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            float sum = accumulate ? c[i * ldc + j] : 0.0f;
            for (int64_t p = 0; p < k; p++)
                sum = fmaf(a[p * kernel->mr + i], b[p * kernel->nr + j], sum);
            c[i * ldc + j] = sum;
        }
}

static void f32_case(const hc_kernel *kernel, int64_t k, int64_t ldc, bool accumulate, float_kind kind, int rows,
                     int columns) {
    const int64_t n = (kernel->mr - 1) * ldc + kernel->nr;
    begin("k %" D ", ldc %" D ", accumulate %d, %s, %d x %d", k, ldc, accumulate, float_kind_name(kind), rows, columns);
    const float *a = floats(k * kernel->mr, kind), *b = floats(k * kernel->nr, kind);
    float *wanted = floats(n, kind), *got = copy_of(wanted, n, 4);
    f32_definition(kernel, k, a, b, wanted, ldc, accumulate, rows, columns);
    kernel->fn.gemm_f32(k, a, b, got, ldc, accumulate, rows, columns);
    for (int i = 0; i < rows; i++)
        same("c", F32, got + i * ldc, wanted + i * ldc, columns);
    if (rows == kernel->mr && columns == kernel->nr)
        same("c and what lies between its rows", F32, got, wanted, n);
    BENCH(f32_definition(kernel, k, a, b, wanted, ldc, accumulate, rows, columns),
          kernel->fn.gemm_f32(k, a, b, got, ldc, accumulate, rows, columns));
}

void check_gemm_f32(const hc_kernel *kernel) {
    FOR_EACH(int64_t, k, 0, 1, 2, 3, 4, 5, 8, 13, 64, 127)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int i = 0; i < 4; i++)
            f32_case(kernel, *k, kernel->nr + i / 2 * 5, i % 2, (float_kind)kind, kernel->mr, kernel->nr);
    for (int rows = 1; rows <= kernel->mr; rows++)
        for (int columns = 1; columns <= kernel->nr; columns += kernel->nr / 4)
            f32_case(kernel, 13, kernel->nr, rows % 2, PLAIN, rows, columns);
    usual();
    f32_case(kernel, 256, kernel->nr, false, PLAIN, kernel->mr, kernel->nr);
}

static void flat_case(const hc_kernel *kernel, int64_t k, int64_t n, int64_t m, int64_t gap, bool accumulate,
                      float_kind kind) {
    const int64_t ldw = n + gap, ldx = k + gap, ldo = hc_round_up(n, 16) + 16 * gap,
                  size = (m - 1) * ldo + hc_round_up(n, 16);
    begin("%" D " x %" D " x %" D ", gap %" D ", accumulate %d, %s", m, n, k, gap, accumulate, float_kind_name(kind));
    const float *w = floats((k - 1) * ldw + n, kind), *x = floats((m - 1) * ldx + k, kind);
    float *wanted = floats(size, kind), *got = copy_of(wanted, size, 4);
    hc_gemm_flat_scalar(k, n, w, ldw, m, x, ldx, wanted, ldo, accumulate);
    kernel->fn.gemm_flat(k, n, w, ldw, m, x, ldx, got, ldo, accumulate);
    for (int64_t i = 0; i < m; i++)
        same("out", F32, got + i * ldo, wanted + i * ldo, n);
    BENCH(hc_gemm_flat_scalar(k, n, w, ldw, m, x, ldx, wanted, ldo, accumulate),
          kernel->fn.gemm_flat(k, n, w, ldw, m, x, ldx, got, ldo, accumulate));
}

void check_gemm_flat(const hc_kernel *kernel) {
    FOR_EACH(int64_t, k, 1, 2, 3, 7, 8, 9, 17, 41)
    FOR_EACH(int64_t, n, 1, 3, 8, 15, 16, 17, 31, 32, 33, 50, 64)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        flat_case(kernel, *k, *n, 1 + (i + *k) % 4, i / 2 % 2, i % 2, (float_kind)(i / 2));
    usual();
    flat_case(kernel, 256, 64, 16, 0, false, PLAIN);
}

/* An 8-bit value: int8, or uint8 for the lower bytes of longer integers (a alone). */
static int draw_byte(bool is_unsigned, integer_kind kind) {
    return (int)(is_unsigned ? draw_integer(0, 255, kind) : draw_integer(-128, 127, kind));
}

static int64_t place(int rows, int kr, int64_t i, int64_t k) { return (k / kr * rows + i) * kr + k % kr; }

/* How a panel of a stores a value; init makes up for the offset. */
static int stored(int form, bool is_unsigned, int value) {
    return form == HC_PANEL_S8 && is_unsigned ? value - 128 : form == HC_PANEL_U8 && !is_unsigned ? value + 128 : value;
}

/* How many values are adjacent in a panel; panels are aligned to that many. */
static int together(const hc_kernel *kernel) { return kernel->kr % 4 == 0 ? 4 : kernel->kr; }

static void *pack(const hc_kernel *kernel, int64_t k, bool is_unsigned, const int16_t *values) {
    const int mr = kernel->mr, kr = kernel->kr, unit = together(kernel);
    const bool is_wide = kernel->form == HC_PANEL_S16;
    void *panel = items(mr * k / unit, is_wide ? 2 * unit : unit);
    uint8_t *bytes = is_wide ? NULL : panel;
    int16_t *words = is_wide ? panel : NULL;
    for (int i = 0; i < mr; i++)
        for (int64_t p = 0; p < k; p++) {
            const int value = stored(kernel->form, is_unsigned, values[i * k + p]);
            if (words)
                words[place(mr, kr, i, p)] = (int16_t)value;
            else
                bytes[place(mr, kr, i, p)] = (uint8_t)value;
        }
    return panel;
}

static int16_t *draw_bytes(int64_t n, bool is_unsigned, integer_kind kind) {
    int16_t *values = items(n, 2);
    for (int64_t i = 0; i < n; i++)
        values[i] = (int16_t)draw_byte(is_unsigned, kind);
    return values;
}

/* The offset of the stored a times the column's sum, negated, modulo 2^32. */
static uint32_t correction(int form, bool is_unsigned, int64_t k, const int16_t *b) {
    uint32_t sum = 0;
    for (int64_t p = 0; p < k; p++)
        sum += (uint32_t)b[p];
    return sum * (uint32_t)-stored(form, is_unsigned, 0);
}

static uint32_t dot(int64_t k, const int16_t *a, const int16_t *b) {
    uint32_t sum = 0;
    for (int64_t p = 0; p < k; p++)
        sum += (uint32_t)(a[p] * b[p]);
    return sum;
}

/* Defined on plain values, not on panels. */
static void s8_definition(const hc_kernel *kernel, int64_t k, const int16_t *a, const int16_t *b, const int32_t *init,
                          int32_t *c) {
    for (int i = 0; i < kernel->mr; i++)
        for (int j = 0; j < kernel->nr; j++)
            c[i * kernel->nr + j] = (int32_t)((uint32_t)init[j] + dot(k, a + i * k, b + j * k));
}

static void s8_case(const hc_kernel *kernel, int64_t n_steps, bool is_unsigned, integer_kind a_kind,
                    integer_kind b_kind) {
    const int mr = kernel->mr, nr = kernel->nr, unit = together(kernel);
    const int64_t k = n_steps * kernel->kr;
    begin("steps %" D ", a %s %s, b %s", n_steps, is_unsigned ? "uint8" : "int8", integer_kind_name(a_kind),
          integer_kind_name(b_kind));
    const int16_t *a = draw_bytes(mr * k, is_unsigned, a_kind), *b = draw_bytes(nr * k, false, b_kind);
    int8_t *b_panel = items(nr * k / unit, unit);
    int32_t *start = items(nr, 4), *init = items(nr, 4), *wanted = items(mr * nr, 4), *got = items(mr * nr, 4);
    for (int j = 0; j < nr; j++) {
        start[j] = (int32_t)draw();
        init[j] = (int32_t)((uint32_t)start[j] + correction(kernel->form, is_unsigned, k, b + j * k));
        for (int64_t p = 0; p < k; p++)
            b_panel[place(nr, unit, j, p)] = (int8_t)b[j * k + p];
    }
    const void *a_panel = pack(kernel, k, is_unsigned, a);
    s8_definition(kernel, k, a, b, start, wanted);
    kernel->fn.gemm_s8(n_steps, a_panel, b_panel, init, got);
    same("c", I32, got, wanted, mr * nr);
    BENCH(s8_definition(kernel, k, a, b, start, wanted), kernel->fn.gemm_s8(n_steps, a_panel, b_panel, init, got));
}

void check_gemm_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, steps, 0, 1, 2, 3, 5, 16, 33)
    for (int i = 0; i < 2 * N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
        s8_case(kernel, *steps, i % 2, (integer_kind)(i / 2 / N_INTEGER_KINDS),
                (integer_kind)(i / 2 % N_INTEGER_KINDS));
    s8_case(kernel, 65536 / kernel->kr, true, MOST, LEAST); /* the largest sum that is allowed */
    s8_case(kernel, 65536 / kernel->kr, false, LEAST, LEAST);
    usual();
    s8_case(kernel, 1024 / kernel->kr, false, ANY, ANY);
}

static void scaled_definition(const hc_kernel *kernel, int64_t n_segments, const int32_t *steps, int64_t k,
                              const int16_t *a, const int16_t *b, const float *scale_a, const float *scale_b, float *c,
                              bool accumulate) {
    const int mr = kernel->mr, nr = kernel->nr;
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nr; j++) {
            float sum = accumulate ? c[i * nr + j] : 0.0f;
            for (int64_t s = 0, p = 0; s < n_segments; p += steps[s++] * kernel->kr) {
                const float scale = scale_a[s * mr + i] * scale_b[s * nr + j];
                sum = fmaf(scale, (float)(int32_t)dot(steps[s] * kernel->kr, a + i * k + p, b + j * k + p), sum);
            }
            c[i * nr + j] = sum;
        }
}

/* There is no init here, so a panel of the form S8 holds int8. */
static void scaled_case(const hc_kernel *kernel, int64_t n_segments, const int32_t *of_segments, bool unsigned_too,
                        bool accumulate, integer_kind kind, float_kind scales) {
    const bool is_unsigned = unsigned_too && kernel->form != HC_PANEL_S8;
    const int mr = kernel->mr, nr = kernel->nr, kr = kernel->kr, unit = together(kernel);
    begin("%" D " segments of %d, %d ... steps, a %s, values %s, scales %s, accumulate %d", n_segments, of_segments[0],
          of_segments[1], is_unsigned ? "uint8" : "int8", integer_kind_name(kind), float_kind_name(scales), accumulate);
    int64_t k = 0;
    for (int64_t s = 0; s < n_segments; s++)
        k += of_segments[s] * kr;
    const int32_t *steps = copy_of(of_segments, n_segments, 4);
    const int16_t *a = draw_bytes(mr * k, is_unsigned, kind);
    int16_t *b = draw_bytes(nr * k, false, kind);
    for (int64_t i = 0; i < nr * k && kernel->small; i++)
        b[i] = (int16_t)draw_integer(-kernel->small, kernel->small, kind);
    const float *scale_a = floats(n_segments * mr, scales), *scale_b = floats(n_segments * nr, scales);
    float *wanted = floats(mr * nr, scales), *got = copy_of(wanted, mr * nr, 4);
    int8_t *b_panel = items(nr * k / unit, unit);
    int32_t *init = kernel->form == HC_PANEL_U8 ? items(n_segments * nr, 4) : NULL;
    for (int j = 0; j < nr; j++) {
        for (int64_t p = 0; p < k; p++)
            b_panel[place(nr, unit, j, p)] = (int8_t)b[j * k + p];
        for (int64_t s = 0, p = 0; init && s < n_segments; p += steps[s++] * kr)
            init[s * nr + j] = (int32_t)correction(kernel->form, is_unsigned, steps[s] * kr, b + j * k + p);
    }
    const void *a_panel = pack(kernel, k, is_unsigned, a);
    scaled_definition(kernel, n_segments, steps, k, a, b, scale_a, scale_b, wanted, accumulate);
    kernel->fn.gemm_s8_scaled(n_segments, steps, a_panel, b_panel, init, scale_a, scale_b, got, accumulate);
    same("c", F32, got, wanted, mr * nr);
    BENCH(scaled_definition(kernel, n_segments, steps, k, a, b, scale_a, scale_b, wanted, accumulate),
          kernel->fn.gemm_s8_scaled(n_segments, steps, a_panel, b_panel, init, scale_a, scale_b, got, accumulate));
}

void check_gemm_s8_scaled(const hc_kernel *kernel) {
    static const int32_t STEPS[][8] = {{1, 1}, {0, 3, 1}, {4, 4, 4, 1}, {2, 16, 5, 0, 7, 1, 3, 4}};
    static const int64_t SEGMENTS[] = {1, 3, 4, 8};
    for (int i = 0; i < 4; i++) {
        scaled_case(kernel, 0, STEPS[i], true, i % 2, ANY, PLAIN);
        for (int kind = 0; kind < N_INTEGER_KINDS; kind++)
            for (int scales = 0; scales < N_FLOAT_KINDS; scales++)
                for (int j = 0; j < 4; j++)
                    scaled_case(kernel, SEGMENTS[i], STEPS[i], j % 2, j / 2, (integer_kind)kind, (float_kind)scales);
    }
    const int32_t longest[2] = {65536 / kernel->kr};
    scaled_case(kernel, 1, longest, true, false, ENDS, PLAIN);
    const int32_t eight[8] = {16, 16, 16, 16, 16, 16, 16, 16};
    usual();
    scaled_case(kernel, 8, eight, false, false, ANY, PLAIN);
}

void check_gemm_small_scaled(const hc_kernel *kernel) { check_gemm_s8_scaled(kernel); }

static void split_definition(const hc_kernel *kernel, int64_t n_segments, const int32_t *steps, int64_t k,
                             const int16_t *a, const int16_t *b, const float *scales, int32_t *c) {
    const int mr = kernel->mr, nr = kernel->nr;
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nr; j++) {
            uint32_t sum = 0;
            for (int64_t s = 0, p = 0; s < n_segments; p += steps[s++] * kernel->kr)
                sum += (uint32_t)(int32_t)scales[s * nr + j] * dot(steps[s] * kernel->kr, a + i * k + p, b + j * k + p);
            c[i * nr + j] = (int32_t)sum;
        }
}

static void split_case(const hc_kernel *kernel, int64_t n_segments, const int32_t *of_segments, integer_kind kind) {
    const int mr = kernel->mr, nr = kernel->nr, kr = kernel->kr, unit = together(kernel);
    begin("%" D " segments of %d, %d ... steps, values %s", n_segments, of_segments[0], of_segments[1],
          integer_kind_name(kind));
    int64_t k = 0;
    for (int64_t s = 0; s < n_segments; s++)
        k += of_segments[s] * kr;
    const int32_t *steps = copy_of(of_segments, n_segments, 4);
    const int16_t *a = draw_bytes(mr * k, false, kind);
    int16_t *b = items(nr * k, 2);
    int8_t *b_panel = items(nr * k / unit, unit);
    float *scales = items(n_segments * nr, 4);
    int32_t *init = items(n_segments * nr, 4), *wanted = items(mr * nr, 4), *got = items(mr * nr, 4);
    for (int64_t i = 0; i < nr * k; i++)
        b[i] = (int16_t)draw_integer(-(kernel->small ? kernel->small : 128), kernel->small ? kernel->small : 127, kind);
    for (int64_t i = 0; i < n_segments * nr; i++)
        scales[i] = (float)draw_integer(0, i % 3 ? 255 : 1 << 24, kind);
    for (int j = 0; j < nr; j++) {
        for (int64_t p = 0; p < k; p++)
            b_panel[place(nr, unit, j, p)] = (int8_t)b[j * k + p];
        for (int64_t s = 0, p = 0; s < n_segments; p += steps[s++] * kr)
            init[s * nr + j] = (int32_t)correction(kernel->form, false, steps[s] * kr, b + j * k + p);
    }
    split_definition(kernel, n_segments, steps, k, a, b, scales, wanted);
    const void *a_panel = pack(kernel, k, false, a);
    kernel->fn.gemm_small_split(n_segments, steps, a_panel, b_panel, init, scales, got);
    same("c", I32, got, wanted, mr * nr);
    BENCH(split_definition(kernel, n_segments, steps, k, a, b, scales, wanted),
          kernel->fn.gemm_small_split(n_segments, steps, a_panel, b_panel, init, scales, got));
}

void check_gemm_small_split(const hc_kernel *kernel) {
    static const int32_t STEPS[][8] = {{1, 1}, {0, 3, 1}, {4, 4, 4, 1}, {2, 16, 5, 0, 7, 1, 3, 4}};
    static const int64_t SEGMENTS[] = {1, 3, 4, 8};
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < N_INTEGER_KINDS; kind++)
            for (int j = 0; j < 4; j++)
                split_case(kernel, j ? SEGMENTS[i] : 0, STEPS[i], (integer_kind)kind);
    const int32_t longest[2] = {65536 / kernel->kr};
    split_case(kernel, 1, longest, ENDS);
    const int32_t eight[8] = {16, 16, 16, 16, 16, 16, 16, 16};
    usual();
    split_case(kernel, 8, eight, ANY);
}

void check_gemm_split_words(const hc_kernel *kernel) { check_gemm_small_split(kernel); }

/* gemm_few: the first rows of a panel of mr rows, by the definitions for that panel. */
static void few_case(const hc_kernel *kernel, hc_few_kind kind, int rows, int mr, int64_t n_segments,
                     const int32_t *of_segments, bool accumulate, integer_kind values) {
    hc_kernel of_panel = *kernel;
    of_panel.mr = mr;
    const int nr = kernel->nr, kr = kernel->kr;
    const int64_t n_scales = n_segments * nr;
    begin("kind %d, %d rows of %d, %" D " segments of %d, %d ... steps, accumulate %d, values %s", (int)kind, rows, mr,
          n_segments, of_segments[0], of_segments[1], accumulate, integer_kind_name(values));
    int64_t k = 0;
    for (int64_t s = 0; s < n_segments; s++)
        k += of_segments[s] * kr;
    const int32_t *steps = copy_of(of_segments, n_segments, 4);
    const int16_t *a = draw_bytes(mr * k, false, values);
    int16_t *b = draw_bytes(nr * k, false, values);
    for (int64_t i = 0; i < nr * k && !kernel->mr; i++) /* without sums: for the weights of gemm_small_split */
        b[i] = (int16_t)draw_integer(-16, 16, values);
    int8_t *b_panel = items(nr * k / 4, 4);
    const float *scale_a = floats(n_segments * mr, PLAIN);
    float *scale_b = floats(n_scales, PLAIN);
    for (int64_t i = 0; i < n_scales && kind == HC_FEW_SPLIT; i++)
        scale_b[i] = (float)draw_integer(0, i % 3 ? 255 : 1 << 24, values);
    int32_t *start = items(n_scales, 4), *init = items(n_scales, 4);
    for (int j = 0; j < nr; j++) {
        for (int64_t p = 0; p < k; p++)
            b_panel[place(nr, 4, j, p)] = (int8_t)b[j * k + p];
        for (int64_t s = 0, p = 0; s < n_segments; p += steps[s++] * kr) {
            start[s * nr + j] = kind == HC_FEW_SUMS ? (int32_t)draw() : 0;
            init[s * nr + j] =
                (int32_t)((uint32_t)start[s * nr + j] + correction(kernel->form, false, steps[s] * kr, b + j * k + p));
        }
    }
    float *wanted = floats(mr * nr, PLAIN), *got = copy_of(wanted, mr * nr, 4);
    if (kind == HC_FEW_SUMS)
        s8_definition(&of_panel, k, a, b, start, (int32_t *)(void *)wanted);
    else if (kind == HC_FEW_SCALED)
        scaled_definition(&of_panel, n_segments, steps, k, a, b, scale_a, scale_b, wanted, accumulate);
    else
        split_definition(&of_panel, n_segments, steps, k, a, b, scale_b, (int32_t *)(void *)wanted);
    const hc_gemm_few_args args = {.kind = kind,
                                   .rows = rows,
                                   .mr = mr,
                                   .n_segments = n_segments,
                                   .steps = steps,
                                   .a = pack(&of_panel, k, false, a),
                                   .b = b_panel,
                                   .init = init,
                                   .scale_a = scale_a,
                                   .scale_b = scale_b,
                                   .c = got,
                                   .accumulate = accumulate};
    kernel->fn.gemm_few(&args);
    same("c", kind == HC_FEW_SCALED ? F32 : I32, got, wanted, rows * nr);
}

void check_gemm_few(const hc_kernel *kernel) {
    static const int32_t STEPS[][4] = {{1, 1}, {0, 3, 1}, {4, 4, 4, 1}, {2, 16, 5, 7}};
    static const int PANEL[] = {0, 1, 2, 3, 4, 6, 6, 8, 8};
    for (int rows = 1; rows <= kernel->mr || rows <= kernel->small; rows++)
        for (int i = 0; i < 4; i++)
            for (int values = 0; values < N_INTEGER_KINDS; values++)
                for (int mr = PANEL[rows]; mr <= 12; mr += 12 - PANEL[rows]) {
                    if (rows <= kernel->mr)
                        few_case(kernel, HC_FEW_SUMS, rows, mr, 1, STEPS[i], false, (integer_kind)values);
                    for (int j = 0; j < 2 && rows <= kernel->small; j++) {
                        few_case(kernel, HC_FEW_SCALED, rows, mr, i + 1, STEPS[i], j, (integer_kind)values);
                        few_case(kernel, HC_FEW_SPLIT, rows, mr, j ? i + 1 : 0, STEPS[i], false, (integer_kind)values);
                    }
                }
}

void check_gemm_few_words(const hc_kernel *kernel) { check_gemm_few(kernel); }

static float_kind scales_of(int i) { return (float_kind)(i % N_FLOAT_KINDS); }

/* Multiplying these three factors in float64 in any other order gives another float32. */
#define IN_ORDER_A 0x1.83e176p+0f
#define IN_ORDER_B 0x1.daeaccp+0f
enum { IN_ORDER_SUM = 1689979155 };

/* hc_dequantize_s32_fn, and the same for 64 bits; a sum has `bytes` bytes. */
static void dequantize_case(const hc_kernel *kernel, int bytes, int64_t rows, int64_t columns, int64_t gap,
                            integer_kind kind, float_kind scales) {
    const int64_t ldc = columns + gap, ldo = columns + 2 * gap;
    const int64_t n = rows ? (rows - 1) * ldc + columns : 0, n_out = rows ? (rows - 1) * ldo + columns : 0;
    const bool in_order = scales == TIES && kind == ANY;
    begin("%" D " x %" D ", ldc %" D ", sums %s, scales %s", rows, columns, ldc, integer_kind_name(kind),
          float_kind_name(scales));
    void *c = items(n, bytes);
    for (int64_t i = 0; i < n; i++) {
        const int64_t sum = in_order ? IN_ORDER_SUM
                            : bytes == 8
                                ? draw_integer(INT64_MIN, INT64_MAX, kind) >> (kind == ANY ? draw_below(64) : 0)
                                : draw_integer(INT32_MIN, INT32_MAX, kind);
        if (bytes == 8)
            ((int64_t *)c)[i] = sum;
        else
            ((int32_t *)c)[i] = (int32_t)sum;
    }
    float *scale_a = floats(rows, scales), *scale_b = floats(columns, scales);
    for (int64_t i = 0; in_order && i < rows; i++)
        scale_a[i] = IN_ORDER_A;
    for (int64_t j = 0; in_order && j < columns; j++)
        scale_b[j] = IN_ORDER_B;
    float *wanted = items(n_out, 4), *got = items(n_out, 4);
    if (bytes == 8) {
        hc_dequantize_s64_scalar(rows, columns, c, ldc, scale_a, scale_b, wanted, ldo);
        kernel->fn.dequantize_s64(rows, columns, c, ldc, scale_a, scale_b, got, ldo);
    } else {
        hc_dequantize_s32_scalar(rows, columns, c, ldc, scale_a, scale_b, wanted, ldo);
        kernel->fn.dequantize_s32(rows, columns, c, ldc, scale_a, scale_b, got, ldo);
    }
    same("out", F32, got, wanted, n_out);
    if (bytes == 8)
        BENCH(hc_dequantize_s64_scalar(rows, columns, c, ldc, scale_a, scale_b, wanted, ldo),
              kernel->fn.dequantize_s64(rows, columns, c, ldc, scale_a, scale_b, got, ldo));
    else
        BENCH(hc_dequantize_s32_scalar(rows, columns, c, ldc, scale_a, scale_b, wanted, ldo),
              kernel->fn.dequantize_s32(rows, columns, c, ldc, scale_a, scale_b, got, ldo));
}

static void check_dequantize(const hc_kernel *kernel, int bytes) {
    FOR_EACH(int64_t, rows, 0, 1, 3, 6)
    FOR_EACH(int64_t, columns, 0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        dequantize_case(kernel, bytes, *rows, *columns, i % 2 * 3, (integer_kind)(i % N_INTEGER_KINDS), scales_of(i));
    usual();
    dequantize_case(kernel, bytes, 12, 32, 0, ANY, PLAIN);
}

void check_dequantize_s32(const hc_kernel *kernel) { check_dequantize(kernel, 4); }
void check_dequantize_s64(const hc_kernel *kernel) { check_dequantize(kernel, 8); }

static void combine_case(const hc_kernel *kernel, int n, int64_t count, integer_kind kind) {
    begin("n %d, count %" D ", tiles %s", n, count, integer_kind_name(kind));
    int32_t *tiles = items(n * count, 4);
    int *shifts = items(n, sizeof *shifts);
    int64_t *wanted = items(count, 8);
    for (int64_t i = 0; i < n * count; i++)
        tiles[i] = (int32_t)draw_integer(INT32_MIN, INT32_MAX, kind);
    for (int i = 0; i < n; i++)
        shifts[i] = (int)(i % 2 ? draw_below(64) : 8 * draw_below(5));
    for (int64_t i = 0; i < count; i++)
        wanted[i] = (int64_t)draw();
    int64_t *got = copy_of(wanted, count, 8);
    hc_combine_limbs_scalar(n, count, tiles, shifts, wanted);
    kernel->fn.combine_limbs(n, count, tiles, shifts, got);
    same("dots", I64, got, wanted, count);
    BENCH(hc_combine_limbs_scalar(n, count, tiles, shifts, wanted),
          kernel->fn.combine_limbs(n, count, tiles, shifts, got));
}

void check_combine_limbs(const hc_kernel *kernel) {
    for (int n = 0; n <= 9; n++)
        FOR_EACH(int64_t, count, 0, 8, 16, 24, 40, 128)
    for (int kind = 0; kind < N_INTEGER_KINDS; kind++)
        combine_case(kernel, n, *count, (integer_kind)kind);
    usual();
    combine_case(kernel, 4, 384, ANY);
}

/* A sum halfway between two floats, or next to it: rounding it to float64 first would be wrong. */
static int64_t draw_tie(void) {
    const int shift = (int)draw_below(40);
    const uint64_t bits = draw(), halves = (bits & 0xffffff) | 0x800000;
    const int64_t value = (int64_t)((2 * halves + 1) << shift >> 1) + (int64_t)(bits >> 24 & 3) - 1;
    return bits >> 26 & 1 ? -value : value;
}

static void scale_case(const hc_kernel *kernel, int64_t rows, int64_t columns, bool ties, float_kind scales) {
    const int64_t n = rows * columns;
    begin("%" D " x %" D ", %s, scales %s", rows, columns, ties ? "ties" : "any sums", float_kind_name(scales));
    int64_t *dots = items(n, 8);
    for (int64_t i = 0; i < n; i++)
        dots[i] = ties ? draw_tie() : draw_integer(INT64_MIN, INT64_MAX, (integer_kind)(i % 2)) >> draw_below(64);
    const float *scale_a = floats(rows, scales), *scale_b = floats(columns, scales);
    float *wanted = floats(n, ties ? ZEROS : scales), *got = copy_of(wanted, n, 4);
    hc_scale_s64_scalar(rows, columns, dots, scale_a, scale_b, wanted);
    kernel->fn.scale_s64(rows, columns, dots, scale_a, scale_b, got);
    same("c", F32, got, wanted, n);
    BENCH(hc_scale_s64_scalar(rows, columns, dots, scale_a, scale_b, wanted),
          kernel->fn.scale_s64(rows, columns, dots, scale_a, scale_b, got));
}

void check_scale_s64(const hc_kernel *kernel) {
    FOR_EACH(int64_t, rows, 0, 1, 2, 7)
    FOR_EACH(int64_t, columns, 0, 8, 16, 24, 40)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        scale_case(kernel, *rows, *columns, i % 2, scales_of(i));
    usual();
    scale_case(kernel, 12, 32, false, PLAIN);
}

static void pack_case(const hc_kernel *kernel, int n_rows, int64_t units, int lanes, int64_t gap) {
    const int64_t row_bytes = units * 4 + gap, bytes = (n_rows - 1) * row_bytes + units * 4;
    const int64_t panel_bytes = units ? ((units - 1) * lanes + n_rows) * 4 : 0;
    begin("%d rows of %" D " bytes, units %" D ", lanes %d", n_rows, row_bytes, units, lanes);
    const void *rows = random_bytes(bytes);
    const uint32_t flip = (uint32_t)draw() & (draw_below(2) ? 0x80808080u : ~0u);
    void *wanted = items(panel_bytes, 1), *got = items(panel_bytes, 1);
    hc_pack_x32_scalar(rows, row_bytes, n_rows, units, wanted, lanes, flip);
    kernel->fn.pack_x32(rows, row_bytes, n_rows, units, got, lanes, flip);
    same("panel", U8, got, wanted, panel_bytes);
    BENCH(hc_pack_x32_scalar(rows, row_bytes, n_rows, units, wanted, lanes, flip),
          kernel->fn.pack_x32(rows, row_bytes, n_rows, units, got, lanes, flip));
}

void check_pack_x32(const hc_kernel *kernel) {
    for (int n_rows = 1; n_rows <= 16; n_rows++)
        FOR_EACH(int64_t, units, 0, 1, 3, 4, 5, 8, 15, 16, 17, 37)
    for (int i = 0; i < 4; i++)
        pack_case(kernel, n_rows, *units, n_rows + (i == 1) * 3 + (i == 2) * 16, i == 0 ? 0 : 13 * i - 9);
    usual();
    pack_case(kernel, 16, 256, 32, 0);
}

static void compensation_case(const hc_kernel *kernel, int64_t n_segments, int units, int lanes, integer_kind kind) {
    begin("%" D " segments, units %d, lanes %d, %s", n_segments, units, lanes, integer_kind_name(kind));
    int32_t *steps = items(n_segments, 4);
    int64_t n = 0;
    for (int64_t s = 0; s < n_segments; s++)
        n += steps[s] = (int32_t)draw_below(7);
    const int64_t bytes = n * units * lanes * 4;
    int8_t *panel = items(bytes, 1);
    for (int64_t i = 0; i < bytes; i++)
        panel[i] = (int8_t)draw_integer(-128, 127, kind);
    const int32_t factor = draw_below(2) ? -128 : (int32_t)draw_integer(-255, 255, ANY);
    int32_t *wanted = items(n_segments * lanes, 4), *got = items(n_segments * lanes, 4);
    hc_compensation_s8_scalar(n_segments, steps, units, panel, lanes, factor, wanted);
    kernel->fn.compensation_s8(n_segments, steps, units, panel, lanes, factor, got);
    same("sums", I32, got, wanted, n_segments * lanes);
    BENCH(hc_compensation_s8_scalar(n_segments, steps, units, panel, lanes, factor, wanted),
          kernel->fn.compensation_s8(n_segments, steps, units, panel, lanes, factor, got));
}

void check_compensation_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, segments, 0, 1, 2, 5)
    FOR_EACH(int, units, 1, 2, 16)
    FOR_EACH(int, lanes, 1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 48)
    for (int kind = 0; kind < N_INTEGER_KINDS; kind++)
        compensation_case(kernel, *segments, *units, *lanes, (integer_kind)kind);
    usual();
    compensation_case(kernel, 8, 8, 32, ANY);
}

/* `kept` of every kr values are kept, in any order. A repeated position means that fewer are kept. */
static void nm_case(const hc_kernel *kernel, hc_gemm_nm_s8_fn *fn, int64_t n_steps, bool is_unsigned,
                    integer_kind a_kind, integer_kind b_kind) {
    const int mr = kernel->mr, nr = kernel->nr, kr = kernel->kr, kept = kernel->nonzeros;
    const int64_t k = n_steps * kr;
    begin("steps %" D ", a %s %s, b %s", n_steps, is_unsigned ? "uint8" : "int8", integer_kind_name(a_kind),
          integer_kind_name(b_kind));
    const int16_t *a = draw_bytes(mr * k, is_unsigned, a_kind);
    int16_t *b = items(nr * k, 2);
    memset(b, 0, (size_t)(nr * k) * 2);
    int8_t *b_steps = items(n_steps * nr * kept * 2 / 4, 4);
    for (int64_t s = 0; s < n_steps; s++)
        for (int j = 0; j < nr; j++)
            for (int t = 0; t < kept; t++) {
                int8_t *to = b_steps + s * nr * kept * 2 + j * kept + t;
                const int at = (int)draw_below(kr);
                int16_t *value = b + j * k + s * kr + at;
                to[0] = (int8_t)(*value ? 0 : draw_byte(false, b_kind));
                to[nr * kept] = (int8_t)at;
                *value = (int16_t)(*value + to[0]);
            }
    int32_t *start = items(nr, 4), *init = items(nr, 4), *wanted = items(mr * nr, 4), *got = items(mr * nr, 4);
    for (int j = 0; j < nr; j++) {
        start[j] = (int32_t)draw();
        init[j] = (int32_t)((uint32_t)start[j] + correction(kernel->form, is_unsigned, k, b + j * k));
    }
    const void *a_panel = pack(kernel, k, is_unsigned, a);
    s8_definition(kernel, k, a, b, start, wanted);
    fn(n_steps, a_panel, b_steps, init, got);
    same("c", I32, got, wanted, mr * nr);
    BENCH(s8_definition(kernel, k, a, b, start, wanted), fn(n_steps, a_panel, b_steps, init, got));
}

static void check_nm(const hc_kernel *kernel, hc_gemm_nm_s8_fn *fn) {
    FOR_EACH(int64_t, steps, 0, 1, 2, 3, 5, 17)
    for (int i = 0; i < 2 * N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
        nm_case(kernel, fn, *steps, i % 2, (integer_kind)(i / 2 / N_INTEGER_KINDS),
                (integer_kind)(i / 2 % N_INTEGER_KINDS));
    nm_case(kernel, fn, 65536 / kernel->kr, true, MOST, LEAST);
    usual();
    nm_case(kernel, fn, 1024 / kernel->kr, false, ANY, ANY);
}

void check_gemm_nm_s8_of8(const hc_kernel *kernel) { check_nm(kernel, kernel->fn.gemm_nm_s8_of8); }
void check_gemm_nm_s8_of16(const hc_kernel *kernel) { check_nm(kernel, kernel->fn.gemm_nm_s8_of16); }
void check_gemm_nm_s8_of32(const hc_kernel *kernel) { check_nm(kernel, kernel->fn.gemm_nm_s8_of32); }
void check_gemm_nm_s8_of64(const hc_kernel *kernel) { check_nm(kernel, kernel->fn.gemm_nm_s8_of64); }
