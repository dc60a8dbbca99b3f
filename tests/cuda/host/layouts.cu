/* Instructions on given shared memory and registers, for comparison with the layouts that CuTe states. */
#include "cuda/matmul/wgmma.h"

struct layout_params {
    uint32_t *out;       /* of each thread */
    const uint32_t *in;  /* an image of shared memory, on 16 bytes */
    int32_t bytes, a, b; /* of the image; where the operands begin */
};

/* places: of a 2:4 pattern, a word a thread, or NULL */
template <int N> static void multiply_image(const layout_params &p, const uint32_t *places) {
    int32_t c[N / 2] = {};
    for (int i = (int)threadIdx.x; i < p.bytes / 16; i += 128)
        hc_copy_16(hc_shared() + i * 16, p.in + i * 4);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_fence_shared();
    hc_barrier();
    hc_wgmma_fence();
    if (places)
        hc_wgmma_sparse_s8(c, hc_descriptor_64((uint32_t)p.a), hc_descriptor((uint32_t)p.b), places[threadIdx.x]);
    else
        hc_wgmma_s8(c, hc_descriptor((uint32_t)p.a), hc_descriptor((uint32_t)p.b), false);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
    for (int i = 0; i < N / 2; i++)
        p.out[threadIdx.x * (N / 2) + i] = (uint32_t)c[i];
}
HC_KERNEL(multiply_image_64, layout_params, 128) { multiply_image<64>(p, NULL); }
HC_KERNEL(multiply_image_128, layout_params, 128) { multiply_image<128>(p, NULL); }
HC_KERNEL(multiply_image_256, layout_params, 128) { multiply_image<256>(p, NULL); }
/* The last 512 bytes of the image are places. */
HC_KERNEL(multiply_sparse_image_128, layout_params, 128) { multiply_image<128>(p, p.in + p.bytes / 4 - 128); }

/* Descriptors of the addresses at `a` on, 16 bytes apart, two words each; then places of pieces of 64 rows. b: of rows of 64 bytes. */
HC_KERNEL(describe, layout_params, 1) {
    for (int i = 0; i < 1024; i++) {
        const uint32_t at = (uint32_t)(p.a + i * 16);
        const uint64_t made = p.b ? hc_descriptor_64(at) : hc_descriptor(at);
        p.out[2 * i] = (uint32_t)made;
        p.out[2 * i + 1] = (uint32_t)(made >> 32);
    }
    for (int i = 0; i < 64 * 8; i++)
        p.out[2048 + i] = (uint32_t)hc_atom_place(i / 8, i % 8);
}
