/* The CUDA that the kernels use, on the host: a kernel runs block by block, its threads as fibres that yield at barriers.
 *
 *   barriers     the whole block must arrive            shared memory   filled with junk, between guard zones
 *   collectives  exact functions over the 32 lanes of a warp, which must arrive at the same one
 *   copies       arrive at their wait, and not before; until then their target holds junk
 */
#ifndef HC_CUDA_HOST_DEVICE_H
#define HC_CUDA_HOST_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hc_dim3 {
    unsigned x, y, z;
};
extern hc_dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the fibre that runs */

typedef void hc_host_kernel_fn(const void *params);
/* A kernel of this program, by its name. */
struct hc_host_kernel {
    hc_host_kernel(const char *name, const char *file, size_t params_bytes, unsigned threads, hc_host_kernel_fn *run);
};

#define HC_DEVICE
#define HC_KERNEL(name, type, threads, ...)                                                                            \
    static void name(const type &p);                                                                                   \
    static const hc_host_kernel name##_entry(#name, __BASE_FILE__, sizeof(type), threads,                              \
                                             [](const void *params) { name(*(const type *)params); });                 \
    static void name(const type &p)

/* The launch that runs, for kernels that an interpreter runs (tests/cuda/ptx). */
struct hc_host_launch {
    const char *kernel;
    size_t shared_bytes;
    uint32_t order;
    uint64_t blocks; /* begun so far, those of other launches too */
};
extern hc_host_launch hc_host_running;
/* Ends the launch with a sentence. */
[[noreturn]] void hc_host_stop(const char *sentence);

unsigned char *hc_shared();
void hc_barrier();
void hc_load_16(float to[4], const void *from);
void hc_load_16_once(uint32_t to[4], const void *from);
void hc_copy_16(void *shared, const void *global);
void hc_copy_16_or_zeros(void *shared, const void *global, bool is_valid);
static inline void hc_copy_16_of_many(void *shared, const void *global, bool is_valid) {
    hc_copy_16_or_zeros(shared, global, is_valid);
}
void hc_copy_commit();
void hc_store_16(void *shared, const void *from);
void hc_host_copy_wait(int pending);
template <int N> static inline void hc_copy_wait() { hc_host_copy_wait(N); }
static inline void hc_atomic_max(uint32_t *at, uint32_t value) { *at = *at > value ? *at : value; }
static inline void hc_atomic_or(uint32_t *at, uint32_t value) { *at |= value; }
float hc_half_value(uint16_t half);
static inline uint32_t hc_and_xor(uint32_t a, uint32_t b, uint32_t c) { return (a & b) ^ c; }
/* The same value, which compilers on a device keep in a register. */
static inline uint32_t hc_held(uint32_t value) { return value; }
static inline uint32_t hc_permute_bytes(uint32_t a, uint32_t b, uint32_t which) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t found = 0;
    for (int i = 0; i < 4; i++)
        found |= (uint32_t)(bytes >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return found;
}

/* Inputs and results of the lanes in a collective. */
struct hc_host_lanes {
    unsigned char in[32][64], out[32][64];
};
typedef void hc_host_collective_fn(hc_host_lanes *lanes);
void hc_host_collective(hc_host_collective_fn *what, const char *name, const void *in, size_t in_bytes, void *out,
                        size_t out_bytes);

void hc_load_matrix_x4(uint32_t to[4], const void *shared);
void hc_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2]);
void hc_mma_bytes(int32_t c[4], const uint32_t a[4], const uint32_t b[2], bool a_is_signed, bool b_is_signed);
void hc_mma_sparse_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[4], uint32_t places);
void hc_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]); /* rounds each sum once */
uint32_t hc_shuffle_xor(uint32_t value, int mask);

#endif
