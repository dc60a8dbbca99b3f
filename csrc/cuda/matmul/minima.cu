/* Values with minima times integers: what the codes gave, and the minima as scales of codes of 1.
 *
 *   y = y_codes + acc     acc = fma(float32(s_x minimum), float32(sum of x over the segment), acc), ascending
 *
 * A block has one row of x, whose sums stand in shared memory, and as many rows of w as threads.
 */
#include "cuda/codec.h"

HC_KERNEL(hc_add_minima, hc_cuda_add_minima, 128) {
    const hc_cuda_gemm &g = p.gemm;
    float *sums = (float *)hc_shared();
    const int64_t row = blockIdx.x, column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    for (int64_t s = threadIdx.x; s < g.segments; s += blockDim.x) {
        int32_t sum = 0;
        for (int limb = g.x_limbs - 1; limb >= 0; limb--) {
            const int8_t *from = g.x + (limb * g.m + row) * g.ld + s * g.length;
            sum *= 256;
            for (int i = 0; i < g.length; i++)
                sum += limb == g.x_limbs - 1 ? from[i] : (uint8_t)from[i];
        }
        sums[s] = (float)sum;
    }
    hc_barrier();
    if (column >= g.n)
        return;
    float acc = 0;
    for (int64_t s = 0; s < g.segments; s++)
        acc = fmaf(g.x_scales[row * g.segments + s] * p.minima[column * g.segments + s], sums[s], acc);
    float *y = (float *)(g.y + row * g.y_row + column * g.y_column), value = *y + acc;
    if (value != value)
        value = hc_f32_from_bits(0x7fc00000); /* every NaN is the same one */
    *y = g.bias ? value + g.bias[column] : value;
}
