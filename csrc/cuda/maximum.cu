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

/* The largest magnitude of contiguous float32 values: of those of the chunks of the thread's warp, or of all of the block. Each warp reads 4 kB at a time.
 * The first blocks read the end of the array: the encoder reads its begin next, which the L2 then has. */
static inline HC_DEVICE uint32_t hc_flat_maximum(const hc_cuda_codec &p) {
    enum { PIECES = 8, EACH = 4 * PIECES };
    const int shift = p.chunks.shift, lane = hc_lane();
    const int64_t item = (int64_t)(gridDim.x - 1 - blockIdx.x) * p.chunks.threads, first = item << shift;
    const int n = (int)hc_min(p.chunks.threads, p.chunks.all - item) << shift;
    const float *from = (const float *)p.x.data + first;
    const hc_geometry geometry = {1, 1, EACH, EACH, 1, 1, EACH, EACH, EACH, EACH};
    float largest = 0;
    HC_SHORT_LOOP
    for (int at = ((int)threadIdx.x - lane) * EACH + lane * 4; at < n; at += (int)blockDim.x * EACH) {
        alignas(16) float values[EACH] = {};
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            if (at + i * 128 < n)
                hc_load_16(values + 4 * i, from + at + i * 128);
        const hc_float_rows x = {values, HC_F32, EACH, 0, 1};
        float found = 0;
        if (maximum_functions::maximum(&p.format, &geometry, &x, NULL, &found)) {
            largest = fmaxf(largest, found);
            continue;
        }
        HC_SHORT_LOOP
        for (int i = at; i < n; i = i % 4 == 3 ? i + 125 : i + 1)
            if (!hc_is_legal(from[i])) {
                hc_refuse_row(p.illegal, HC_ROW_QUOTIENT((first + i) >> shift, p.chunks.per_row));
                return 0x7fc00000; /* NaN */
            }
    }
    return hc_f32_bits(largest);
}

/* The largest magnitude of the thread's chunk, or its largest threshold. */
static inline HC_DEVICE uint32_t hc_chunk_maximum(const hc_cuda_codec &p) {
    enum { EACH = 4 };
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, (int)threadIdx.x);
    hc_float_rows x = hc_chunk_values(p, chunk.columns);
    const int each = chunk.columns % EACH ? 1 : EACH;
    const hc_geometry one = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, four = {1, 1, EACH, EACH, 1, 1, EACH, EACH, EACH, EACH};
    uint32_t largest = 0;
    HC_SHORT_LOOP
    for (int c = 0; c < chunk.columns; c += each) {
        float found = 0;
        const bool legal = each == 1 ? maximum_functions::maximum(&p.format, &one, &x, NULL, &found)
                                     : maximum_functions::maximum(&p.format, &four, &x, NULL, &found);
        if (!legal)
            hc_refuse_row(p.illegal, chunk.row);
        largest = hc_larger(largest, legal ? hc_f32_bits(found) : 0x7fc00000 /* NaN, the largest of all */);
        x.data = (const char *)x.data + each * hc_value_bytes(p.x);
    }
    hc_barrier();
    if (!p.thresholds || chunk.columns == 0)
        return largest;
    const float *thresholds = p.thresholds + chunk.row * p.geometry.groups + chunk.number * p.chunks.groups;
    float threshold = 0;
    HC_SHORT_LOOP
    for (int i = 0; i < chunk.groups; i++)
        threshold = fmaxf(threshold, thresholds[i]);
    return largest < 0x7f800000 ? hc_f32_bits(threshold) : largest;
}
} // namespace

/* One atomic operation per block, or per warp whose threads have chunks of one row. */
HC_KERNEL(hc_maximum, hc_cuda_codec, 128) {
    const hc_cuda_chunks &chunks = p.chunks;
    const int thread = (int)threadIdx.x, warps = (int)blockDim.x / HC_WARP;
    const bool is_whole = !p.row_maxima, has_warps = blockDim.x % HC_WARP == 0;
    const bool has_rows = has_warps && chunks.per_row % HC_WARP == 0; /* the 32 chunks of a warp are of one row */
    const bool is_flat = chunks.flat & HC_FLAT_X && p.x.dtype == HC_F32 && !p.thresholds && has_warps &&
                         (is_whole || (has_rows && chunks.shift == 5));
    uint32_t maximum = is_flat ? hc_flat_maximum(p) : hc_chunk_maximum(p);
    if (has_warps && (is_whole || has_rows))
        maximum = hc_largest_of_warp(maximum);
    if (is_whole && has_warps) {
        uint32_t *of_warp = (uint32_t *)hc_shared();
        if (thread % HC_WARP == 0)
            of_warp[thread / HC_WARP] = maximum;
        hc_barrier();
        if (thread > 0)
            return;
        HC_SHORT_LOOP
        for (int i = 1; i < warps; i++)
            maximum = hc_larger(maximum, of_warp[i]);
        hc_atomic_max(p.maximum, maximum);
        return;
    }
    const int64_t item = (int64_t)(is_flat ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * chunks.threads + thread;
    if (item < chunks.all && (!has_rows || thread % HC_WARP == 0))
        hc_atomic_max(is_whole ? p.maximum : p.row_maxima + HC_ROW_QUOTIENT(item, chunks.per_row), maximum);
}
