/* Convolutions of images whose planes lie one after the other, against their equation. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>

#define D PRId64

/* Each block of pixels has its own memory. If `some`, that of the last one ends with its pixels. */
static void planes_case(const hc_kernel *kernel, int64_t taps, int64_t channels, int64_t filters, int blocks, int64_t n,
                        bool some, bool by_channel, bool finishes, float_kind kind) {
    enum { MOST = 32 };
    const int64_t lanes = kernel->mr, plane = taps + lanes + 3, ldc = blocks * lanes + 5;
    begin("%" D " taps of %" D " channels, %" D " filters, %d blocks, the last of %" D ", some %d, finishes %d, %s",
          taps, channels, filters, blocks, n, some, finishes, float_kind_name(kind));
    int64_t tap[64];
    for (int64_t t = 0; t < taps; t++)
        tap[t] = taps - 1 - t;
    const int64_t step[3] = {taps * channels + 1, by_channel ? 1 : channels, by_channel ? taps : 1};
    const float *w = floats(filters * step[0], kind), *bias = finishes ? floats(filters, kind) : NULL;
    const int64_t values = (filters - 1) * ldc + blocks * lanes;
    float *wanted = floats(values, kind), *got = copy_of(wanted, values, 4);
    hc_plane_block block[MOST];
    for (int b = 0; b < blocks; b++) {
        const bool ends = b == blocks - 1;
        const int64_t read = ends && some ? n : lanes;
        block[b] = (hc_plane_block){.x = floats((channels - 1) * plane + taps - 1 + read, kind),
                                    .c = got + b * lanes,
                                    .n = ends         ? n
                                         : b % 3 == 2 ? 1
                                                      : lanes};
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < block[b].n; i++) {
                float sum = 0.0f;
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t v = 0; v < channels; v++)
                        sum = fmaf(block[b].x[tap[t] + v * plane + i], w[f * step[0] + t * step[1] + v * step[2]], sum);
                if (finishes)
                    sum += bias[f];
                wanted[f * ldc + b * lanes + i] = finishes && sum <= 0 ? 0.0f : sum;
            }
    }
    const bool far = filters % 2;
    kernel->fn.planes_f32(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, far, bias, finishes);
    same("c", F32, got, wanted, values);
    BENCH(hc_planes_f32_scalar(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, far, bias,
                               finishes),
          kernel->fn.planes_f32(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, far, bias,
                                finishes));
}

void check_planes_f32(const hc_kernel *kernel) {
    for (int blocks = 1; blocks <= 9; blocks++)
        FOR_EACH(int64_t, filters, 1, 2, 3, 5, 7, 12, 13, 25)
    planes_case(kernel, 3, 5, *filters, blocks, 1 + (blocks + *filters) % kernel->mr, blocks % 2, *filters % 2,
                *filters % 3 == 0, PLAIN);
    for (int64_t n = 1; n <= kernel->mr; n++)
        for (int some = 0; some < 2; some++)
            planes_case(kernel, 2, 3, 4, 3, n, some, true, true, PLAIN);
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        FOR_EACH(int64_t, taps, 1, 9)
    FOR_EACH(int64_t, channels, 1, 2, 17)
    planes_case(kernel, *taps, *channels, 7, 4, kernel->mr, false, *taps == 9, kind % 2, (float_kind)kind);
    usual();
    planes_case(kernel, 1, 256, 64, 24, kernel->mr, false, false, false, PLAIN);
    planes_case(kernel, 25, 1, 1, 24, kernel->mr, false, true, false, PLAIN);
}

/* Words of two codes, of which the second may be 0. Each block of pixels has its own memory. */
static void codes_case(const hc_kernel *kernel, int64_t taps, int64_t pairs, int64_t filters, int blocks, int64_t n,
                       bool finishes, int most) {
    enum { MOST = 32 };
    const int64_t lanes = kernel->mr, nr = kernel->nr, plane = taps + lanes + 3, ldc = blocks * lanes + 5;
    begin("%" D " taps of %" D " pairs, %" D " filters, %d blocks, the last of %" D ", finishes %d, codes to %d", taps,
          pairs, filters, blocks, n, finishes, most);
    int64_t tap[64];
    for (int64_t t = 0; t < taps; t++)
        tap[t] = taps - 1 - t;
    const int64_t panels = (filters + nr - 1) / nr, size = panels * taps * pairs * nr;
    int16_t *panel = items(size, 4);
    for (int64_t i = 0; i < 2 * size; i++)
        panel[i] = (int16_t)((int)draw_below(2 * (uint32_t)most) - most);
    double *scale = items(filters, 8);
    for (int64_t f = 0; f < filters; f++)
        scale[f] = (double)fabsf(draw_float(PLAIN)) * (double)fabsf(draw_float(PLAIN));
    const float *bias = finishes ? floats(filters, PLAIN) : NULL;
    const int64_t values = (filters - 1) * ldc + blocks * lanes;
    float *wanted = floats(values, PLAIN), *got = copy_of(wanted, values, 4);
    hc_code_block block[MOST];
    for (int b = 0; b < blocks; b++) {
        const int64_t read = (pairs - 1) * plane + taps - 1 + lanes;
        int16_t *x = items(read, 4);
        for (int64_t i = 0; i < 2 * read; i++)
            x[i] = (int16_t)((int)draw_below(255) - 127);
        block[b] = (hc_code_block){.x = (const int32_t *)(const void *)x,
                                   .c = got + b * lanes,
                                   .n = b == blocks - 1 ? n
                                        : b % 3 == 2    ? 1
                                                        : lanes};
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < block[b].n; i++) {
                int64_t sum = 0;
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t v = 0; v < pairs; v++)
                        for (int u = 0; u < 2; u++)
                            sum += x[2 * (tap[t] + v * plane + i) + u] *
                                   panel[2 * ((f / nr * taps * pairs + t * pairs + v) * nr + f % nr) + u];
                float answer = (float)(scale[f] * (double)sum);
                if (finishes)
                    answer += bias[f];
                wanted[f * ldc + b * lanes + i] = finishes && answer <= 0 ? 0.0f : answer;
            }
    }
    const int32_t *words = (const int32_t *)(const void *)panel;
    kernel->fn.planes_s16(taps, tap, pairs, plane, words, filters, block, blocks, ldc, scale, bias, finishes);
    same("c", F32, got, wanted, values);
    BENCH((void)0,
          kernel->fn.planes_s16(taps, tap, pairs, plane, words, filters, block, blocks, ldc, scale, bias, finishes));
}

void check_planes_s16(const hc_kernel *kernel) {
    for (int blocks = 1; blocks <= 9; blocks++)
        FOR_EACH(int64_t, filters, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25)
    codes_case(kernel, 3, 5, *filters, blocks, 1 + (blocks + *filters) % kernel->mr, *filters % 3 == 0, 128);
    for (int64_t n = 1; n <= kernel->mr; n++)
        codes_case(kernel, 2, 3, 4, 3, n, true, 128);
    FOR_EACH(int64_t, taps, 1, 9, 49)
    FOR_EACH(int64_t, pairs, 1, 2, 17, 400)
    codes_case(kernel, *taps, *pairs, 7, 4, kernel->mr, *taps == 9, 128);
    usual();
    codes_case(kernel, 1, 128, 64, 24, kernel->mr, false, 128);
    codes_case(kernel, 15, 1, 1, 24, kernel->mr, false, 128);
}

/* The last plane ends with its pixels. Rows of outputs follow one another, or have a gap between them. */
static void plane_case(const hc_kernel *kernel, int side, int stride, int64_t rows, int64_t columns, int64_t top,
                       int64_t left, int64_t down, int64_t across, int64_t planes, int64_t gap, bool with_bias,
                       bool relu, float_kind kind, int scaled) {
    begin("side %d, stride %d, %" D " planes of %" D " x %" D " pixels from %" D ", %" D ", %" D " x %" D
          " outputs, gap %" D ", bias %d, relu %d, %s, scaled %d",
          side, stride, planes, rows, columns, top, left, down, across, gap, with_bias, relu, float_kind_name(kind),
          scaled);
    const int64_t row_step = columns + 3, x_step = rows * row_step + 1, c_row = across + gap, taps = side * side;
    const int64_t c_step = down * c_row + gap, values = (planes - 1) * c_step + (down - 1) * c_row + across;
    float *wanted = floats(values, kind), *got = copy_of(wanted, values, 4);
    double *scale = items(planes, 8);
    for (int64_t i = 0; i < planes; i++)
        scale[i] = (double)fabsf(draw_float(PLAIN)) * (double)fabsf(draw_float(PLAIN));
    hc_plane plane = {.x = floats((planes - 1) * x_step + (rows - 1) * row_step + columns, kind),
                      .w = floats(planes * taps, kind),
                      .bias = with_bias ? floats(planes, kind) : NULL,
                      .tap_scale = scaled == 2 ? floats(planes * taps, kind) : NULL,
                      .scale = scaled == 1 || scaled == 3 ? scale : NULL,
                      .high = scaled == 3 ? floats(planes * taps, kind) : NULL,
                      .c = got,
                      .planes = planes,
                      .x_step = x_step,
                      .w_step = taps,
                      .c_step = c_step,
                      .row_step = row_step,
                      .rows = rows,
                      .columns = columns,
                      .top = top,
                      .left = left,
                      .c_row = c_row,
                      .down = down,
                      .across = across,
                      .side = side,
                      .stride = stride,
                      .relu = relu};
    plane.work = floats(hc_plane_work(&plane, side, stride), kind);
    for (int64_t v = 0; v < planes * down * across; v++) {
        const int64_t number = v / across / down, i = v / across % down, q = v % across;
        float sum = 0.0f, high = 0.0f;
        for (int t = 0; t < taps; t++) {
            const int64_t h = i * stride + t / side - top, k = q * stride + t % side - left;
            const bool is_inside = h >= 0 && h < rows && k >= 0 && k < columns;
            const float pixel = is_inside ? plane.x[number * x_step + h * row_step + k] : 0.0f;
            const float value = plane.w[number * taps + t];
            sum = scaled == 2 ? fmaf(plane.tap_scale[number * taps + t], pixel * value, sum) : fmaf(pixel, value, sum);
            if (scaled == 3)
                high = fmaf(pixel, plane.high[number * taps + t], high);
        }
        if (scaled == 1 || scaled == 3)
            sum = (float)(scale[number] * (256 * (double)high + (double)sum));
        if (with_bias)
            sum += plane.bias[number];
        wanted[number * c_step + i * c_row + q] = relu && sum <= 0 ? 0.0f : sum;
    }
    kernel->fn.plane_f32(&plane);
    same("c", F32, got, wanted, values);
    BENCH(hc_plane_f32_scalar(&plane), kernel->fn.plane_f32(&plane));
}

static void plane_cases(const hc_kernel *kernel, int scaled) {
    for (int side = 3; side <= 7; side += 2)
        for (int stride = 1; stride <= 2; stride++) {
            /* the usual padding, none at the left, or more than the filter */
            FOR_EACH(int64_t, across, 1, 2, 7, 8, 9, 16, 17, 33)
            FOR_EACH(int64_t, left, 0, side / 2, side + 13)
            plane_case(kernel, side, stride, 5, hc_max(1, (*across - 1) * stride + side - 2 * *left), side / 2, *left,
                       (5 + stride - 1) / stride, *across, 1 + *across % 3, *across % 2 * 2, *left > 0,
                       *left && *across % 2, PLAIN, scaled);
            FOR_EACH(int64_t, down, 1, 2, 3, 8, 9, 19)
            FOR_EACH(int64_t, gap, 0, 2)
            plane_case(kernel, side, stride, (*down - 1) * stride + 1, 20, side / 2, 1, *down, 9, 2, *gap, *down % 2,
                       false, PLAIN, scaled);
            /* outputs of rows and columns beyond the image, and images of which not all is needed */
            plane_case(kernel, side, stride, 2, 3, 9, 1, 12, 40, 3, 0, false, false, PLAIN, scaled);
            plane_case(kernel, side, stride, 30, 90, -2, 0, 4, 5, 3, 0, false, true, PLAIN, scaled);
            for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                plane_case(kernel, side, stride, 11, 13, side / 2, side / 2, (11 + stride - 1) / stride,
                           (13 + stride - 1) / stride, 2, 0, true, kind % 2, (float_kind)kind, scaled);
        }
}

void check_plane_f32(const hc_kernel *kernel) {
    for (int scaled = 0; scaled <= 3; scaled++)
        plane_cases(kernel, scaled);
    usual();
    plane_case(kernel, 3, 1, 28, 28, 1, 1, 28, 28, 8, 0, false, false, PLAIN, 0);
    plane_case(kernel, 5, 2, 28, 28, 2, 2, 14, 14, 8, 0, false, false, PLAIN, 0);
    plane_case(kernel, 3, 1, 28, 28, 1, 1, 28, 28, 8, 0, false, false, PLAIN, 1);
    plane_case(kernel, 3, 1, 28, 28, 1, 1, 28, 28, 8, 0, false, false, PLAIN, 2);
    plane_case(kernel, 3, 1, 28, 28, 1, 1, 28, 28, 8, 0, false, false, PLAIN, 3);
}
