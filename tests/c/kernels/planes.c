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
    kernel->fn.planes_f32(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, bias, finishes);
    same("c", F32, got, wanted, values);
    BENCH(
        hc_planes_f32_scalar(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, bias, finishes),
        kernel->fn.planes_f32(taps, tap, channels, plane, w, step, filters, block, blocks, some, ldc, bias, finishes));
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
