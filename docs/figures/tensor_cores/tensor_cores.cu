// Single instructions of a Hopper GPU's tensor cores, or chains of them: D = A B + C.
//
//     nvcc -O1 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC -o tensor_cores.so tensor_cores.cu
//
// A is (tiles, 64, K), B (tiles, 8, K), C and D (tiles, 64, 8), C of float32 or float16 as D is. A chain has K / k
// instructions, each of which adds to what the last one left. tensor_cores.py calls `run`.
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

// Each instruction with the registers of a thread: d is the sum, a and b the operands.
#define SUMS_4 "{%0,%1,%2,%3}"
#define SUMS_2 "{%0,%1}"

#define MMA_F32(NAME, SHAPE, TYPE)                                                                                     \
    struct NAME {                                                                                                      \
        static constexpr bool group = false;                                                                           \
        static constexpr int row_bytes = 32, sums = 4;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *b, uint64_t) {                      \
            asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 " SUMS_4                        \
                         ", {%4,%5,%6,%7}, {%8,%9}, " SUMS_4 ";"                                                       \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                          \
        }                                                                                                              \
    };
#define MMA_F32_HALF(NAME, SHAPE, TYPE)                                                                                \
    struct NAME {                                                                                                      \
        static constexpr bool group = false;                                                                           \
        static constexpr int row_bytes = 16, sums = 4;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *b, uint64_t) {                      \
            asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 " SUMS_4                        \
                         ", {%4,%5}, {%6}, " SUMS_4 ";"                                                                \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                                           \
        }                                                                                                              \
    };
#define MMA_F16(NAME, SHAPE, TYPE)                                                                                     \
    struct NAME {                                                                                                      \
        static constexpr bool group = false;                                                                           \
        static constexpr int row_bytes = 32, sums = 2;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *b, uint64_t) {                      \
            asm volatile("mma.sync.aligned." SHAPE ".row.col.f16." TYPE "." TYPE ".f16 " SUMS_2                        \
                         ", {%2,%3,%4,%5}, {%6,%7}, " SUMS_2 ";"                                                       \
                         : "+r"(d[0]), "+r"(d[1])                                                                      \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                          \
        }                                                                                                              \
    };
#define MMA_F16_HALF(NAME, SHAPE, TYPE)                                                                                \
    struct NAME {                                                                                                      \
        static constexpr bool group = false;                                                                           \
        static constexpr int row_bytes = 16, sums = 2;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *b, uint64_t) {                      \
            asm volatile("mma.sync.aligned." SHAPE ".row.col.f16." TYPE "." TYPE ".f16 " SUMS_2                        \
                         ", {%2,%3}, {%4}, " SUMS_2 ";"                                                                \
                         : "+r"(d[0]), "+r"(d[1])                                                                      \
                         : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                                           \
        }                                                                                                              \
    };
// A from registers, B from shared memory. TAIL: ", 0" where B could be transposed.
#define WGMMA_F32(NAME, SHAPE, TYPE, TAIL)                                                                             \
    struct NAME {                                                                                                      \
        static constexpr bool group = true;                                                                            \
        static constexpr int row_bytes = 32, sums = 4;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *, uint64_t b) {                     \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                    \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;"                                                        \
                         "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " " SUMS_4                        \
                         ", {%4,%5,%6,%7}, %8, p, 1, 1" TAIL "; }"                                                     \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                        \
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                             \
            asm volatile("wgmma.wait_group.sync.aligned 0;"                                                            \
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])::"memory");                                  \
        }                                                                                                              \
    };
#define WGMMA_F16(NAME, SHAPE, TYPE, TAIL)                                                                             \
    struct NAME {                                                                                                      \
        static constexpr bool group = true;                                                                            \
        static constexpr int row_bytes = 32, sums = 2;                                                                 \
        __device__ static void run(uint32_t *d, const uint32_t *a, const uint32_t *, uint64_t b) {                     \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                    \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;"                                                        \
                         "wgmma.mma_async.sync.aligned." SHAPE ".f16." TYPE "." TYPE " " SUMS_2                        \
                         ", {%2,%3,%4,%5}, %6, p, 1, 1" TAIL "; }"                                                     \
                         : "+r"(d[0]), "+r"(d[1])                                                                      \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                        \
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                             \
            asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(d[0]), "+r"(d[1])::"memory");                       \
        }                                                                                                              \
    };

MMA_F32(mma_f16_k16, "m16n8k16", "f16")
MMA_F32_HALF(mma_f16_k8, "m16n8k8", "f16")
MMA_F16(mma_f16_k16_f16, "m16n8k16", "f16")
MMA_F16_HALF(mma_f16_k8_f16, "m16n8k8", "f16")
MMA_F32(mma_bf16_k16, "m16n8k16", "bf16")
MMA_F32_HALF(mma_bf16_k8, "m16n8k8", "bf16")
MMA_F32(mma_tf32_k8, "m16n8k8", "tf32")
MMA_F32_HALF(mma_tf32_k4, "m16n8k4", "tf32")
MMA_F32(mma_e4m3_k32, "m16n8k32", "e4m3")
MMA_F32(mma_e5m2_k32, "m16n8k32", "e5m2")
MMA_F16(mma_e4m3_k32_f16, "m16n8k32", "e4m3")
MMA_F16(mma_e5m2_k32_f16, "m16n8k32", "e5m2")
WGMMA_F32(wgmma_f16_k16, "m64n8k16", "f16", ", 0")
WGMMA_F16(wgmma_f16_k16_f16, "m64n8k16", "f16", ", 0")
WGMMA_F32(wgmma_bf16_k16, "m64n8k16", "bf16", ", 0")
WGMMA_F32(wgmma_tf32_k8, "m64n8k8", "tf32", "")
WGMMA_F32(wgmma_e4m3_k32, "m64n8k32", "e4m3", "")
WGMMA_F32(wgmma_e5m2_k32, "m64n8k32", "e5m2", "")
WGMMA_F16(wgmma_e4m3_k32_f16, "m64n8k32", "e4m3", "")
WGMMA_F16(wgmma_e5m2_k32_f16, "m64n8k32", "e5m2", "")

static constexpr int ROWS = 64, COLUMNS = 8, LARGEST_ROW = 4096;

// Shared memory at `b` as an operand that is not swizzled: 8 rows of 16 bytes, and the next 16 bytes of them behind.
__device__ uint64_t descriptor(const void *b) {
    const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(b)), offset = 128 >> 4;
    return (address >> 4 & 0x3fff) | offset << 16 | offset << 32;
}

// A block of 4 warps has one tile, a warp 16 rows of it. `bytes` is a row of A or B.
template <class I> __global__ void multiply(const uint8_t *a, const uint8_t *b, const uint8_t *c, uint8_t *d, int bytes) {
    __shared__ alignas(128) uint8_t shared[COLUMNS * LARGEST_ROW];
    constexpr int sum_bytes = I::sums == 4 ? 4 : 2;
    const int thread = threadIdx.x, row = thread / 32 * 16 + thread % 32 / 4, part = thread % 4;
    const int64_t tile = blockIdx.x;
    a += tile * ROWS * bytes;
    b += tile * COLUMNS * bytes;
    c += tile * ROWS * COLUMNS * sum_bytes;
    d += tile * ROWS * COLUMNS * sum_bytes;
    if (I::group) {
        for (int i = thread; i < COLUMNS * bytes; i += blockDim.x) {
            const int column = i / bytes, at = i % bytes;
            shared[at / 16 * 128 + column * 16 + at % 16] = b[i];
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    }
    uint32_t sums[4];
    for (int half = 0; half < 2; half++) // of 16 rows; a register holds one value of 4 bytes or two of 2
        for (int i = 0; i < I::sums / 2; i++)
            memcpy(&sums[half * (I::sums / 2) + i],
                   c + ((row + 8 * half) * COLUMNS + 2 * part) * sum_bytes + 4 * i, 4);
    for (int at = 0; at < bytes; at += I::row_bytes) {
        uint32_t left[4], right[2];
        for (int i = 0; i < I::row_bytes / 8; i++)
            memcpy(&left[i], a + (row + i % 2 * 8) * bytes + at + i / 2 * 16 + 4 * part, 4);
        for (int i = 0; i < I::row_bytes / 16; i++)
            memcpy(&right[i], b + thread % 32 / 4 * bytes + at + i * 16 + 4 * part, 4);
        I::run(sums, left, right, descriptor(shared + at * COLUMNS));
    }
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < I::sums / 2; i++)
            memcpy(d + ((row + 8 * half) * COLUMNS + 2 * part) * sum_bytes + 4 * i,
                   &sums[half * (I::sums / 2) + i], 4);
}

typedef void (*Kernel)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *, int);

struct Entry {
    const char *name;
    Kernel kernel;
    int row_bytes, sum_bytes;
};

#define ENTRY(NAME) {#NAME, multiply<NAME>, NAME::row_bytes, NAME::sums == 4 ? 4 : 2}
static const Entry ENTRIES[] = {
    ENTRY(mma_f16_k16),      ENTRY(mma_f16_k8),         ENTRY(mma_f16_k16_f16),    ENTRY(mma_f16_k8_f16),
    ENTRY(mma_bf16_k16),     ENTRY(mma_bf16_k8),        ENTRY(mma_tf32_k8),        ENTRY(mma_tf32_k4),
    ENTRY(mma_e4m3_k32),     ENTRY(mma_e5m2_k32),       ENTRY(mma_e4m3_k32_f16),   ENTRY(mma_e5m2_k32_f16),
    ENTRY(wgmma_f16_k16),    ENTRY(wgmma_f16_k16_f16),  ENTRY(wgmma_bf16_k16),     ENTRY(wgmma_tf32_k8),
    ENTRY(wgmma_e4m3_k32),   ENTRY(wgmma_e5m2_k32),     ENTRY(wgmma_e4m3_k32_f16), ENTRY(wgmma_e5m2_k32_f16),
};

// Multiplies arrays in host memory, rows of A and B `bytes` long. Returns nullptr or what went wrong.
extern "C" const char *run(const char *name, int tiles, int bytes, const void *a, const void *b, const void *c, void *d) {
    const Entry *found = nullptr;
    for (const Entry &entry : ENTRIES)
        found = strcmp(entry.name, name) == 0 ? &entry : found;
    if (!found)
        return "no such instruction";
    if (tiles < 1 || bytes < 1 || bytes > LARGEST_ROW || bytes % found->row_bytes)
        return "no such number of tiles, or of bytes of a row";
    const size_t left = (size_t)tiles * ROWS * bytes, right = (size_t)tiles * COLUMNS * bytes,
                 sums = (size_t)tiles * ROWS * COLUMNS * found->sum_bytes;
    uint8_t *memory = nullptr; // A, B, C, D
    cudaError_t status = cudaMalloc(&memory, left + right + 2 * sums);
    const auto step = [&status](cudaError_t next) { status = status == cudaSuccess ? next : status; };
    if (status == cudaSuccess) {
        uint8_t *const in_b = memory + left, *const in_c = in_b + right, *const out = in_c + sums;
        step(cudaMemcpy(memory, a, left, cudaMemcpyHostToDevice));
        step(cudaMemcpy(in_b, b, right, cudaMemcpyHostToDevice));
        step(cudaMemcpy(in_c, c, sums, cudaMemcpyHostToDevice));
        step(cudaMemset(out, 0xff, sums));
        found->kernel<<<tiles, 128>>>(memory, in_b, in_c, out, bytes);
        step(cudaGetLastError());
        step(cudaMemcpy(d, out, sums, cudaMemcpyDeviceToHost));
        step(cudaFree(memory));
    }
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
