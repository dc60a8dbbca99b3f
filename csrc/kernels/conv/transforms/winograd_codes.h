/* Shared by every set of Winograd's transforms of integers: transforms of codes and filters in int16, and of sums in
 * uint32, which wrap, in lanes and one by one; and the kernels, with constant m and dims. The including file defines:
 * `words`, LANES int16; `sums`, half as many, at least one, and `signed_sums` as int32. If HC_HALF is a type of LANES /
 * 2 int16, it is used for channels that do not fill LANES. */
#define HC_T int16_t
#define HC_V words
#define HC_SIGNED words
#define HC_NAME(name) name##_words
#include "kernels/conv/transforms/winograd_integers.h"

#define HC_T int16_t
#define HC_V int16_t
#define HC_SIGNED int16_t
#define HC_NAME(name) name##_word
#include "kernels/conv/transforms/winograd_integers.h"

#define HC_T uint32_t
#define HC_V sums
#define HC_SIGNED signed_sums
#define HC_NAME(name) name##_sums
#include "kernels/conv/transforms/winograd_integers.h"

#define HC_T uint32_t
#define HC_V uint32_t
#define HC_SIGNED int32_t
#define HC_NAME(name) name##_sum
#include "kernels/conv/transforms/winograd_integers.h"

#ifdef HC_HALF
#define HC_T int16_t
#define HC_V HC_HALF
#define HC_SIGNED HC_HALF
#define HC_NAME(name) name##_half
#include "kernels/conv/transforms/winograd_integers.h"
#endif

#define INLINE __attribute__((always_inline)) static inline

INLINE void input_all(int m, int dims, const int16_t *const *pixel, int64_t count, int16_t *v, int64_t step) {
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        input_tile_words(m + 2, dims, pixel, at, LANES, v, step);
#ifdef HC_HALF
    for (; at + LANES / 2 <= count; at += LANES / 2)
        input_tile_half(m + 2, dims, pixel, at, LANES / 2, v, step);
#endif
    for (; at < count; at++)
        input_tile_word(m + 2, dims, pixel, at, 1, v, step);
}

INLINE void filter_all(int m, int dims, const int16_t *taps, int64_t tap_step, int64_t count, int16_t *u,
                       int64_t step) {
    const int16_t *tap[9] = {NULL};
    for (int i = 0; i < (dims == 2 ? 9 : 3); i++)
        tap[i] = taps + i * tap_step;
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        filter_tile_words(m + 2, 3, dims, tap, at, u, step);
    for (; at < count; at++)
        filter_tile_word(m + 2, 3, dims, tap, at, u, step);
}

INLINE void output_all(int m, int dims, const int32_t *y, int64_t step, int64_t count, int32_t *const *answer) {
    enum { SUMS = (int)(sizeof(sums) / sizeof(uint32_t)) };
    const uint32_t *from = (const uint32_t *)y;
    uint32_t *const *to = (uint32_t *const *)answer;
    int64_t at = 0;
    for (; at + SUMS <= count; at += SUMS)
        output_tile_sums(m + 2, 3, dims, from, step, at, NULL, false, to);
    for (; at < count; at++)
        output_tile_sum(m + 2, 3, dims, from, step, at, NULL, false, to);
}

#define HC_WINOGRAD_CASES(call, ...)                                                                                   \
    if (m == 2 && dims == 2)                                                                                           \
        call(2, 2, __VA_ARGS__);                                                                                       \
    else if (m == 2)                                                                                                   \
        call(2, 1, __VA_ARGS__);                                                                                       \
    else if (dims == 2)                                                                                                \
        call(4, 2, __VA_ARGS__);                                                                                       \
    else                                                                                                               \
        call(4, 1, __VA_ARGS__);

#define HC_WINOGRAD(isa)                                                                                               \
    void hc_winograd_input_s16_##isa(int m, int dims, const int16_t *const *pixel, int64_t count, int16_t *v,          \
                                     int64_t step) {                                                                   \
        HC_WINOGRAD_CASES(input_all, pixel, count, v, step)                                                            \
    }                                                                                                                  \
    void hc_winograd_filter_s16_##isa(int m, int dims, const int16_t *taps, int64_t tap_step, int64_t count,           \
                                      int16_t *u, int64_t step) {                                                      \
        HC_WINOGRAD_CASES(filter_all, taps, tap_step, count, u, step)                                                  \
    }                                                                                                                  \
    void hc_winograd_output_s32_##isa(int m, int dims, const int32_t *y, int64_t step, int64_t count,                  \
                                      int32_t *const *answer) {                                                        \
        HC_WINOGRAD_CASES(output_all, y, step, count, answer)                                                          \
    }
