/* Definition of the Fourier transforms of tiles, one value after the other: hc_fft_forward_f32_scalar and
 * hc_fft_back_f32_scalar; kernels/conv/conv.h. */
#include "base/lanes/scalar.h"
#include "kernels/kernel.h"

#include "kernels/conv/transforms/fft_tiles.h"

HC_FFT(scalar)
