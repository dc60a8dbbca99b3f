/* Planes of pairs of codes, with pixels in lanes: up to 8 registers of pixels, each anywhere, by as many filters as leave
 * room for their sums, each pair a broadcast. Included after SUMS, the registers of sums, LANES and the definitions of
 *
 *   vector, sums              LANES pairs; their sums, in one register or two
 *   load, every               pairs of pixels; one pair in all lanes
 *   none, dot                 sums of nothing; sums + the two products of each pair
 *   floats_of                 float32 of the sums times a scale, in float64
 */
#define INLINE __attribute__((always_inline)) static inline

enum { NR = SUMS / 2, MOST_BLOCKS = 8 };

/* The arguments that all tiles of a call share. */
typedef struct {
    int64_t taps, pairs, plane, ldc;
    const int64_t *tap;
    const hc_code_block *block;
    bool relu;
} call_of;

INLINE void tile(const int filters, const int blocks, const call_of *call, const int32_t *panel, const double *scale,
                 const float *bias, int64_t first) {
    sums sum[NR][MOST_BLOCKS];
    const hc_code_block *block = call->block;
#pragma GCC unroll 12
    for (int f = 0; f < filters; f++)
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++)
            sum[f][b] = none();
    const int64_t plane = call->plane;
    for (int64_t t = 0; t < call->taps; t++) {
        const int32_t *x[MOST_BLOCKS];
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++)
            x[b] = block[b].x + call->tap[t];
        for (int64_t v = 0; v < call->pairs; v++, panel += NR) {
            vector pixels[MOST_BLOCKS];
#pragma GCC unroll 8
            for (int b = 0; b < blocks; b++) {
                pixels[b] = load(x[b]);
                x[b] += plane;
            }
#pragma GCC unroll 12
            for (int f = 0; f < filters; f++) {
                const vector value = every(panel[f]);
#pragma GCC unroll 8
                for (int b = 0; b < blocks; b++)
                    sum[f][b] = dot(sum[f][b], pixels[b], value);
            }
        }
    }
#pragma GCC unroll 12
    for (int f = 0; f < filters; f++) {
        const double by = scale[first + f];
        const lanes value = lanes_of(bias ? bias[first + f] : -0.0f);
        float *to = block[0].c + (first + f) * call->ldc;
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++) {
            lanes answer = floats_of(sum[f][b], by);
            if (bias || call->relu)
                answer = lanes_add(answer, value);
            if (call->relu)
                answer = lanes_relu(answer);
            float *at = b ? block[b].c + (first + f) * call->ldc : to;
            if (block[b].n == LANES)
                lanes_store(at, answer);
            else
                lanes_store_some(at, answer, block[b].n);
        }
    }
}

/* The panel of filters from `first` on, or its first `filters`. */
#define HC_TILE(n, f)                                                                                                  \
    case f:                                                                                                            \
        if ((f) <= NR && (f) * (n) <= SUMS)                                                                            \
            tile((f) <= NR ? (f) : 1, (f) * (n) <= SUMS ? (n) : 1, call, panel, scale, bias, first);                   \
        break;
#define HC_BLOCKS(n)                                                                                                   \
    __attribute__((noinline)) static void blocks_##n(const call_of *call, const int32_t *panel, const double *scale,   \
                                                     const float *bias, int64_t filters) {                             \
        const int64_t step = call->taps * call->pairs * NR;                                                            \
        for (int64_t first = 0; first < filters; first += NR, panel += step)                                           \
            switch (filters - first < NR ? (int)(filters - first) : NR) {                                              \
                HC_TILE(n, 1)                                                                                          \
                HC_TILE(n, 2)                                                                                          \
                HC_TILE(n, 3)                                                                                          \
                HC_TILE(n, 4)                                                                                          \
                HC_TILE(n, 5)                                                                                          \
                HC_TILE(n, 6)                                                                                          \
                HC_TILE(n, 7)                                                                                          \
                HC_TILE(n, 8)                                                                                          \
                HC_TILE(n, 9)                                                                                          \
                HC_TILE(n, 10)                                                                                         \
                HC_TILE(n, 11)                                                                                         \
                HC_TILE(n, 12)                                                                                         \
            }                                                                                                          \
    }
HC_BLOCKS(1)
HC_BLOCKS(2)
HC_BLOCKS(4)
HC_BLOCKS(8)

#define HC_PLANES_S16(isa)                                                                                             \
    void hc_planes_s16_##isa(int64_t taps, const int64_t *tap, int64_t pairs, int64_t plane, const int32_t *panel,     \
                             int64_t filters, const hc_code_block *block, int blocks, int64_t ldc,                     \
                             const double *scale, const float *bias, bool relu) {                                      \
        while (blocks > 0) {                                                                                           \
            const int n = blocks >= 8 && filters * 8 <= SUMS   ? 8                                                     \
                          : blocks >= 4 && filters * 4 <= SUMS ? 4                                                     \
                          : blocks >= 2                        ? 2                                                     \
                                                               : 1;                                                    \
            const call_of call = {taps, pairs, plane, ldc, tap, block, relu};                                          \
            (n == 8   ? blocks_8                                                                                       \
             : n == 4 ? blocks_4                                                                                       \
             : n == 2 ? blocks_2                                                                                       \
                      : blocks_1)(&call, panel, scale, bias, filters);                                                 \
            block += n;                                                                                                \
            blocks -= n;                                                                                               \
        }                                                                                                              \
    }
