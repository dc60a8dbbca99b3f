/* The Fourier transforms of tiles, with 8 channels or filters in lanes: hc_fft_forward_f32_avx2 and
 * hc_fft_back_f32_avx2; kernels/conv/conv.h. */
#include "base/lanes/avx2.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/fft_tiles.h"

HC_FFT(avx2)
