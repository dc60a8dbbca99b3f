/* The matrix instructions of a warpgroup (matmul/wgmma.h) once each: 64 rows times 128, 256 and 64 rows of 128 bytes, and 64 rows of a 2:4
 * pattern times 64, 128 and 192 rows. */
#include "cuda/definition.h"
#include "cuda/matmul/wgmma.h"

namespace {

enum { ROWS = 64, X_AT = ROWS * HC_ATOM_PITCH, KEPT_AT = X_AT + 256 * HC_ATOM_PITCH, PIECES = HC_ATOM_PITCH / 16 };

/* The products of k's first product, and of those behind it. */
template <int N, typename product> static inline HC_DEVICE void multiply(uint32_t *out, int each, product multiplied) {
    const int lane = hc_lane(), warp = hc_warp();
    int32_t c[N / 2] = {};
    hc_wgmma_fence();
    for (int k = 0; k < HC_ATOM_PITCH; k += each)
        multiplied(c, k, hc_descriptor(hc_shared_address(hc_shared() + X_AT)) + k / 16);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        out[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = (uint32_t)c[i];
}

template <int N> static inline HC_DEVICE void multiply_dense(uint32_t *out) {
    const uint64_t a = hc_descriptor(hc_shared_address(hc_shared()));
    multiply<N>(out, 32, [=](int32_t (&c)[N / 2], int k, uint64_t b) { hc_wgmma_s8(c, a + k / 16, b, k > 0); });
}

template <int N> static inline HC_DEVICE void multiply_sparse(const uint32_t *places, uint32_t *out) {
    const int lane = hc_lane(), row = hc_warp() * 16 + lane / 4 + lane % 2 * 8;
    const uint64_t a = hc_descriptor_64(hc_shared_address(hc_shared() + KEPT_AT));
    multiply<N>(out, 64, [=](int32_t (&c)[N / 2], int k, uint64_t b) {
        hc_wgmma_sparse_s8(c, a + k / 32, b, places[row * 4 + k / 32 + lane / 2 % 2]);
    });
}

} // namespace

HC_KERNEL(hc_check_90a, hc_cuda_check, 128) {
    for (int i = (int)threadIdx.x; i < KEPT_AT / 16; i += 128)
        hc_copy_16(hc_shared() + hc_atom_place(i / PIECES, i % PIECES), p.in + i * 4);
    for (int i = (int)threadIdx.x; i < ROWS * 4; i += 128)
        hc_copy_16(hc_shared() + KEPT_AT + hc_piece_place<4>(i / 4, i % 4), p.in + (i / 4 * PIECES + i % 4) * 4);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_fence_shared();
    hc_barrier();
    multiply_dense<128>(p.out);
    multiply_dense<256>(p.out + ROWS * 128);
    multiply_dense<64>(p.out + ROWS * 384);
    const uint32_t *places = p.in + KEPT_AT / 4;
    uint32_t *sparse = p.out + ROWS * (384 + 64);
    multiply_sparse<64>(places, sparse);
    multiply_sparse<128>(places, sparse + ROWS * 64);
    multiply_sparse<192>(places, sparse + ROWS * (64 + 128));
}
