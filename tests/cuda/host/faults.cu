/* Kernels with one fault each, which the host build must find; `params` says where they write. */
#include "cuda/matmul/wgmma.h"

struct fault_params {
    float *out;
    const float *in; /* on 16 bytes */
};

HC_KERNEL(barrier_of_some, fault_params, 64) {
    if (threadIdx.x < 40)
        hc_barrier();
    p.out[threadIdx.x] = 1;
}

HC_KERNEL(writes_beyond, fault_params, 64) { hc_shared()[64 + threadIdx.x] = (unsigned char)p.in[0]; }

HC_KERNEL(reads_before_the_wait, fault_params, 32) {
    float *shared = (float *)hc_shared();
    hc_copy_16(shared + threadIdx.x * 4, p.in + threadIdx.x * 4);
    hc_copy_commit();
    p.out[threadIdx.x] = shared[threadIdx.x * 4];
    hc_copy_wait<0>();
}

HC_KERNEL(never_waits, fault_params, 32) {
    hc_copy_16(hc_shared() + threadIdx.x * 16, p.in + threadIdx.x * 4);
    hc_copy_commit();
}

HC_KERNEL(lanes_part, fault_params, 32) {
    uint32_t value = threadIdx.x;
    if (threadIdx.x < 16)
        value = hc_shuffle_xor(value, 1);
    p.out[threadIdx.x] = (float)value;
}

HC_KERNEL(lanes_disagree, fault_params, 32) {
    int32_t c[4] = {};
    const uint32_t zeros[4] = {};
    if (threadIdx.x < 16)
        hc_mma_s8(c, zeros, zeros);
    else
        c[0] = (int32_t)hc_shuffle_xor(1, 1);
    p.out[threadIdx.x] = (float)c[0];
}

HC_KERNEL(adds_beyond_32_bits, fault_params, 32) {
    int32_t c[4] = {0x7fffffff, 0, 0, 0};
    const uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
    hc_mma_s8(c, ones, ones);
    p.out[threadIdx.x] = (float)c[0];
}

HC_KERNEL(places_descend, fault_params, 32) {
    int32_t c[4] = {};
    const uint32_t zeros[4] = {};
    hc_mma_sparse_s8(c, zeros, zeros, 0x44444441);
    p.out[threadIdx.x] = (float)c[0];
}

/* Products of a warpgroup: each kernel leaves out, or does wrong, what its name says. */
template <bool fences_shared, bool fences_registers, bool waits>
static HC_DEVICE void multiply(const fault_params &p, int shift) {
    int32_t c[64] = {};
    for (int i = (int)threadIdx.x; i < 192 * 8; i += 128)
        hc_copy_16(hc_shared() + i * 16, p.in);
    hc_copy_commit();
    hc_copy_wait<0>();
    if (fences_shared)
        hc_fence_shared();
    hc_barrier();
    const uint64_t a = hc_descriptor(hc_shared_address(hc_shared()));
    if (fences_registers)
        hc_wgmma_fence();
    hc_wgmma_s8(c, a + (threadIdx.x >= 64 ? (uint64_t)shift : 0), a + 512, false);
    hc_wgmma_commit();
    if (waits)
        hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}
HC_KERNEL(shared_memory_without_fence, fault_params, 128) { multiply<false, true, true>(p, 0); }
HC_KERNEL(registers_without_fence, fault_params, 128) { multiply<true, false, true>(p, 0); }
HC_KERNEL(products_without_wait, fault_params, 128) { multiply<true, true, false>(p, 0); }
HC_KERNEL(other_operands, fault_params, 128) { multiply<true, true, true>(p, 2); }
HC_KERNEL(other_layout, fault_params, 128) {
    int32_t c[64] = {};
    hc_wgmma_fence();
    hc_wgmma_s8(c, 0, 0, false);
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}

HC_KERNEL(products_without_commit, fault_params, 128) {
    int32_t c[64] = {};
    hc_wgmma_fence();
    hc_wgmma_s8(c, hc_descriptor(0), hc_descriptor(0), false);
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}
HC_KERNEL(places_of_a_warpgroup_descend, fault_params, 128) {
    int32_t c[64] = {};
    hc_wgmma_fence();
    hc_wgmma_sparse_s8(c, hc_descriptor_64(0), hc_descriptor(0), 0x44444441);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}
/* The first warp stores while products of all read. */
HC_KERNEL(operands_that_change, fault_params, 128) {
    int32_t c[64] = {};
    hc_wgmma_fence();
    hc_wgmma_s8(c, hc_descriptor(0), hc_descriptor(0), false);
    hc_wgmma_commit();
    if (threadIdx.x == 0)
        hc_store_16(hc_shared(), p.in);
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}
/* The same of the last byte of x that a product of a 2:4 pattern reads. */
HC_KERNEL(right_operands_that_change, fault_params, 128) {
    int32_t c[64] = {};
    hc_wgmma_fence();
    hc_wgmma_sparse_s8(c, hc_descriptor_64(0), hc_descriptor(4096), 0x44444444);
    hc_wgmma_commit();
    if (threadIdx.x == 0)
        hc_store_16(hc_shared() + 4096 + 15 * HC_ATOM_BYTES + hc_atom_place(7, 3), p.in);
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}
HC_KERNEL(shared_memory_without_barrier, fault_params, 128) {
    int32_t c[64] = {};
    hc_store_16(hc_shared() + threadIdx.x * 16, p.in);
    hc_barrier();
    hc_fence_shared();
    hc_wgmma_fence();
    hc_wgmma_s8(c, hc_descriptor(0), hc_descriptor(0), false);
    hc_wgmma_commit();
    hc_wgmma_wait<0>(c);
    p.out[threadIdx.x % 64] = (float)c[0];
}

/* Two warps and shared memory: `between` stands where a barrier may be missing. */
template <void (*between)(), bool waits> static HC_DEVICE void copy_and_load(const fault_params &p, bool again) {
    uint32_t a[4];
    unsigned char *own = hc_shared() + threadIdx.x * 16;
    hc_copy_16(own, p.in + threadIdx.x * 4);
    hc_copy_commit();
    if (waits)
        hc_copy_wait<0>();
    between();
    hc_load_matrix_x4(a, hc_shared() + (threadIdx.x ^ 32) * 16);
    if (again)
        hc_store_16(own, p.in);
    hc_copy_wait<0>();
    p.out[threadIdx.x] = (float)a[0];
}
static HC_DEVICE void nothing() {}
HC_KERNEL(loads_without_barrier, fault_params, 64) { copy_and_load<nothing, true>(p, false); }
HC_KERNEL(loads_without_wait, fault_params, 64) { copy_and_load<hc_barrier, false>(p, false); }
HC_KERNEL(stores_without_barrier, fault_params, 64) { copy_and_load<hc_barrier, true>(p, true); }
HC_KERNEL(stores_where_a_copy_comes, fault_params, 64) {
    hc_copy_16(hc_shared() + threadIdx.x * 16, p.in);
    hc_store_16(hc_shared() + threadIdx.x * 16, p.in);
}
HC_KERNEL(two_threads_store, fault_params, 64) { hc_store_16(hc_shared() + threadIdx.x % 32 * 16, p.in); }

/* A barrier is missing: what thread 0 reads depends on the order of the threads. */
HC_KERNEL(races, fault_params, 64) {
    float *shared = (float *)hc_shared();
    shared[threadIdx.x] = p.in[threadIdx.x];
    if (threadIdx.x == 0)
        p.out[0] = shared[63];
}

HC_KERNEL(is_sound, fault_params, 64) {
    float *shared = (float *)hc_shared();
    if (threadIdx.x < 16)
        hc_copy_16(shared + threadIdx.x * 4, p.in + threadIdx.x * 4);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_barrier();
    p.out[threadIdx.x] = shared[63 - threadIdx.x];
}
