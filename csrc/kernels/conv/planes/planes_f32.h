/* Planes of images, with pixels in lanes: up to 8 registers of pixels, each anywhere, by as many filters as leave room
 * for their sums, each a broadcast. Included after a header of base/lanes/ and SUMS, the registers of sums. */
#include "kernels/kernel.h"

#define INLINE __attribute__((always_inline)) static inline

enum { MOST_FILTERS = 12, MOST_BLOCKS = 8 };

/* The arguments that all tiles of a call share. */
typedef struct {
    int64_t taps, channels, plane, filter, channel, ldc, tap_step;
    const int64_t *tap;
    const hc_plane_block *block;
    bool far, relu;
} call_of;

/* `some`: the last block is not read past its end. */
INLINE void tile(const int filters, const int blocks, const bool some, const call_of *call, const float *w,
                 const float *bias, int64_t first) {
    lanes sum[MOST_FILTERS][MOST_BLOCKS];
    const hc_plane_block *block = call->block;
#pragma GCC unroll 12
    for (int f = 0; f < filters; f++)
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++)
            sum[f][b] = lanes_of(0);
    if (call->far) /* results that are not in a near cache arrive while they are computed */
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++) {
            const float *to = block[b].c + first * call->ldc;
#pragma GCC unroll 12
            for (int f = 0; f < filters; f++, to += call->ldc)
                __builtin_prefetch(to, 1);
        }
    const int64_t last = block[blocks - 1].n, filter = call->filter, channel = call->channel, plane = call->plane;
    for (int64_t t = 0; t < call->taps; t++) {
        const float *x[MOST_BLOCKS];
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++)
            x[b] = block[b].x + call->tap[t];
        /* filter f is f % 3 steps after pointer f / 3: an address has one index */
        const float *row[MOST_FILTERS / 3];
#pragma GCC unroll 4
        for (int i = 0; i < (filters + 2) / 3; i++)
            row[i] = w + t * call->tap_step + 3 * i * filter;
        for (int64_t c = 0; c < call->channels; c++) {
            lanes pixels[MOST_BLOCKS];
#pragma GCC unroll 8
            for (int b = 0; b < blocks; b++) {
                pixels[b] = some && b == blocks - 1 ? lanes_load_some(x[b], last) : lanes_load(x[b]);
                x[b] += plane;
            }
#pragma GCC unroll 12
            for (int f = 0; f < filters; f++) {
                const lanes value = lanes_of(row[f / 3][f % 3 * filter]);
#pragma GCC unroll 8
                for (int b = 0; b < blocks; b++)
                    sum[f][b] = lanes_fma(pixels[b], value, sum[f][b]);
            }
#pragma GCC unroll 4
            for (int i = 0; i < (filters + 2) / 3; i++)
                row[i] += channel;
        }
    }
#pragma GCC unroll 12
    for (int f = 0; f < filters; f++)
        if (bias || call->relu) {
            const lanes value = lanes_of(bias ? bias[f] : -0.0f);
#pragma GCC unroll 8
            for (int b = 0; b < blocks; b++) {
                sum[f][b] = lanes_add(sum[f][b], value);
                if (call->relu)
                    sum[f][b] = lanes_relu(sum[f][b]);
            }
        }
#pragma GCC unroll 8
    for (int b = 0; b < blocks; b++) {
        float *to = block[b].c + first * call->ldc;
        const bool full = block[b].n == LANES;
#pragma GCC unroll 12
        for (int f = 0; f < filters; f++, to += call->ldc)
            if (full)
                lanes_store(to, sum[f][b]);
            else
                lanes_store_some(to, sum[f][b], block[b].n);
    }
}

/* Filters from *first on, `step` at a time, while there are so many. */
INLINE void steps(const int step, const int blocks, const bool some, const call_of *call, const float *w,
                  const float *bias, int64_t filters, int64_t *first) {
    for (; *first + step <= filters; *first += step)
        tile(step, blocks, some, call, w + *first * call->filter, bias ? bias + *first : NULL, *first);
}

/* All filters of `blocks` registers of pixels. */
INLINE void all(const int blocks, const bool some, const call_of *call, const float *w, const float *bias,
                int64_t filters) {
    const int fit = SUMS / blocks, most = fit < MOST_FILTERS ? fit : MOST_FILTERS;
    int64_t first = 0;
    steps(most, blocks, some, call, w, bias, filters, &first);
    if (most >= 8)
        steps(most / 2, blocks, some, call, w, bias, filters, &first);
    if (most >= 4)
        steps(most / 4 > 1 ? most / 4 : 2, blocks, some, call, w, bias, filters, &first);
    steps(1, blocks, some, call, w, bias, filters, &first);
}

#define HC_BLOCKS(n)                                                                                                   \
    __attribute__((noinline)) static void blocks_##n(const call_of *call, const float *w, const float *bias,           \
                                                     int64_t filters, bool some) {                                     \
        if (some)                                                                                                      \
            all(n, true, call, w, bias, filters);                                                                      \
        else                                                                                                           \
            all(n, false, call, w, bias, filters);                                                                     \
    }
HC_BLOCKS(1)
HC_BLOCKS(2)
HC_BLOCKS(3)
HC_BLOCKS(4)
HC_BLOCKS(6)
HC_BLOCKS(8)

#define HC_PLANES_F32(isa)                                                                                             \
    void hc_planes_f32_##isa(int64_t taps, const int64_t *tap, int64_t channels, int64_t plane, const float *w,        \
                             const int64_t *w_step, int64_t filters, const hc_plane_block *block, int blocks,          \
                             bool some, int64_t ldc, bool far, const float *bias, bool relu) {                         \
        while (blocks > 0) {                                                                                           \
            const int n = blocks >= 8 && filters * 8 <= SUMS   ? 8                                                     \
                          : blocks >= 6 && filters * 6 <= SUMS ? 6                                                     \
                          : blocks >= 4 && filters * 4 <= SUMS ? 4                                                     \
                          : blocks >= 3                        ? 3                                                     \
                                                               : blocks;                                               \
            const call_of call = {taps, channels, plane, w_step[0], w_step[2], ldc, w_step[1], tap, block, far, relu}; \
            const bool ends = some && n == blocks && block[n - 1].n < LANES;                                           \
            (n == 8   ? blocks_8                                                                                       \
             : n == 6 ? blocks_6                                                                                       \
             : n == 4 ? blocks_4                                                                                       \
             : n == 3 ? blocks_3                                                                                       \
             : n == 2 ? blocks_2                                                                                       \
                      : blocks_1)(&call, w, bias, filters, ends);                                                      \
            block += n;                                                                                                \
            blocks -= n;                                                                                               \
        }                                                                                                              \
    }
