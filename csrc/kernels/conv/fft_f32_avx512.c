/* The Fourier transforms of tiles, with 16 channels or filters in lanes: hc_fft_forward_f32_avx512 and
 * hc_fft_back_f32_avx512; kernels/conv/conv.h. */
#include "base/lanes/avx512.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/fft_tiles.h"

HC_FFT(avx512)
