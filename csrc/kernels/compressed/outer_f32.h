/* Lists of activations times rows of weights. The sums of a pixel stay in up to 64 / LANES registers while the loop
 * walks its list. Each activation is broadcast once and multiplied by a row of weights. Included after a header of
 * base/lanes/ and the definition of HC_FMA_NONZERO(x, w, sum): fma(x, w, sum) if w is not 0, otherwise sum. */
#include "kernels/kernel.h"

static inline __attribute__((always_inline)) void walk(const int registers, const bool guarded, int64_t count,
                                                       const int32_t *starts, int64_t step, const float *values,
                                                       const uint8_t *at, const float *panel, float *to) {
    for (int64_t i = 0; i < count; i++, starts += step, to += registers * LANES) {
        const int32_t end = starts[1];
        if (starts[0] == end)
            continue;
        lanes sum[HC_OUTER_LANES / LANES];
#pragma GCC unroll 16
        for (int r = 0; r < registers; r++)
            sum[r] = lanes_load(to + r * LANES);
        for (int32_t t = starts[0]; t < end; t++) {
            const lanes x = lanes_of(values[t]);
            const float *weights = panel + at[t] * registers * LANES;
#pragma GCC unroll 16
            for (int r = 0; r < registers; r++) {
                const lanes w = lanes_load(weights + r * LANES);
                sum[r] = guarded ? HC_FMA_NONZERO(x, w, sum[r]) : lanes_fma(x, w, sum[r]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < registers; r++)
            lanes_store(to + r * LANES, sum[r]);
    }
}

#define HC_OUTER_CASE(lanes)                                                                                           \
    case lanes:                                                                                                        \
        if (guarded)                                                                                                   \
            walk((lanes) / LANES, true, count, starts, step, values, at, panel, to);                                   \
        else                                                                                                           \
            walk((lanes) / LANES, false, count, starts, step, values, at, panel, to);                                  \
        break;

#define HC_OUTER_F32(isa)                                                                                              \
    void hc_outer_f32_##isa(int64_t count, const int32_t *starts, int64_t step, const float *values,                   \
                            const uint8_t *at, const float *panel, int lanes, bool guarded, float *to) {               \
        switch (lanes) {                                                                                               \
            HC_OUTER_CASE(16)                                                                                          \
            HC_OUTER_CASE(32)                                                                                          \
            HC_OUTER_CASE(48)                                                                                          \
            HC_OUTER_CASE(64)                                                                                          \
        }                                                                                                              \
    }
