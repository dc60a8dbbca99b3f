/* Convolutions of groups of few channels, with the filters of all groups in lanes, against their equations. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>

#define D PRId64

/* If there are several taps, the last one is a run of zeros that all outputs share. */
static void depthwise_case(const hc_kernel *kernel, int64_t taps, int64_t n, int64_t count, float_kind kind) {
    const int64_t ld = count + 3, ldc = count + 5, answers = (n - 1) * ldc + count;
    begin("%" D " taps, %" D " answers of %" D ", %s", taps, n, count, float_kind_name(kind));
    const float *tap[64];
    int64_t step[64];
    for (int64_t t = 0; t < taps; t++) {
        step[t] = t > 0 && t == taps - 1 ? 0 : count + t;
        tap[t] = floats((n - 1) * step[t] + count, kind);
    }
    const float *panel = floats((taps - 1) * ld + count, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                sum = fmaf(tap[t][i * step[t] + j], panel[t * ld + j], sum);
            wanted[i * ldc + j] = sum;
        }
    kernel->fn.depthwise_f32(taps, tap, step, panel, ld, n, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise_f32_scalar(taps, tap, step, panel, ld, n, count, wanted, ldc),
          kernel->fn.depthwise_f32(taps, tap, step, panel, ld, n, count, got, ldc));
}

static void depthwise_scaled_case(const hc_kernel *kernel, int64_t taps, int64_t n, int64_t count, float_kind kind) {
    const int64_t ld = count + 3, ldc = count + 5, answers = (n - 1) * ldc + count;
    begin("%" D " taps with scales, %" D " answers of %" D ", %s", taps, n, count, float_kind_name(kind));
    const float *tap[64];
    int64_t step[64];
    for (int64_t t = 0; t < taps; t++) {
        step[t] = t > 0 && t == taps - 1 ? 0 : count + t;
        tap[t] = floats((n - 1) * step[t] + count, kind);
    }
    const float *panel = floats((taps - 1) * ld + count, kind), *scale = floats((taps - 1) * ld + count, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++) {
                const float product = fmaf(tap[t][i * step[t] + j], panel[t * ld + j], 0.0f);
                sum = fmaf(scale[t * ld + j], product, sum);
            }
            wanted[i * ldc + j] = sum;
        }
    kernel->fn.depthwise_scaled_f32(taps, tap, step, panel, scale, ld, n, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise_scaled_f32_scalar(taps, tap, step, panel, scale, ld, n, count, wanted, ldc),
          kernel->fn.depthwise_scaled_f32(taps, tap, step, panel, scale, ld, n, count, got, ldc));
}

static void depthwise3_case(const hc_kernel *kernel, int stride, int down, int across, int64_t count, float_kind kind) {
    const int rows = (down - 1) * stride + 3, columns = (across - 1) * stride + 3;
    const int64_t ld = count + 3, ldc = count + 5, c_row = across * ldc + 2;
    const int64_t answers = (down - 1) * c_row + (across - 1) * ldc + count;
    begin("stride %d, %d x %d answers of %" D ", %s", stride, down, across, count, float_kind_name(kind));
    const float *x[81];
    for (int i = 0; i < rows * columns; i++)
        x[i] = floats(count, kind);
    const float *panel = floats(8 * ld + count, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int i = 0; i < down; i++)
        for (int q = 0; q < across; q++)
            for (int64_t j = 0; j < count; j++) {
                float sum = 0.0f;
                for (int r = 0; r < 3; r++)
                    for (int s = 0; s < 3; s++)
                        sum = fmaf(x[(i * stride + r) * columns + q * stride + s][j], panel[(3 * r + s) * ld + j], sum);
                wanted[i * c_row + q * ldc + j] = sum;
            }
    kernel->fn.depthwise3_f32(stride, down, across, x, panel, ld, count, got, c_row, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise3_f32_scalar(stride, down, across, x, panel, ld, count, wanted, c_row, ldc),
          kernel->fn.depthwise3_f32(stride, down, across, x, panel, ld, count, got, c_row, ldc));
}

void check_depthwise3_f32(const hc_kernel *kernel) {
    for (int stride = 1; stride <= 2; stride++)
        for (int down = 1; down <= kernel->mr; down *= 2)
            for (int across = 1; across <= kernel->nr; across *= 2) {
                FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
                depthwise3_case(kernel, stride, down, across, *count, PLAIN);
                for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                    depthwise3_case(kernel, stride, down, across, 19, (float_kind)kind);
            }
    usual();
    depthwise3_case(kernel, 1, kernel->mr, kernel->nr, 128, PLAIN);
}

void check_depthwise_f32(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 3, 4, 7, 8, 13)
    FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        depthwise_case(kernel, 1, *n, *count, (float_kind)kind);
        depthwise_case(kernel, 9, *n, *count, (float_kind)kind);
    }
    usual();
    depthwise_case(kernel, 9, 16, 64, PLAIN);
}

void check_depthwise_scaled_f32(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 3, 4, 7, 8, 13)
    FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        depthwise_scaled_case(kernel, 1, *n, *count, (float_kind)kind);
        depthwise_scaled_case(kernel, 9, *n, *count, (float_kind)kind);
    }
    usual();
    depthwise_scaled_case(kernel, 9, 16, 64, PLAIN);
}

static void grouped_case(const hc_kernel *kernel, int run, int64_t taps, int64_t n, int64_t groups, float_kind kind) {
    const int64_t count = groups * run, ldc = count + 5, answers = (n - 1) * ldc + count;
    begin("groups of %d, %" D " taps, %" D " answers of %" D ", %s", run, taps, n, count, float_kind_name(kind));
    const float *tap[64];
    int64_t step[64];
    for (int64_t t = 0; t < taps; t++) {
        step[t] = t > 0 && t == taps - 1 ? 0 : count + t;
        tap[t] = floats((n - 1) * step[t] + count, kind);
    }
    const float *panel = floats(((count - 1) / 8 * taps * run + taps * run - 1) * 8 + (count - 1) % 8 + 1, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                for (int64_t v = 0; v < run; v++)
                    sum = fmaf(tap[t][i * step[t] + j / run * run + v],
                               panel[((j / 8 * taps + t) * run + v) * 8 + j % 8], sum);
            wanted[i * ldc + j] = sum;
        }
    kernel->fn.grouped_f32(run, taps, tap, step, panel, n, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_grouped_f32_scalar(run, taps, tap, step, panel, n, count, wanted, ldc),
          kernel->fn.grouped_f32(run, taps, tap, step, panel, n, count, got, ldc));
}

void check_grouped_f32(const hc_kernel *kernel) {
    FOR_EACH(int, run, 2, 4, 8)
    FOR_EACH(int64_t, n, 1, 3, 4, 7, 8, 13)
    FOR_EACH(int64_t, groups, 1, 3, 4, 11, 17)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        grouped_case(kernel, *run, 1, *n, *groups, (float_kind)kind);
        grouped_case(kernel, *run, 9, *n, *groups, (float_kind)kind);
    }
    usual();
    FOR_EACH(int, run, 2, 4, 8)
    grouped_case(kernel, *run, 9, 16, 128 / *run, PLAIN);
}

static void depthwise3_integers_case(const hc_kernel *kernel, int stride, int down, int64_t across, int64_t count,
                                     integer_kind x_kind, integer_kind w_kind) {
    const int64_t pixel = count + 1, row = ((across - 1) * stride + 3) * pixel + 5, padded = (count + 15) / 16 * 16;
    const int64_t ldc = count + 5, c_row = across * ldc + 2, answers = (down - 1) * c_row + (across - 1) * ldc + count;
    begin("stride %d, %d x %" D " answers of %" D ", x %s, w %s", stride, down, across, count,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    const int64_t bytes = ((down - 1) * stride + 2) * row + ((across - 1) * stride + 2) * pixel + count;
    uint8_t *x = items(bytes, 1);
    for (int64_t i = 0; i < bytes; i++)
        x[i] = (uint8_t)draw_integer(0, 255, x_kind);
    int8_t *panel = items(padded * 12, 1);
    for (int64_t i = 0; i < padded * 12; i++)
        panel[i] = i % 4 == 3 || i / 192 * 16 + i / 4 % 16 >= count ? 0 : (int8_t)draw_integer(-128, 127, w_kind);
    int32_t *init = items(padded, 4), *wanted = items(answers, 4);
    for (int64_t j = 0; j < padded; j++)
        init[j] = (int32_t)draw();
    for (int64_t i = 0; i < answers; i++)
        wanted[i] = (int32_t)draw();
    int32_t *got = copy_of(wanted, answers, 4);
    for (int i = 0; i < down; i++)
        for (int64_t q = 0; q < across; q++)
            for (int64_t j = 0; j < count; j++) {
                uint32_t sum = (uint32_t)init[j];
                for (int r = 0; r < 3; r++)
                    for (int s = 0; s < 3; s++)
                        sum += (uint32_t)(x[(i * stride + r) * row + (q * stride + s) * pixel + j] *
                                          panel[((j / 16 * 3 + r) * 16 + j % 16) * 4 + s]);
                wanted[i * c_row + q * ldc + j] = (int32_t)sum;
            }
    kernel->fn.depthwise3_s8(stride, down, across, x, row, pixel, panel, init, count, got, c_row, ldc);
    same("c", I32, got, wanted, answers);
    BENCH((void)0, kernel->fn.depthwise3_s8(stride, down, across, x, row, pixel, panel, init, count, got, c_row, ldc));
}

void check_depthwise3_s8(const hc_kernel *kernel) {
    for (int stride = 1; stride <= 2; stride++)
        for (int down = 1; down <= kernel->mr; down++) {
            FOR_EACH(int64_t, across, 1, 2, 3, 8)
            FOR_EACH(int64_t, count, 1, 7, 15, 16, 17, 33)
            depthwise3_integers_case(kernel, stride, down, *across, *count, ANY, ANY);
            for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
                depthwise3_integers_case(kernel, stride, down, 3, 19, (integer_kind)(i / N_INTEGER_KINDS),
                                         (integer_kind)(i % N_INTEGER_KINDS));
        }
    usual();
    depthwise3_integers_case(kernel, 1, kernel->mr, 8, 64, ANY, ANY);
}
