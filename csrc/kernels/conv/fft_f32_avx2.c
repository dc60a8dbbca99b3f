/* The Fourier transforms of tiles, with 8 channels or filters in lanes: hc_fft_forward_f32_avx2 and
 * hc_fft_back_f32_avx2; kernels/conv/conv.h. */
#include "kernels/floats/avx2.h"
#include "kernels/kernel.h"

#define HC_NAME(name) name##_lanes
#include "kernels/conv/fft_f32.h"

#include "kernels/conv/fft_tiles.h"

HC_FFT(avx2)
