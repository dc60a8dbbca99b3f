/* Shared by every set of Winograd's transforms of floats: tiles in lanes, those of one channel or filter for channels
 * that do not fill lanes, and the kernels, with constant n, r and dims. Included after a header of base/lanes/. */
#ifdef HC_LANES_SCALAR_H /* a vector is one float */
#define input_tile_lanes input_tile_one
#define filter_tile_lanes filter_tile_one
#define output_tile_lanes output_tile_one
#else
#include "kernels/conv/transforms/each_lanes.h"
#include "kernels/conv/transforms/winograd_floats.h"

#include "kernels/conv/transforms/winograd.h"
#endif

#include "kernels/conv/transforms/each_one.h"
#include "kernels/conv/transforms/winograd_floats.h"

#include "kernels/conv/transforms/winograd.h"

#define INLINE __attribute__((always_inline)) static inline

INLINE void input_all(int n, int dims, const float *const *pixel, int64_t count, float *v, int64_t step) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        input_tile_lanes(n, dims, pixel, at, LANES, v, step);
    if (LANES > 1 && at < count)
        input_tile_lanes(n, dims, pixel, at, (int)(count - at), v, step);
}

INLINE void filter_all(int n, int r, int dims, const float *const *tap, int64_t count, float *u, int64_t step) {
    int64_t at = 0;
    for (; LANES > 1 && at + LANES <= count; at += LANES)
        filter_tile_lanes(n, r, dims, tap, at, u, step);
    for (; at < count; at++)
        filter_tile_one(n, r, dims, tap, at, u, step);
}

INLINE void output_all(int n, int r, int dims, const float *y, int64_t step, int64_t count, const float *bias,
                       bool relu, float *const *answer) {
    int64_t at = 0;
    for (; LANES > 1 && at + LANES <= count; at += LANES)
        output_tile_lanes(n, r, dims, y, step, at, bias, relu, answer);
    for (; at < count; at++)
        output_tile_one(n, r, dims, y, step, at, bias, relu, answer);
}

/* n, r and dims as constants; in one dimension r is 3, and tiles of 4 pixels never have 4 taps. Each case is a function of
 * its own: the time of a compiler grows faster than the length of a function. */
#define HC_WINOGRAD_INPUT(n, dims)                                                                                     \
    static __attribute__((noinline)) void input_##n##_##dims(const float *const *pixel, int64_t count, float *v,       \
                                                             int64_t step) {                                           \
        input_all(n, dims, pixel, count, v, step);                                                                     \
    }
#define HC_WINOGRAD_TAPS(n, r, dims)                                                                                   \
    static __attribute__((noinline)) void filter_##n##_##r##_##dims(const float *const *tap, int64_t count, float *u,  \
                                                                    int64_t step) {                                    \
        filter_all(n, r, dims, tap, count, u, step);                                                                   \
    }                                                                                                                  \
    static __attribute__((noinline)) void output_##n##_##r##_##dims(                                                   \
        const float *y, int64_t step, int64_t count, const float *bias, bool relu, float *const *answer) {             \
        output_all(n, r, dims, y, step, count, bias, relu, answer);                                                    \
    }
#define HC_WINOGRAD_SIZE(n)                                                                                            \
    HC_WINOGRAD_INPUT(n, 1)                                                                                            \
    HC_WINOGRAD_INPUT(n, 2)                                                                                            \
    HC_WINOGRAD_TAPS(n, 3, 1)                                                                                          \
    HC_WINOGRAD_TAPS(n, 2, 2)                                                                                          \
    HC_WINOGRAD_TAPS(n, 3, 2)
HC_WINOGRAD_SIZE(4)
HC_WINOGRAD_SIZE(6)
HC_WINOGRAD_TAPS(6, 4, 2)
HC_WINOGRAD_SIZE(8)
HC_WINOGRAD_TAPS(8, 4, 2)

#define HC_WINOGRAD_CASES(call, ...)                                                                                   \
    if (dims == 1)                                                                                                     \
        n == 4 ? call##_4_3_1(__VA_ARGS__) : n == 6 ? call##_6_3_1(__VA_ARGS__) : call##_8_3_1(__VA_ARGS__);           \
    else if (r == 2)                                                                                                   \
        n == 4 ? call##_4_2_2(__VA_ARGS__) : n == 6 ? call##_6_2_2(__VA_ARGS__) : call##_8_2_2(__VA_ARGS__);           \
    else if (r == 3 || n == 4)                                                                                         \
        n == 4 ? call##_4_3_2(__VA_ARGS__) : n == 6 ? call##_6_3_2(__VA_ARGS__) : call##_8_3_2(__VA_ARGS__);           \
    else                                                                                                               \
        n == 6 ? call##_6_4_2(__VA_ARGS__) : call##_8_4_2(__VA_ARGS__);
#define HC_WINOGRAD(isa)                                                                                               \
    void hc_winograd_input_f32_##isa(int n, int dims, const float *const *pixel, int64_t count, float *v,              \
                                     int64_t step) {                                                                   \
        if (dims == 2)                                                                                                 \
            n == 4   ? input_4_2(pixel, count, v, step)                                                                \
            : n == 6 ? input_6_2(pixel, count, v, step)                                                                \
                     : input_8_2(pixel, count, v, step);                                                               \
        else                                                                                                           \
            n == 4   ? input_4_1(pixel, count, v, step)                                                                \
            : n == 6 ? input_6_1(pixel, count, v, step)                                                                \
                     : input_8_1(pixel, count, v, step);                                                               \
    }                                                                                                                  \
    void hc_winograd_filter_f32_##isa(int n, int r, int dims, const float *const *tap, int64_t count, float *u,        \
                                      int64_t step) {                                                                  \
        HC_WINOGRAD_CASES(filter, tap, count, u, step)                                                                 \
    }                                                                                                                  \
    void hc_winograd_output_f32_##isa(int n, int r, int dims, const float *y, int64_t step, int64_t count,             \
                                      const float *bias, bool relu, float *const *answer) {                            \
        HC_WINOGRAD_CASES(output, y, step, count, bias, relu, answer)                                                  \
    }
