/* The largest magnitude and the 8-bit codes of the values of an image, against their equations. */
#include "kernels.h"

#include "base/convert.h"

#include <inttypes.h>
#include <math.h>

#define D PRId64

static void largest_case(const hc_kernel *kernel, int64_t n, uint32_t so_far, float_kind kind) {
    begin("n %" D ", %08" PRIx32 " so far, %s", n, so_far, float_kind_name(kind));
    const float *x = floats(n, kind);
    uint32_t wanted = so_far;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(x[i]) & 0x7fffffff;
        wanted = bits > wanted ? bits : wanted;
    }
    const uint32_t got = kernel->fn.largest_f32(x, n, so_far);
    same("the largest", I32, &got, &wanted, 1);
    BENCH(hc_largest_f32_scalar(x, n, so_far), kernel->fn.largest_f32(x, n, so_far));
}

void check_largest_f32(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int some = 0; some < 2; some++)
            largest_case(kernel, *n, some ? 0x3f800000 : 0, (float_kind)kind);
    usual();
    largest_case(kernel, 3584, 0, PLAIN);
}

/* Quotients: anywhere; at or next to the midpoint of two codes; beyond the last code. */
typedef enum { ANYWHERE, HALFWAY, BEYOND, N_QUOTIENTS } quotient_kind;

static float draw_value(float scale, quotient_kind kind) {
    const double code = (double)draw_below(255) - 127;
    const float value = (float)((code + 0.5) * (double)scale);
    if (kind == BEYOND)
        return (draw() & 1 ? 1.0f : -1.0f) * (float)(127.0 + (double)draw_below(1001) / 1000) * scale;
    if (kind == ANYWHERE)
        return (float)(code + (double)draw_below(1000) / 1000) * scale;
    const int beside = (int)draw_below(3);
    return beside ? nextafterf(value, beside == 1 ? INFINITY : -INFINITY) : value;
}

static void codes_case(const hc_kernel *kernel, int64_t n, float scale, int form, quotient_kind kind) {
    const char *const name = form == HC_PANEL_S16 ? "int16" : form == HC_PANEL_F32 ? "float" : "uint8";
    begin("n %" D ", scale %a, %s, quotients %d", n, (double)scale, name, kind);
    const int size = form == HC_PANEL_S16 ? 2 : form == HC_PANEL_F32 ? 4 : 1;
    const item_type type = form == HC_PANEL_S16 ? U16 : form == HC_PANEL_F32 ? F32 : U8;
    float *x = items(n, 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_value(scale, kind);
    uint8_t *wanted = items(n, size), *got = copy_of(wanted, n, size);
    int16_t *words = (int16_t *)(void *)wanted;
    float *single = (float *)(void *)wanted;
    for (int64_t i = 0; i < n; i++) {
        const double quotient = scale > 0 ? fmin(fmax((double)x[i] / (double)scale, -127), 127) : 0;
        const int code = (int)nearbyint(quotient);
        if (form == HC_PANEL_S16)
            words[i] = (int16_t)code;
        else if (form == HC_PANEL_F32)
            single[i] = (float)code;
        else
            wanted[i] = (uint8_t)(code + 128);
    }
    kernel->fn.codes_s8(x, n, scale, form, got);
    same("codes", type, got, wanted, n);
    BENCH(hc_codes_s8_scalar(x, n, scale, form, wanted), kernel->fn.codes_s8(x, n, scale, form, got));
}

void check_codes_s8(const hc_kernel *kernel) {
    FOR_EACH(int, form, HC_PANEL_U8, HC_PANEL_S16, HC_PANEL_F32)
    for (int kind = 0; kind < N_QUOTIENTS; kind++) {
        FOR_EACH(int64_t, n, 0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200)
        FOR_EACH(float, scale, 0.0f, 1.0f, 0.0123f, 0x1p-126f, 0x1.fffffep-127f, 0x1p-149f, 0x1.02p-140f, 0x1p120f)
        codes_case(kernel, *n, *scale, *form, (quotient_kind)kind);
        for (int i = 0; i < 40; i++) /* with all fraction bits in use */
            codes_case(kernel, 500, fabsf(draw_float(PLAIN)), *form, (quotient_kind)kind);
    }
    usual();
    codes_case(kernel, 3584, 0.0123f, HC_PANEL_U8, ANYWHERE);
}

/* b is not there, or its quotients are of another kind. */
static void pairs_case(const hc_kernel *kernel, int64_t n, float scale, bool both, quotient_kind kind) {
    begin("n %" D ", scale %a, both %d, quotients %d", n, (double)scale, both, kind);
    float *row[2] = {items(n, 4), both ? items(n, 4) : NULL};
    int32_t *wanted = items(n, 4), *got = copy_of(wanted, n, 4);
    for (int64_t i = 0; i < n; i++) {
        int code[2] = {0};
        for (int r = 0; r < 1 + both; r++) {
            row[r][i] = draw_value(scale, r ? (quotient_kind)((kind + 1) % N_QUOTIENTS) : kind);
            code[r] = scale > 0 ? (int)nearbyint(fmin(fmax((double)row[r][i] / (double)scale, -127), 127)) : 0;
        }
        wanted[i] = (int32_t)((uint32_t)(uint16_t)code[0] | (uint32_t)(uint16_t)code[1] << 16);
    }
    kernel->fn.code_pairs_s8(row[0], row[1], n, scale, got);
    same("pairs", I32, got, wanted, n);
    BENCH(hc_code_pairs_s8_scalar(row[0], row[1], n, scale, wanted),
          kernel->fn.code_pairs_s8(row[0], row[1], n, scale, got));
}

void check_code_pairs_s8(const hc_kernel *kernel) {
    for (int kind = 0; kind < N_QUOTIENTS; kind++)
        for (int both = 0; both < 2; both++) {
            FOR_EACH(int64_t, n, 0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200)
            FOR_EACH(float, scale, 0.0f, 1.0f, 0.0123f, 0x1p-126f, 0x1.fffffep-127f, 0x1p-149f, 0x1p120f)
            pairs_case(kernel, *n, *scale, both, (quotient_kind)kind);
        }
    usual();
    pairs_case(kernel, 3584, 0.0123f, true, ANYWHERE);
}

static void link_case(const hc_kernel *kernel, int64_t rows, int64_t columns, bool has_bias, bool adds, bool clamps,
                      float_kind kind) {
    begin("%" D " x %" D ", bias %d, plus %d, clamps %d, floats %d", rows, columns, has_bias, adds, clamps, kind);
    const int64_t ld = columns + 3, n = rows * ld;
    const hc_link_steps steps = {clamps, -0.5f, 6.0f};
    float *got = items(n, 4), *bias = has_bias ? items(columns, 4) : NULL, *plus = adds ? items(n, 4) : NULL;
    for (int64_t i = 0; i < n; i++) {
        got[i] = draw_float(kind);
        if (plus)
            plus[i] = draw_float(PLAIN);
    }
    for (int64_t j = 0; bias && j < columns; j++)
        bias[j] = draw_float(PLAIN);
    float *wanted = copy_of(got, n, 4);
    uint32_t largest = 0x3f800000;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float y = wanted[i * ld + j];
            y = bias ? y + bias[j] : y;
            y = plus ? y + plus[i * ld + j] : y;
            y = clamps && y > steps.high ? steps.high : clamps && y < steps.low ? steps.low : y;
            wanted[i * ld + j] = y;
            const uint32_t bits = isfinite(y) ? hc_f32_bits(fabsf(y)) : HC_LINK_NOT_FINITE;
            largest = bits > largest ? bits : largest;
        }
    const uint32_t found = kernel->fn.link_f32(rows, columns, got, ld, &steps, bias, plus, ld, 0x3f800000);
    same("the largest", I32, &found, &largest, 1);
    same("results", F32, got, wanted, n);
    BENCH(hc_link_f32_scalar(rows, columns, got, ld, &steps, bias, plus, ld, 0),
          kernel->fn.link_f32(rows, columns, got, ld, &steps, bias, plus, ld, 0));
}

static void link_tile_case(const hc_kernel *kernel, int64_t rows, int64_t columns, int which, float code_scale) {
    begin("%" D " x %" D ", parts %d, scale %a", rows, columns, which, (double)code_scale);
    const bool rounds = which & 8;
    const int64_t ld = columns + 5, step = columns + 3;
    int32_t *sums = items(rows * ld, 4);
    float *scales = items(columns, 4), *bias = items(columns, 4), *plus = items(rows * step, 4);
    float *got = items(rows * step, 4), *wanted = copy_of(got, rows * step, 4);
    uint8_t *codes = items(rows * step, 1), *wanted_codes = copy_of(codes, rows * step, 1);
    uint8_t *to[HC_LINK_ROWS], *wanted_to[HC_LINK_ROWS];
    for (int64_t i = 0; i < rows * ld; i++)
        sums[i] = (int32_t)draw_below(1 << 20) - (1 << 19);
    for (int64_t j = 0; j < columns; j++) {
        scales[j] = fabsf(draw_float(PLAIN)) * 0x1p-10f;
        bias[j] = draw_float(PLAIN);
    }
    for (int64_t i = 0; i < rows * step; i++)
        plus[i] = draw_float(PLAIN);
    for (int64_t i = 0; i < rows; i++) {
        to[i] = codes + (rows - 1 - i) * step;
        wanted_to[i] = wanted_codes + (rows - 1 - i) * step;
    }
    hc_link_tile tile = {.steps = {(which & 4) || rounds, 0, 127 * code_scale},
                         .sums = sums,
                         .ld = ld,
                         .scale = code_scale * 0x1p-6f,
                         .code_scale = code_scale,
                         .scales = scales,
                         .bias = which & 1 ? bias : NULL,
                         .plus = which & 2 ? plus : NULL,
                         .to = rounds && which & 16 ? NULL : got,
                         .step = step,
                         .codes = rounds ? to : NULL,
                         .at = 2};
    hc_link_tile same_tile = tile;
    same_tile.to = tile.to ? wanted : NULL;
    same_tile.codes = rounds ? wanted_to : NULL;
    tile.at = same_tile.at = 1;
    const uint32_t so_far = draw_below(2) ? 0 : hc_f32_bits(tile.steps.high);
    const uint32_t found = kernel->fn.link_s32(rows, columns, &tile, so_far);
    const uint32_t largest = hc_link_s32_scalar(rows, columns, &same_tile, so_far);
    same("the largest", I32, &found, &largest, 1);
    same("results", F32, got, wanted, rows * step);
    same("codes", U8, codes, wanted_codes, rows * step);
    BENCH(hc_link_s32_scalar(rows, columns, &same_tile, 0), kernel->fn.link_s32(rows, columns, &tile, 0));
}

void check_link_s32(const hc_kernel *kernel) {
    for (int which = 0; which < 32; which++) {
        FOR_EACH(int64_t, columns, 1, 7, 8, 15, 16, 17, 32, 33, 64)
        FOR_EACH(float, scale, 1.0f, 0.0472440943f, 0.0123f, 0x1p-120f, 0x1.fffffep-127f)
        link_tile_case(kernel, 3, *columns, which, *scale);
    }
    usual();
    link_tile_case(kernel, 16, 64, 1 + 4 + 8 + 16, 0.0472440943f);
}

static void pool_case(const hc_kernel *kernel, int64_t rows, int64_t columns, int64_t depth) {
    begin("%" D " x %" D ", %" D " channels", rows, columns, depth);
    const int64_t step = columns * depth + 3;
    float *x = items(rows * step, 4), *got = items(depth, 4), *wanted = items(depth, 4);
    for (int64_t i = 0; i < rows * step; i++)
        x[i] = (float)((int)draw_below(5) - 2) * (draw_below(2) ? 1.0f : -1.0f); /* often equal, zeros of both signs */
    for (int64_t c = 0; c < depth; c++) {
        wanted[c] = x[c];
        for (int64_t i = 0; i < rows * columns; i++) {
            const float value = x[i / columns * step + i % columns * depth + c];
            wanted[c] = value > wanted[c] ? value : wanted[c];
        }
    }
    kernel->fn.pool_f32(rows, columns, x, step, depth, got);
    same("the largest", F32, got, wanted, depth);
    BENCH(hc_pool_f32_scalar(rows, columns, x, step, depth, got),
          kernel->fn.pool_f32(rows, columns, x, step, depth, got));
}

void check_pool_f32(const hc_kernel *kernel) {
    FOR_EACH(int64_t, side, 1, 2, 3, 7)
    FOR_EACH(int64_t, depth, 1, 3, 4, 8, 15, 16, 17, 31, 63, 64, 65, 160)
    pool_case(kernel, *side, 1 + *depth % 4, *depth);
    usual();
    pool_case(kernel, 3, 3, 64);
}

void check_link_f32(const hc_kernel *kernel) {
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int which = 0; which < 8; which++) {
            FOR_EACH(int64_t, columns, 1, 7, 8, 15, 16, 17, 32, 33, 64)
            link_case(kernel, 3, *columns, which & 1, which & 2, which & 4, (float_kind)kind);
        }
    usual();
    link_case(kernel, 16, 64, true, false, true, PLAIN);
}
