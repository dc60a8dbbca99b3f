/* The matrix instructions of a warpgroup (matmul/wgmma.h) once each: 64 rows times 128, 256 and 64 rows of 128 bytes. */
#include "cuda/definition.h"
#include "cuda/matmul/wgmma.h"

namespace {

template <int N> static inline HC_DEVICE void multiply(uint32_t *out) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const uint64_t a = hc_descriptor(hc_shared_address(hc_shared()));
    const uint64_t b = hc_descriptor(hc_shared_address(hc_shared() + 64 * HC_ATOM_PITCH));
    int32_t c[N / 2] = {};
    hc_wgmma_fence();
    for (int k = 0; k < HC_ATOM_PITCH; k += 32)
        hc_wgmma_s8(c, a + k / 16, b + k / 16, k > 0);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        out[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = (uint32_t)c[i];
}

} // namespace

HC_KERNEL(hc_check_90a, hc_cuda_check, 128) {
    for (int i = (int)threadIdx.x; i < HC_CUDA_CHECK_90A_IN / 4; i += 128)
        hc_copy_16(hc_shared() + hc_atom_place(i / 8, i % 8), p.in + i * 4);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_fence_shared();
    hc_barrier();
    multiply<128>(p.out);
    multiply<256>(p.out + 64 * 128);
    multiply<64>(p.out + 64 * (128 + 256));
}
