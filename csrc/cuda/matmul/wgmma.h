/* The matrix instructions of a warpgroup, 128 threads, of sm_90a: both operands lie in shared memory.
 *
 * Rows of 128 bytes of k, eight of them an atom of 1024 bytes on a multiple of that; byte k of row r of an atom is at
 * 128 r + (k xor 16 (r % 8)). A descriptor names the first byte of an operand, in units of 16, so that later k add to it.
 */
#ifndef HC_CUDA_WGMMA_H
#define HC_CUDA_WGMMA_H

#include "cuda/device.h"

enum { HC_ATOM_ROWS = 8, HC_ATOM_PITCH = 128, HC_ATOM_BYTES = HC_ATOM_ROWS * HC_ATOM_PITCH };

/* Where piece of 16 bytes `piece` of a row lies. */
static inline HC_DEVICE int hc_atom_place(int row, int piece) {
    return row * HC_ATOM_PITCH + (piece ^ row % HC_ATOM_ROWS) * 16;
}

/* PTX ISA, "Matrix-descriptor": bits 0 to 13 the address, 16 to 29 a step that this layout has no use for, 32 to 45 bytes from atom
 * to atom, all in units of 16; 62 and 63: 1, rows of 128 bytes that are swizzled. */
static inline HC_DEVICE uint64_t hc_descriptor(uint32_t address) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(HC_ATOM_BYTES >> 4) << 32 |
           (uint64_t)1 << 62;
}

#ifdef __CUDACC__
static inline __device__ uint32_t hc_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}
/* The next barrier makes this thread's writes to shared memory visible to the matrix units of all threads. */
static inline __device__ void hc_fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* Before the first product that reads or writes registers of this thread. */
static inline __device__ void hc_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static inline __device__ void hc_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All products have ended but those of the last N groups. */
template <int N> static inline __device__ void hc_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* c = a b^T (+ c) of 64 x 32 and 128 x 32 signed bytes. Thread t of the warpgroup has in c[4 j + r] row 16 (t / 32) + t % 32 / 4
 * (+ 8 for r >= 2), column 8 j + 2 (t % 4) + r % 2. */
static inline __device__ void hc_wgmma_s8(int32_t (&c)[64], uint64_t a, uint64_t b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, "
                 "%40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, "
                 "%56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p;\n}\n"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
                   "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]),
                   "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]),
                   "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]),
                   "+r"(c[30]), "+r"(c[31]), "+r"(c[32]), "+r"(c[33]), "+r"(c[34]), "+r"(c[35]), "+r"(c[36]),
                   "+r"(c[37]), "+r"(c[38]), "+r"(c[39]), "+r"(c[40]), "+r"(c[41]), "+r"(c[42]), "+r"(c[43]),
                   "+r"(c[44]), "+r"(c[45]), "+r"(c[46]), "+r"(c[47]), "+r"(c[48]), "+r"(c[49]), "+r"(c[50]),
                   "+r"(c[51]), "+r"(c[52]), "+r"(c[53]), "+r"(c[54]), "+r"(c[55]), "+r"(c[56]), "+r"(c[57]),
                   "+r"(c[58]), "+r"(c[59]), "+r"(c[60]), "+r"(c[61]), "+r"(c[62]), "+r"(c[63])
                 : "l"(a), "l"(b), "r"((int)adds)
                 : "memory");
}
#else
uint32_t hc_shared_address(const void *shared);
void hc_fence_shared();
void hc_wgmma_fence();
void hc_wgmma_commit();
void hc_host_wgmma_wait(int pending);
template <int N> static inline void hc_wgmma_wait() { hc_host_wgmma_wait(N); }
void hc_wgmma_s8(int32_t (&c)[64], uint64_t a, uint64_t b, bool adds);
#endif

#endif
