/* The Fourier transforms of tiles, with 16 channels or filters in lanes: hc_fft_forward_f32_avx512 and
 * hc_fft_back_f32_avx512; kernels/conv/conv.h. */
#include "kernels/floats/avx512.h"
#include "kernels/kernel.h"

#define HC_NAME(name) name##_lanes
#include "kernels/conv/fft_f32.h"

#include "kernels/conv/fft_tiles.h"

HC_FFT(avx512)
