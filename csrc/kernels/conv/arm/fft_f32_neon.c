/* The Fourier transforms of tiles, with 4 channels or filters in lanes: hc_fft_forward_f32_neon and
 * hc_fft_back_f32_neon; kernels/conv/conv.h. */
#include "base/lanes/neon.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/fft_tiles.h"

HC_FFT(neon)
