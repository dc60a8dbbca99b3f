/* Largest magnitudes of rows, or of the whole array, of all formats: by the definition of "vsq", which has thresholds, and whose
 * unsigned formats have the largest value in place of the largest magnitude. The planner gives the format of another family without
 * options.
 */
#include "cuda/codec.h"

#define static HC_STATIC
namespace definition {
#include "formats/vsq/vsq.c"
}
#undef static

namespace {
struct maximum_functions : hc_plain_format {
    HC_MAXIMUM(vsq)
};

/* The largest magnitude of the block's contiguous float32 values, for one of the whole array. Each warp reads 4 kB at a time.
 * The first blocks read the end of the array: the encoder reads its begin next, which the L2 then has. */
static inline HC_DEVICE uint32_t hc_flat_maximum(const hc_cuda_codec &p) {
    enum { PIECES = 8 };
    const int shift = p.chunks.shift, lane = (int)threadIdx.x % 32;
    const int64_t item = (int64_t)(gridDim.x - 1 - blockIdx.x) * p.chunks.threads, first = item << shift;
    const int n = (int)hc_min(p.chunks.threads, p.chunks.all - item) << shift;
    const float *from = (const float *)p.x.data + first;
    const hc_geometry geometry = {1, 1, 4, 4, 1, 1, 4, 4, 4, 4};
    uint32_t largest = 0;
    int illegal = n;
    HC_SHORT_LOOP
    for (int at = ((int)threadIdx.x - lane) * 4 * PIECES + lane * 4; at < n; at += (int)blockDim.x * 4 * PIECES) {
        alignas(16) float values[4 * PIECES] = {};
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            if (at + i * 128 < n)
                hc_load_16(values + 4 * i, from + at + i * 128);
#pragma unroll
        for (int i = PIECES - 1; i >= 0; i--) {
            const hc_float_rows x = {values + 4 * i, HC_F32, 4, 0, 1};
            float found = 0;
            if (!maximum_functions::maximum(&p.format, &geometry, &x, NULL, &found) && illegal > at + i * 128)
                illegal = at + i * 128;
            largest = hc_larger(largest, hc_f32_bits(found));
        }
    }
    if (illegal == n)
        return largest;
    hc_refuse_row(p.illegal, HC_ROW_QUOTIENT((first + illegal) >> shift, p.chunks.per_row));
    return 0x7fc00000; /* NaN */
}

static inline HC_DEVICE uint32_t hc_chunk_maximum(const hc_cuda_codec &p) {
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, (int)threadIdx.x);
    uint32_t maximum = 0;
    if (chunk.columns > 0) {
        const hc_geometry geometry = hc_chunk_geometry(p.chunks, p.geometry, chunk);
        hc_find_maximum<maximum_functions>(p, p.format, geometry, chunk, hc_chunk_values(p, chunk.columns), &maximum);
    }
    hc_barrier();
    return maximum;
}
} // namespace

/* One atomic operation per block, or per warp whose threads have chunks of one row. */
HC_KERNEL(hc_maximum, hc_cuda_codec, 128) {
    const bool is_whole = !p.row_maxima, has_flat = is_whole && p.chunks.flat & HC_FLAT_X && p.x.dtype == HC_F32;
    uint32_t maximum = has_flat && !p.thresholds ? hc_flat_maximum(p) : hc_chunk_maximum(p);
    const int thread = (int)threadIdx.x, warps = (int)blockDim.x / 32;
    if (is_whole && blockDim.x % 32 == 0) {
        uint32_t *of_warp = (uint32_t *)hc_shared();
        maximum = hc_largest_of_warp(maximum);
        if (thread % 32 == 0)
            of_warp[thread / 32] = maximum;
        hc_barrier();
        if (thread > 0)
            return;
        for (int i = 1; i < warps; i++)
            maximum = hc_larger(maximum, of_warp[i]);
        hc_atomic_max(p.maximum, maximum);
        return;
    }
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, thread);
    bool is_leader = true;
    if (p.chunks.per_row % 32 == 0 && p.chunks.threads % 32 == 0 && blockDim.x % 32 == 0) {
        maximum = hc_largest_of_warp(maximum);
        is_leader = thread % 32 == 0;
    }
    if (is_leader && chunk.columns > 0)
        hc_atomic_max(is_whole ? p.maximum : p.row_maxima + chunk.row, maximum);
}
