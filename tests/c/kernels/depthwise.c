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
                const float product = tap[t][i * step[t] + j] * panel[t * ld + j];
                sum = fmaf(scale[t * ld + j], product, sum);
            }
            wanted[i * ldc + j] = sum;
        }
    kernel->fn.depthwise_scaled_f32(taps, tap, step, panel, scale, ld, n, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise_scaled_f32_scalar(taps, tap, step, panel, scale, ld, n, count, wanted, ldc),
          kernel->fn.depthwise_scaled_f32(taps, tap, step, panel, scale, ld, n, count, got, ldc));
}

static void depthwise3_case(const hc_kernel *kernel, int stride, int down, int across, int64_t count, bool has_bias,
                            bool relu, float_kind kind) {
    const int rows = (down - 1) * stride + 3, columns = (across - 1) * stride + 3;
    const int64_t ld = count + 3, ldc = count + 5, c_row = across * ldc + 2;
    const int64_t answers = (down - 1) * c_row + (across - 1) * ldc + count;
    begin("stride %d, %d x %d answers of %" D ", bias %d, relu %d, %s", stride, down, across, count, has_bias, relu,
          float_kind_name(kind));
    const float *x[81], *bias = has_bias ? floats(count, kind) : NULL;
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
                if (bias || relu)
                    sum += bias ? bias[j] : -0.0f;
                wanted[i * c_row + q * ldc + j] = relu && sum <= 0 ? 0 : sum;
            }
    kernel->fn.depthwise3_f32(stride, down, across, x, panel, ld, count, got, c_row, ldc, bias, relu);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise3_f32_scalar(stride, down, across, x, panel, ld, count, wanted, c_row, ldc, bias, relu),
          kernel->fn.depthwise3_f32(stride, down, across, x, panel, ld, count, got, c_row, ldc, bias, relu));
}

void check_depthwise3_f32(const hc_kernel *kernel) {
    for (int stride = 1; stride <= 2; stride++)
        for (int down = 1; down <= kernel->mr; down *= 2)
            for (int across = 1; across <= kernel->nr; across *= 2) {
                FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
                depthwise3_case(kernel, stride, down, across, *count, *count & 1, *count & 8, PLAIN);
                for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                    depthwise3_case(kernel, stride, down, across, 19, kind & 1, true, (float_kind)kind);
            }
    usual();
    depthwise3_case(kernel, 1, kernel->mr, kernel->nr, 128, false, false, PLAIN);
}

static void depthwise_line_case(const hc_kernel *kernel, int side, int stride, int across, int64_t rows, int64_t count,
                                float_kind kind) {
    const int64_t pitch = (across - 1) * stride + side, ld = count + 3, ldc = count + 5, first = 2;
    const int64_t answers = (across - 1) * ldc + count;
    begin("%" D " rows of %d, stride %d, %d answers of %" D ", %s", rows, side, stride, across, count,
          float_kind_name(kind));
    const float *x[256];
    for (int64_t i = 0; i < rows * pitch; i++)
        x[i] = floats(first + count, kind);
    const float *panel = floats((rows * side - 1) * ld + count, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int q = 0; q < across; q++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < rows * side; t++)
                sum = fmaf(x[t / side * pitch + q * stride + t % side][first + j], panel[t * ld + j], sum);
            wanted[q * ldc + j] = sum;
        }
    kernel->fn.depthwise_line_f32(side, stride, across, rows, x, pitch, first, panel, ld, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise_line_f32_scalar(side, stride, across, rows, x, pitch, first, panel, ld, count, wanted, ldc),
          kernel->fn.depthwise_line_f32(side, stride, across, rows, x, pitch, first, panel, ld, count, got, ldc));
}

void check_depthwise_line_f32(const hc_kernel *kernel) {
    for (int side = 5; side <= 7; side += 2)
        for (int stride = 1; stride <= 2; stride++)
            FOR_EACH(int, across, 1, 2, 4, 7, 8) {
                FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
                depthwise_line_case(kernel, side, stride, *across, *count % 3 + 1, *count, PLAIN);
                for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                    depthwise_line_case(kernel, side, stride, *across, side, 19, (float_kind)kind);
            }
    usual();
    depthwise_line_case(kernel, 5, 1, 8, 5, 64, PLAIN);
}

static void depthwise_line_scaled_case(const hc_kernel *kernel, int side, int stride, int across, int64_t rows,
                                       int64_t count, float_kind kind) {
    const int64_t pitch = (across - 1) * stride + side, ld = count + 3, ldc = count + 5, first = 2;
    const int64_t answers = (across - 1) * ldc + count, taps = rows * side;
    begin("%" D " rows of %d with scales, stride %d, %d answers of %" D ", %s", rows, side, stride, across, count,
          float_kind_name(kind));
    const float *x[256];
    for (int64_t i = 0; i < rows * pitch; i++)
        x[i] = floats(first + count, kind);
    const float *panel = floats((taps - 1) * ld + count, kind), *scale = floats((taps - 1) * ld + count, kind);
    float *wanted = floats(answers, kind), *got = copy_of(wanted, answers, 4);
    for (int q = 0; q < across; q++)
        for (int64_t j = 0; j < count; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++) {
                const float value = x[t / side * pitch + q * stride + t % side][first + j];
                const float product = value * panel[t * ld + j];
                sum = fmaf(scale[t * ld + j], product, sum);
            }
            wanted[q * ldc + j] = sum;
        }
    hc_depthwise_line_scaled_f32_fn *run = kernel->fn.depthwise_line_scaled_f32;
    run(side, stride, across, rows, x, pitch, first, panel, scale, ld, count, got, ldc);
    same("c", F32, got, wanted, answers);
    BENCH(hc_depthwise_line_scaled_f32_scalar(side, stride, across, rows, x, pitch, first, panel, scale, ld, count,
                                              wanted, ldc),
          run(side, stride, across, rows, x, pitch, first, panel, scale, ld, count, got, ldc));
}

void check_depthwise_line_scaled_f32(const hc_kernel *kernel) {
    for (int side = 3; side <= 7; side += 2)
        for (int stride = 1; stride <= 2; stride++)
            FOR_EACH(int, across, 1, 2, 4, 7, 8) {
                FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
                depthwise_line_scaled_case(kernel, side, stride, *across, *count % 3 + 1, *count, PLAIN);
                for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                    depthwise_line_scaled_case(kernel, side, stride, *across, side, 19, (float_kind)kind);
            }
    usual();
    depthwise_line_scaled_case(kernel, 3, 1, 8, 3, 64, PLAIN);
    depthwise_line_scaled_case(kernel, 5, 1, 8, 5, 64, PLAIN);
}

static void gradient_case(const hc_kernel *kernel, bool one, int64_t taps, int64_t width, int64_t down, int64_t across,
                          int64_t n, int64_t step, float_kind kind) {
    begin("%s, %" D " taps of %" D ", %" D " x %" D " x %" D ", step %" D ", %s", one ? "one pixel" : "pixels in lanes",
          taps, width, down, across, n, step, float_kind_name(kind));
    const int64_t lanes = one ? 1 : width, column = (n * step + 1) * lanes, row = (across + 2) * column + 3;
    int64_t tap[64], last = 0;
    for (int64_t t = 0; t < taps; t++) {
        tap[t] = draw_below(50);
        last = tap[t] > last ? tap[t] : last;
    }
    const int64_t pixels = last + (down - 1) * row + (across - 1) * column + (n - 1) * step * lanes + lanes;
    const int64_t gap = step - 1, dy_step = width + gap, dy_column = n * dy_step + gap,
                  dy_row = across * dy_column + gap;
    hc_gradient g = {.x = floats(pixels, kind),
                     .dy = floats((down - 1) * dy_row + (across - 1) * dy_column + (n - 1) * dy_step + width, kind),
                     .tap = tap,
                     .taps = taps,
                     .width = width,
                     .down = down,
                     .across = across,
                     .n = n,
                     .x_row = row,
                     .x_column = column,
                     .x_step = step * lanes,
                     .dy_row = dy_row,
                     .dy_column = dy_column,
                     .dy_step = dy_step,
                     .one = one};
    float *wanted = floats(taps * width, kind), *got = copy_of(wanted, taps * width, 4);
    for (int64_t t = 0; t < taps; t++)
        for (int64_t j = 0; j < width; j++)
            for (int64_t i = 0; i < down * across * n; i++) {
                const int64_t p = i / n / across, q = i / n % across;
                const float *x = g.x + tap[t] + p * row + q * column + i % n * g.x_step;
                float *sum = wanted + t * width + j;
                *sum = fmaf(x[one ? 0 : j], g.dy[p * dy_row + q * dy_column + i % n * dy_step + j], *sum);
            }
    g.c = got;
    kernel->fn.gradient_f32(&g);
    same("c", F32, got, wanted, taps * width);
    hc_gradient defined = g;
    defined.c = wanted;
    BENCH(hc_gradient_f32_scalar(&defined), kernel->fn.gradient_f32(&g));
}

void check_gradient_f32(const hc_kernel *kernel) {
    enum { FEW = 16 };
    for (int one = 0; one <= 1; one++) {
        const int64_t width = one ? HC_GRADIENT_WIDE : FEW;
        for (int64_t taps = 1; taps <= 11; taps++)
            gradient_case(kernel, one, taps, width, 2, 3, taps % 4 + 1, taps % 3 + 1, PLAIN);
        gradient_case(kernel, one, 49, width, 1, 1, 1, 1, PLAIN);
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            gradient_case(kernel, one, 9, 2 * width, 2, 2, 3, 1, (float_kind)kind);
        for (int64_t taps = 1; taps <= 11 && one; taps++)
            gradient_case(kernel, one, taps, taps % 2 ? FEW : FEW + width, 2, 3, taps % 4 + 1, 1, PLAIN);
    }
    usual();
    gradient_case(kernel, true, 9, HC_GRADIENT_WIDE, 1, 1, 256, 1, PLAIN);
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

static void depthwise_wide_case(const hc_kernel *kernel, int side, int stride, int down, int64_t across, int64_t count,
                                integer_kind x_kind, integer_kind w_kind) {
    const int64_t pixel = count + 1, row = ((across - 1) * stride + side) * pixel + 5, padded = (count + 15) / 16 * 16;
    const int64_t ldc = count + 5, c_row = across * ldc + 2, answers = (down - 1) * c_row + (across - 1) * ldc + count;
    begin("%d x %d, stride %d, %d x %" D " answers of %" D ", x %s, w %s", side, side, stride, down, across, count,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    const int64_t bytes = ((down - 1) * stride + side - 1) * row + ((across - 1) * stride + side - 1) * pixel + count;
    const int outputs = HC_WIDE_OUTPUTS(stride), words = HC_WIDE_WORDS(side, stride);
    uint8_t *x = items(bytes, 1);
    for (int64_t i = 0; i < bytes; i++)
        x[i] = (uint8_t)draw_integer(0, 255, x_kind);
    int8_t *w = items(padded * side * side, 1), *panel = items(padded * side * outputs * words * 4, 1);
    for (int64_t i = 0; i < padded * side * side; i++)
        w[i] = i / (side * side) >= count ? 0 : (int8_t)draw_integer(-128, 127, w_kind);
    for (int64_t j = 0; j < padded; j++)
        for (int r = 0; r < side; r++)
            for (int a = 0; a < outputs; a++)
                for (int p = 0; p < 4 * words; p++) {
                    const int s = p - a * stride;
                    panel[(((j / 16 * side + r) * outputs + a) * words + p / 4) * 64 + j % 16 * 4 + p % 4] =
                        s >= 0 && s < side ? w[(j * side + r) * side + s] : 0;
                }
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
                for (int r = 0; r < side; r++)
                    for (int s = 0; s < side; s++)
                        sum += (uint32_t)(x[(i * stride + r) * row + (q * stride + s) * pixel + j] *
                                          w[(j * side + r) * side + s]);
                wanted[i * c_row + q * ldc + j] = (int32_t)sum;
            }
    kernel->fn.depthwise_wide_s8(side, stride, down, across, x, row, pixel, panel, init, count, got, c_row, ldc);
    same("c", I32, got, wanted, answers);
    BENCH((void)0,
          kernel->fn.depthwise_wide_s8(side, stride, down, across, x, row, pixel, panel, init, count, got, c_row, ldc));
}

void check_depthwise_wide_s8(const hc_kernel *kernel) {
    for (int side = 5; side <= 7; side += 2)
        for (int stride = 1; stride <= 2; stride++)
            for (int down = 1; down <= kernel->mr; down++) {
                FOR_EACH(int64_t, across, 1, 2, 3, 4, 5, 8)
                FOR_EACH(int64_t, count, 1, 7, 15, 16, 17, 33)
                depthwise_wide_case(kernel, side, stride, down, *across, *count, ANY, ANY);
                for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
                    depthwise_wide_case(kernel, side, stride, down, 3, 19, (integer_kind)(i / N_INTEGER_KINDS),
                                        (integer_kind)(i % N_INTEGER_KINDS));
            }
    usual();
    depthwise_wide_case(kernel, 5, 1, kernel->mr, 8, 64, ANY, ANY);
}

static void plane_gradient_case(const hc_kernel *kernel, int64_t planes, int64_t rows, int64_t columns, int64_t height,
                                int64_t width, int64_t top, int64_t left, int down, int across, float_kind kind) {
    begin("%" D " of %" D " x %" D " to %" D " x %" D ", %d x %d taps, from %" D " %" D ", %s", planes, rows, columns,
          height, width, down, across, top, left, float_kind_name(kind));
    const int64_t values = planes * height * width;
    hc_plane_gradient p = {.dy = floats(planes * rows * columns, kind),
                           .w = floats(planes * down * across, kind),
                           .planes = planes,
                           .rows = rows,
                           .columns = columns,
                           .height = height,
                           .width = width,
                           .top = top,
                           .left = left,
                           .side = {down, across}};
    p.work = floats(hc_plane_gradient_work(&p), kind);
    float *wanted = floats(values + 1, kind), *got = copy_of(wanted, values + 1, 4);
    for (int64_t at = 0; at < values; at++) {
        const int64_t number = at / width / height, i = at / width % height;
        const float *dy = p.dy + number * rows * columns, *w = p.w + number * down * across;
        float sum = 0;
        for (int tap = down * across - 1; tap >= 0; tap--) {
            const int64_t u = i + top - tap / across, v = at % width + left - tap % across;
            if (u % 2 == 0 && v % 2 == 0)
                sum = fmaf(u >= 0 && u / 2 < rows && v >= 0 && v / 2 < columns ? dy[u / 2 * columns + v / 2] : 0.0f,
                           w[tap], sum);
        }
        wanted[at] = sum;
    }
    p.c = got;
    kernel->fn.plane_gradient_f32(&p);
    same("c", F32, got, wanted, values + 1);
    BENCH(hc_plane_gradient_f32_scalar(&p), kernel->fn.plane_gradient_f32(&p));
}

void check_plane_gradient_f32(const hc_kernel *kernel) {
    for (int64_t width = 1; width < 40; width++)
        for (int side = 1; side <= HC_GRADIENT_SIDE; side++) {
            const int other = side == 3 || side == 5 ? side : 1 + (int)draw_below(HC_GRADIENT_SIDE);
            const int64_t height = 1 + draw_below(7), top = draw_below(9), left = draw_below(9);
            plane_gradient_case(kernel, 1 + draw_below(3), 1 + draw_below(5), 1 + draw_below(24), height, width, top,
                                left, side, other, (float_kind)draw_below(N_FLOAT_KINDS));
        }
    for (int side = 3; side <= 5; side += 2)
        for (int odd = 0; odd < 4; odd++)
            FOR_EACH(int64_t, width, 7, 14, 31, 32, 34, 66, 67)
    plane_gradient_case(kernel, 2, 9, *width / 2 + 1, 17, *width, odd / 2, odd % 2 + side / 2, side, side, PLAIN);
    usual();
    plane_gradient_case(kernel, 8, 28, 28, 56, 56, 1, 1, 3, 3, PLAIN);
}
