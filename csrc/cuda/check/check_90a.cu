/* The matrix instruction of a warpgroup (matmul/wgmma.h) once: 64 rows times 128 rows of 128 bytes. */
#include "cuda/definition.h"
#include "cuda/matmul/wgmma.h"

HC_KERNEL(hc_check_90a, hc_cuda_check, 128) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int32_t c[64] = {};
    for (int i = (int)threadIdx.x; i < HC_CUDA_CHECK_90A_IN / 4; i += 128)
        hc_copy_16(hc_shared() + hc_atom_place(i / 8, i % 8), p.in + i * 4);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_fence_shared();
    hc_barrier();
    const uint64_t a = hc_descriptor(hc_shared_address(hc_shared()));
    const uint64_t b = hc_descriptor(hc_shared_address(hc_shared() + 64 * HC_ATOM_PITCH));
    hc_wgmma_fence();
    for (int k = 0; k < HC_ATOM_PITCH; k += 32)
        hc_wgmma_s8(c, a + k / 16, b + k / 16, k > 0);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
#pragma unroll
    for (int i = 0; i < 64; i++)
        p.out[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = (uint32_t)c[i];
}
