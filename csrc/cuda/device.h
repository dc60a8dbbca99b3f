/* One name for each instruction that C++ has no word for: inline PTX where nvcc compiles, a function of the tests where a C++
 * compiler of the host does, so that one source is both.
 */
#ifndef HC_CUDA_DEVICE_H
#define HC_CUDA_DEVICE_H

#define HC_WARP 32 /* threads that run together; planners read it, too */

#ifdef __cplusplus
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define HC_DEVICE __device__
/* A kernel with one structure of parameters p, for at most `threads` a block; also, blocks that a multiprocessor must hold. */
#define HC_KERNEL(name, type, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ type p)

static inline __device__ unsigned char *hc_shared() {
    extern __shared__ __align__(1024) unsigned char hc_shared_bytes[];
    return hc_shared_bytes;
}
static inline __device__ void hc_barrier() { __syncthreads(); }
static inline __device__ void hc_atomic_max(uint32_t *at, uint32_t value) { atomicMax(at, value); }
static inline __device__ void hc_atomic_or(uint32_t *at, uint32_t value) { atomicOr(at, value); }

/* Byte i of the answer is the one of eight, those of a and then those of b, that 4 bits of `which` name. */
static inline __device__ uint32_t hc_permute_bytes(uint32_t a, uint32_t b, uint32_t which) {
    return __byte_perm(a, b, which);
}
/* (a & b) ^ c, of which compilers make two instructions where b and c are constants. */
static inline __device__ uint32_t hc_and_xor(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t found;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(found) : "r"(a), "r"(b), "r"(c));
    return found;
}

/* The same value, which compilers neither derive from others again nor take apart: computed before a loop, it stays in a register. */
static inline __device__ uint32_t hc_held(uint32_t value) {
    asm("" : "+r"(value));
    return value;
}

/* The value of a float16; a NaN becomes some NaN. */
static inline __device__ float hc_half_value(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

/* 16 bytes of global memory that no kernel writes meanwhile, to registers. */
static inline __device__ void hc_load_16(float to[4], const void *from) {
    const float4 four = __ldg((const float4 *)from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

/* The same that are read once: no cache of a multiprocessor keeps them. Such loads keep their order. */
static inline __device__ void hc_load_16_once(uint32_t to[4], const void *from) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}

/* 16 bytes from global to shared memory, which lie there after the wait for their group, and a barrier. */
static inline __device__ void hc_copy_16(void *shared, const void *global) {
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
/* The same, or 16 bytes of zero. */
static inline __device__ void hc_copy_16_or_zeros(void *shared, const void *global, bool is_valid) {
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared), bytes = is_valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
/* The same of bytes that other blocks of a multiprocessor read at about the same time: they stay in its cache. */
static inline __device__ void hc_copy_16_of_many(void *shared, const void *global, bool is_valid) {
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared), bytes = is_valid ? 16 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
static inline __device__ void hc_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* 16 bytes of registers to shared memory. */
static inline __device__ void hc_store_16(void *shared, const void *from) { *(uint4 *)shared = *(const uint4 *)from; }
/* All groups but the last N have arrived. */
template <int N> static inline __device__ void hc_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four 8 x 8 matrices of 16 bits; lane i names row i % 8 of matrix i / 8. */
static inline __device__ void hc_load_matrix_x4(uint32_t to[4], const void *shared) {
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
/* c += a b of 16 x 32 and 32 x 8 signed bytes. */
static inline __device__ void hc_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The same of bytes with or without a sign, which all lanes agree on. */
#define HC_MMA_BYTES(a_type, b_type)                                                                                   \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." a_type "." b_type                                            \
                 ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "                                                           \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                         \
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
static inline __device__ void hc_mma_bytes(int32_t c[4], const uint32_t a[4], const uint32_t b[2], bool a_is_signed,
                                           bool b_is_signed) {
    if (a_is_signed && b_is_signed)
        HC_MMA_BYTES("s8", "s8");
    else if (a_is_signed)
        HC_MMA_BYTES("s8", "u8");
    else if (b_is_signed)
        HC_MMA_BYTES("u8", "s8");
    else
        HC_MMA_BYTES("u8", "u8");
}
/* c += a b of 16 x 64 and 64 x 8 signed bytes; of four neighbours in a row of a two are there, at the two places that 4 bits of
 * `places` name: lane i has those of row i / 4 + 8 (i % 2), columns 32 (i / 2 % 2) on. */
static inline __device__ void hc_mma_sparse_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[4],
                                               uint32_t places) {
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places));
}
/* c += a b of 16 x 16 and 16 x 8 bfloat16, summed in an order and with roundings of the device's own. */
static inline __device__ void hc_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static inline __device__ uint32_t hc_shuffle_xor(uint32_t value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
#else
#include <host/device.h> /* tests/cuda/host/device.h: on the path of those who build for the host */
#endif

/* The number of a thread in its warp, and of that in its block. */
static inline HC_DEVICE int hc_lane() { return (int)threadIdx.x % HC_WARP; }
static inline HC_DEVICE int hc_warp() { return (int)threadIdx.x / HC_WARP; }
#endif

#endif
