/* Shared by every set of Fourier transforms: tiles of one channel or filter, for channels that do not fill lanes, and
 * the kernels. Included after LANES and fft_f32.h with names in _lanes. */
#include <math.h>

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
#include "kernels/conv/fft_f32.h"

#define HC_FFT(isa)                                                                                                    \
    void hc_fft_forward_f32_##isa(int height, int width, bool filter, const hc_fft_pixels *pixels, int64_t count,      \
                                  float *to, int64_t step, float *work) {                                              \
        int64_t at = 0;                                                                                                \
        for (; at + LANES <= count; at += LANES)                                                                       \
            forward_lanes(height, width, filter, pixels, at, to + at, step, work);                                     \
        for (; at < count; at++)                                                                                       \
            forward_one(height, width, filter, pixels, at, to + at, step, work);                                       \
    }                                                                                                                  \
    void hc_fft_back_f32_##isa(int height, int width, const float *y, int64_t step, int64_t count, const float *bias,  \
                               bool relu, const hc_fft_answers *answers, float *work) {                                \
        int64_t at = 0;                                                                                                \
        for (; at + LANES <= count; at += LANES)                                                                       \
            back_lanes(height, width, y, step, at, bias, relu, answers, work);                                         \
        for (; at < count; at++)                                                                                       \
            back_one(height, width, y, step, at, bias, relu, answers, work);                                           \
    }
