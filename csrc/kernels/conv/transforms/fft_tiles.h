/* Shared by every set of Fourier transforms: tiles in lanes, those of one channel or filter for channels that do not fill
 * lanes, and the kernels. Included after a header of base/lanes/. */
#ifdef HC_LANES_SCALAR_H /* a vector is one float */
#define forward_lanes forward_one
#define back_lanes back_one
#else
#include "kernels/conv/transforms/each_lanes.h"

#include "kernels/conv/transforms/fft_f32.h"
#endif

#include "kernels/conv/transforms/each_one.h"

#include "kernels/conv/transforms/fft_f32.h"

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
