/* The matrix instructions of a warpgroup, 128 threads, of sm_90a: both operands lie in shared memory.
 *
 * Rows of 128 bytes of k, eight of them an atom of 1024 bytes on a multiple of that; byte k of row r of an atom is at
 * 128 r + (k xor 16 (r % 8)). A descriptor names the first byte of an operand, in units of 16, so that later k add to it.
 */
#ifndef HC_CUDA_WGMMA_H
#define HC_CUDA_WGMMA_H

#include "cuda/matmul/swizzle.h"

/* The row that stands for row i of a block of up to 256 rows, of which the first `there` exist. The sums of the others are not stored.
 * They repeat many rows in turn: if all were the last one, all blocks would wait for the same few bytes. */
static inline HC_DEVICE uint32_t hc_row_for(int i, int64_t there) {
    uint32_t most = (uint32_t)(there < 256 ? there : 256) - 1;
    most |= most >> 1;
    most |= most >> 2;
    most |= most >> 4;
    return i < there ? (uint32_t)i : (uint32_t)i & most >> 1;
}

enum { HC_ATOM_ROWS = 8, HC_ATOM_PITCH = 128, HC_ATOM_BYTES = HC_ATOM_ROWS * HC_ATOM_PITCH };

/* Where piece of 16 bytes `piece` of a row lies. */
static inline HC_DEVICE int hc_atom_place(int row, int piece) { return hc_piece_place<HC_ATOM_PITCH / 16>(row, piece); }

/* PTX ISA, "Matrix-descriptor": bits 0 to 13 the address, 16 to 29 a step that this layout has no use for, 32 to 45 bytes from atom
 * to atom, all in units of 16; 62 and 63: 1, rows of 128 bytes that are swizzled. */
static inline HC_DEVICE uint64_t hc_descriptor(uint32_t address) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(HC_ATOM_BYTES >> 4) << 32 |
           (uint64_t)1 << 62;
}
/* The same of rows of 64 bytes, eight of them 512 bytes: 2 in bits 62 and 63, rows of 64 bytes that are swizzled (swizzle.h). */
static inline HC_DEVICE uint64_t hc_descriptor_64(uint32_t address) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(HC_ATOM_BYTES >> 5) << 32 |
           (uint64_t)2 << 62;
}

#ifdef __CUDACC__
static inline __device__ uint32_t hc_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}
/* Makes this thread's writes to shared memory, copies that it waited for included, visible to the matrix units after a barrier. */
static inline __device__ void hc_fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* The compiler moves no use of the sums across this point. */
template <int N> static inline __device__ void hc_wgmma_keep(int32_t (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(c[i])::"memory");
}
/* Before the first product, and before a product of sums that this thread has read or written since. */
static inline __device__ void hc_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static inline __device__ void hc_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All products have ended but those of the last PENDING groups; the sums may be read where that is none. */
template <int PENDING, int N> static inline __device__ void hc_wgmma_wait(int32_t (&c)[N]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    if constexpr (PENDING == 0)
        hc_wgmma_keep(c);
}
#define HC_4(c, i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3])
#define HC_16(c, i) HC_4(c, i), HC_4(c, i + 4), HC_4(c, i + 8), HC_4(c, i + 12)
#define HC_32(c, i) HC_16(c, i), HC_16(c, i + 16)
#define HC_64(c, i) HC_32(c, i), HC_32(c, i + 32)
#define HC_NAMES_32                                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HC_NAMES_64                                                                                                    \
    HC_NAMES_32 ", "                                                                                                   \
                "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                     \
                "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HC_NAMES_96                                                                                                    \
    HC_NAMES_64 ", "                                                                                                   \
                "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                     \
                "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HC_NAMES_128                                                                                                   \
    HC_NAMES_96 ", "                                                                                                   \
                "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "         \
                "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/* c = a b^T (+ c) of 64 x 32 and N x 32 signed bytes, N = 128 or 256, c[N / 2]. Thread t of the warpgroup has in c[4 j + r] row
 * 16 (t / 32) + t % 32 / 4 (+ 8 for r >= 2), column 8 j + 2 (t % 4) + r % 2. */
static inline __device__ void hc_wgmma_s8(int32_t (&c)[32], uint64_t a, uint64_t b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {" HC_NAMES_32 "}, %32, %33, p;\n}\n"
                 : HC_16(c, 0), HC_16(c, 16)
                 : "l"(a), "l"(b), "r"((int)adds)
                 : "memory");
}
static inline __device__ void hc_wgmma_s8(int32_t (&c)[64], uint64_t a, uint64_t b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" HC_NAMES_64 "}, %64, %65, p;\n}\n"
                 : HC_64(c, 0)
                 : "l"(a), "l"(b), "r"((int)adds)
                 : "memory");
}
static inline __device__ void hc_wgmma_s8(int32_t (&c)[128], uint64_t a, uint64_t b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" HC_NAMES_128 "}, %128, %129, p;\n}\n"
                 : HC_64(c, 0), HC_64(c, 64)
                 : "l"(a), "l"(b), "r"((int)adds)
                 : "memory");
}
/* c += a b^T of 64 x 64 and N x 64 signed bytes, N = 2 x the sums of a thread. Of four neighbours in a row of a two are there, at the two
 * places that 4 bits of `places` name: thread t has those of row 16 (t / 32) + t % 32 / 4 + 8 (t % 2), columns 32 (t / 2 % 2) on. */
#define HC_WGMMA_SPARSE(SUMS, N, A, B, PLACES, ...)                                                                    \
    static inline __device__ void hc_wgmma_sparse_s8(int32_t (&c)[SUMS], uint64_t a, uint64_t b, uint32_t places) {    \
        asm volatile("wgmma.mma_async.sp.sync.aligned.m64n" #N "k64.s32.s8.s8 {" HC_NAMES_##SUMS                       \
                     "}, " A ", " B ", " PLACES ", 0, 1;\n"                                                            \
                     : __VA_ARGS__                                                                                     \
                     : "l"(a), "l"(b), "r"(places)                                                                     \
                     : "memory");                                                                                      \
    }
/* `value`, in place of places that products have read, which ended. Products read the register of their places as late as they begin, so that
 * nothing else may lie in it until then; compilers take it as read at once. `none` is 0, which they do not know. */
static inline __device__ uint32_t hc_wgmma_replace(uint32_t places, uint32_t value, uint32_t none) {
    uint32_t found;
    asm volatile("lop3.b32 %0, %1, %2, %3, 0xf8;" : "=r"(found) : "r"(value), "r"(places), "r"(none));
    return found;
}
HC_WGMMA_SPARSE(32, 64, "%32", "%33", "%34", HC_32(c, 0))
HC_WGMMA_SPARSE(64, 128, "%64", "%65", "%66", HC_64(c, 0))
HC_WGMMA_SPARSE(96, 192, "%96", "%97", "%98", HC_64(c, 0), HC_32(c, 64))
#else
uint32_t hc_shared_address(const void *shared);
void hc_fence_shared();
void hc_wgmma_fence();
void hc_wgmma_commit();
void hc_host_wgmma_wait(int pending);
void hc_host_wgmma_s8(int32_t *c, int columns, uint64_t a, uint64_t b, bool adds);
void hc_host_wgmma_sparse_s8(int32_t *c, int columns, uint64_t a, uint64_t b, uint32_t places);
static inline uint32_t hc_wgmma_replace(uint32_t places, uint32_t value, uint32_t none) {
    return value | (places & none);
}
template <int PENDING, int N> static inline void hc_wgmma_wait(int32_t (&)[N]) { hc_host_wgmma_wait(PENDING); }
template <int N> static inline void hc_wgmma_s8(int32_t (&c)[N], uint64_t a, uint64_t b, bool adds) {
    hc_host_wgmma_s8(c, 2 * N, a, b, adds);
}
template <int N> static inline void hc_wgmma_sparse_s8(int32_t (&c)[N], uint64_t a, uint64_t b, uint32_t places) {
    hc_host_wgmma_sparse_s8(c, 2 * N, a, b, places);
}
#endif

#endif
