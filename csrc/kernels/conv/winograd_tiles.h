/* What every set of Winograd's transforms of floats shares: tiles of one channel, or filter, for those that fill no lanes, and the
 * kernels, with m and dims known to the compiler. Before it: LANES, winograd_floats.h and winograd.h with names in _lanes. */
#include <math.h>

#include "kernels/conv/winograd_floats.h"
#define HC_V float
#define HC_NAME(name) name##_one
#define HC_LOAD(at) (*(at))
#define HC_STORE(at, value) (*(at) = (value))
#define HC_SET(value) (value)
#define HC_ADD(a, b) ((a) + (b))
#define HC_SUB(a, b) ((a) - (b))
#define HC_MUL(a, b) ((a) * (b))
#define HC_FMA(a, b, c) fmaf(a, b, c)
#define HC_RELU(a) ((a) <= 0 ? 0.0f : (a))
#include "kernels/conv/winograd.h"

__attribute__((always_inline)) static inline void input_all(int m, int dims, const float *const *pixel, int64_t count,
                                                            float *v, int64_t step) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        input_tile_lanes(m, dims, pixel, at, v, step);
    for (; at < count; at++)
        input_tile_one(m, dims, pixel, at, v, step);
}

__attribute__((always_inline)) static inline void filter_all(int m, int dims, const float *taps, int64_t tap_step,
                                                             int64_t count, float *u, int64_t step) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        filter_tile_lanes(m, dims, taps + at, tap_step, u + at, step);
    for (; at < count; at++)
        filter_tile_one(m, dims, taps + at, tap_step, u + at, step);
}

__attribute__((always_inline)) static inline void output_all(int m, int dims, const float *y, int64_t step,
                                                             int64_t count, const float *bias, bool relu,
                                                             float *const *answer) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        output_tile_lanes(m, dims, y, step, at, bias, relu, answer);
    for (; at < count; at++)
        output_tile_one(m, dims, y, step, at, bias, relu, answer);
}

/* m and dims as constants. */
#define HC_WINOGRAD_CASES(call, ...)                                                                                   \
    if (dims == 2) {                                                                                                   \
        if (m == 2)                                                                                                    \
            call(2, 2, __VA_ARGS__);                                                                                   \
        else if (m == 4)                                                                                               \
            call(4, 2, __VA_ARGS__);                                                                                   \
        else                                                                                                           \
            call(6, 2, __VA_ARGS__);                                                                                   \
    } else {                                                                                                           \
        if (m == 2)                                                                                                    \
            call(2, 1, __VA_ARGS__);                                                                                   \
        else if (m == 4)                                                                                               \
            call(4, 1, __VA_ARGS__);                                                                                   \
        else                                                                                                           \
            call(6, 1, __VA_ARGS__);                                                                                   \
    }
#define HC_WINOGRAD(isa)                                                                                               \
    void hc_winograd_input_f32_##isa(int m, int dims, const float *const *pixel, int64_t count, float *v,              \
                                     int64_t step) {                                                                   \
        HC_WINOGRAD_CASES(input_all, pixel, count, v, step)                                                            \
    }                                                                                                                  \
    void hc_winograd_filter_f32_##isa(int m, int dims, const float *taps, int64_t tap_step, int64_t count, float *u,   \
                                      int64_t step) {                                                                  \
        HC_WINOGRAD_CASES(filter_all, taps, tap_step, count, u, step)                                                  \
    }                                                                                                                  \
    void hc_winograd_output_f32_##isa(int m, int dims, const float *y, int64_t step, int64_t count, const float *bias, \
                                      bool relu, float *const *answer) {                                               \
        HC_WINOGRAD_CASES(output_all, y, step, count, bias, relu, answer)                                              \
    }
