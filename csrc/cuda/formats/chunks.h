/* Chunks of rows, a thread each: values and components staged in shared memory, so that both sides of global memory are touched in order.
 * What lies chunk behind chunk (HC_FLAT_*) is moved by 16 or 4 bytes, the rest one by one.
 */
#ifndef HC_CUDA_CHUNKS_H
#define HC_CUDA_CHUNKS_H

#include "cuda/definition.h"

/* A chunk that a block's thread `slot` works on. */
struct hc_chunk {
    int64_t row, number; /* of its row */
    int64_t first;       /* padded column */
    int columns, groups;
};

static inline HC_DEVICE hc_chunk hc_chunk_of(const hc_cuda_chunks &chunks, const hc_geometry &geometry, int slot) {
    const int64_t item = (int64_t)blockIdx.x * chunks.threads + slot;
    hc_chunk chunk = {0, 0, 0, 0, 0};
    if (slot >= chunks.threads || item >= chunks.all)
        return chunk;
    chunk.row = HC_ROW_QUOTIENT(item, chunks.per_row);
    chunk.number = item - chunk.row * chunks.per_row;
    chunk.first = chunk.number * chunks.columns;
    chunk.columns = (int)hc_min(chunks.columns, geometry.padded - chunk.first);
    chunk.groups = chunks.groups ? (int)(chunk.columns / geometry.group) : 1;
    return chunk;
}

/* A chunk as a row. */
static inline HC_DEVICE hc_geometry hc_chunk_geometry(const hc_cuda_chunks &chunks, const hc_geometry &whole,
                                                      const hc_chunk &chunk) {
    hc_geometry own;
    own.rows = own.runs = 1;
    own.run_length = own.columns = own.padded = own.whole_length = own.whole_columns = chunk.columns;
    own.group = chunks.groups ? whole.group : chunk.columns;
    own.groups_per_run = own.groups = chunk.groups;
    return own;
}

static inline HC_DEVICE unsigned char *hc_own(const hc_cuda_chunks &chunks, int slot, int size) {
    const int64_t values = ((int64_t)chunks.threads * chunks.ld * size + 15) / 16 * 16;
    return hc_shared() + values + (int64_t)slot * chunks.own_bytes;
}

/* A thread's components in shared memory. */
static inline HC_DEVICE hc_components hc_own_components(const hc_cuda_chunks &chunks, int slot, int size) {
    hc_components own;
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        own.part[i] = {chunks.place[i] < 0 ? NULL : hc_own(chunks, slot, size) + chunks.place[i], 0, 0};
    own.first_row = 0;
    return own;
}

/* Load a value whose dtype float32 can hold. */
static inline HC_DEVICE float hc_load_value(const char *from, int dtype) {
    if (dtype == HC_F32)
        return *(const float *)from;
    const uint16_t bits = *(const uint16_t *)from;
    const float half = hc_f16_to_f32(bits);
    return dtype == HC_F16 ? half : hc_bf16_to_f32(bits); /* a choice, not a branch */
}

/* Up to 32 threads that take a chunk together; a block has whole teams. */
static inline HC_DEVICE int hc_team() { return blockDim.x < HC_WARP ? (int)blockDim.x : HC_WARP; }

/* Calls `visit(index of the shared value, address in the view or NULL)` for all values of the block's chunks, neighbouring
 * threads for neighbouring values. */
template <typename visitor>
static inline HC_DEVICE void hc_for_values(const hc_cuda_chunks &chunks, const hc_geometry &geometry,
                                           const hc_row_view &view, visitor visit) {
    const int team = hc_team();
    for (int slot = (int)threadIdx.x / team; slot < chunks.threads; slot += (int)blockDim.x / team) {
        const hc_chunk chunk = hc_chunk_of(chunks, geometry, slot);
        if (chunk.columns == 0)
            break;
        char *row = view.data + hc_dims_offset(&view.rows, chunk.row);
        const int64_t first_run = HC_ROW_QUOTIENT(chunk.first, view.padded_run),
                      skipped = chunk.first - first_run * view.padded_run;
        HC_SHORT_LOOP
        for (int c = (int)threadIdx.x % team; c < chunk.columns; c += team) {
            int64_t run = first_run, in_run = skipped + c;
            for (; in_run >= view.padded_run; run++)
                in_run -= view.padded_run;
            char *at = row + in_run * view.column_stride + (view.runs.n ? hc_dims_offset(&view.runs, run) : 0);
            visit(slot * chunks.ld + c, in_run < view.run_length ? at : NULL);
        }
    }
}

static inline HC_DEVICE int hc_value_bytes(const hc_row_view &view) { return view.dtype == HC_F64 ? 8 : 4; }

/* Chunks of the block. */
static inline HC_DEVICE int hc_block_chunks(const hc_cuda_chunks &chunks) {
    return (int)hc_min((int64_t)chunks.threads, chunks.all - (int64_t)blockIdx.x * chunks.threads);
}

/* Calls `visit(shared values, address in the view)` for 16 bytes of a flat view at a time. `size`: bytes of a value
 * there. */
template <typename visitor>
static inline HC_DEVICE void hc_for_flat(const hc_cuda_chunks &chunks, const hc_row_view &view, int size,
                                         visitor visit) {
    const int shift = chunks.shift, n = hc_block_chunks(chunks) << shift, each = 16 / size;
    char *first = view.data + ((int64_t)blockIdx.x * chunks.threads << shift) * size;
    HC_SHORT_LOOP
    for (int i = (int)threadIdx.x * each; i < n; i += (int)blockDim.x * each)
        visit((float *)hc_shared() + (i >> shift) * chunks.ld + (i & ((1 << shift) - 1)), first + i * size);
}

struct alignas(16) hc_16_bytes {
    uint32_t word[4];
};

template <typename widen>
static inline HC_DEVICE void hc_load_flat_halves(const hc_cuda_chunks &chunks, const hc_row_view &x, widen widened) {
    hc_for_flat(chunks, x, 2, [=](float *to, const char *from) {
        const hc_16_bytes eight = *(const hc_16_bytes *)from;
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = widened((uint16_t)(eight.word[i / 2] >> i % 2 * 16));
    });
}

static inline HC_DEVICE void hc_load_flat(const hc_cuda_chunks &chunks, const hc_row_view &x) {
    if (x.dtype == HC_F32)
        hc_for_flat(chunks, x, 4, [](float *to, const char *from) {
            const hc_16_bytes four = *(const hc_16_bytes *)from;
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = hc_f32_from_bits(four.word[i]);
        });
    else if (x.dtype == HC_F16)
        hc_load_flat_halves(chunks, x, [](uint16_t bits) { return hc_f16_to_f32(bits); });
    else
        hc_load_flat_halves(chunks, x, [](uint16_t bits) { return hc_bf16_to_f32(bits); });
}

static inline HC_DEVICE void hc_store_flat(const hc_cuda_chunks &chunks, const hc_row_view &y) {
    hc_for_flat(chunks, y, 4, [](const float *from, char *to) {
        hc_16_bytes four;
#pragma unroll
        for (int i = 0; i < 4; i++)
            four.word[i] = hc_f32_bits(from[i]);
        *(hc_16_bytes *)to = four;
    });
}

static inline HC_DEVICE void hc_load_chunks(const hc_cuda_chunks &chunks, const hc_geometry &geometry,
                                            const hc_row_view &x) {
    if (chunks.flat & HC_FLAT_X)
        return hc_load_flat(chunks, x);
    const int dtype = x.dtype;
    hc_for_values(chunks, geometry, x, [=](int place, const char *from) {
        if (dtype == HC_F64)
            ((double *)hc_shared())[place] = from ? *(const double *)from : 0.0;
        else
            ((float *)hc_shared())[place] = from ? hc_load_value(from, dtype) : 0.0f;
    });
}

static inline HC_DEVICE void hc_store_chunks(const hc_cuda_chunks &chunks, const hc_geometry &geometry,
                                             const hc_row_view &y) {
    if (chunks.flat & HC_FLAT_X)
        return hc_store_flat(chunks, y);
    const bool is_double = y.dtype == HC_F64;
    hc_for_values(chunks, geometry, y, [=](int place, char *to) {
        if (!to)
            return;
        if (is_double)
            *(double *)to = ((const double *)hc_shared())[place];
        else
            *(float *)to = ((const float *)hc_shared())[place];
    });
}

/* Components that each chunk has of its own, between shared memory and where they lie chunk behind chunk, for the whole
 * block. */
template <bool stores, typename params> static inline HC_DEVICE void hc_move_parts(const params &p, int size) {
    const hc_cuda_chunks &chunks = p.chunks;
    if (!(chunks.flat & HC_FLAT_PARTS))
        return;
    const int64_t first = (int64_t)blockIdx.x * chunks.threads;
    const int all = hc_block_chunks(chunks);
    HC_SHORT_LOOP
    for (int id = 0; id < HC_N_COMPONENTS; id++) {
        const int step = chunks.step[id];
        if (chunks.place[id] < 0 || !step)
            continue;
        unsigned char *own = hc_own(chunks, 0, size) + chunks.place[id];
        uint8_t *global = p.parts.part[id].data + first * step;
        const bool has_words = step % 4 == 0;
        const int each = has_words ? step / 4 : step;
        HC_SHORT_LOOP
        for (int i = (int)threadIdx.x; i < all * each; i += (int)blockDim.x) {
            const int slot = i / each;
            unsigned char *here = own + slot * chunks.own_bytes;
            if (has_words) {
                uint32_t *word = (uint32_t *)here + (i - slot * each), *there = (uint32_t *)global + i;
                *(stores ? there : word) = *(stores ? word : there);
            } else {
                unsigned char *byte = here + (i - slot * each);
                *(stores ? global + i : byte) = *(stores ? byte : global + i);
            }
        }
    }
}

/* The rest of this thread's chunk. What chunks share comes from the first of a row, what all rows share from the first
 * row; it is read where it is. */
template <bool stores, typename params>
static inline HC_DEVICE void hc_move_own_parts(const params &p, const hc_chunk &chunk, int size) {
    const hc_cuda_chunks &chunks = p.chunks;
    const bool is_last = chunk.number == chunks.per_row - 1;
    HC_SHORT_LOOP
    for (int id = 0; id < HC_N_COMPONENTS; id++) {
        const hc_component &part = p.parts.part[id];
        const int step = chunks.step[id];
        if (chunks.place[id] < 0 || (step && (chunks.flat & HC_FLAT_PARTS)) || (!step && !stores) ||
            (!step && (chunk.number > 0 || (part.row_stride == 0 && chunk.row > 0))))
            continue;
        unsigned char *own = hc_own(chunks, (int)threadIdx.x, size) + chunks.place[id];
        uint8_t *global = part.data + chunk.row * part.row_stride + chunk.number * step;
        HC_SHORT_LOOP
        for (int i = 0, n = step && !is_last ? step : chunks.last[id]; i < n; i++)
            *(stores ? global + i : own + i) = *(stores ? own + i : global + i);
    }
}

/* A thread's components where they have been moved to shared memory; those that chunks share are where they belong. */
template <typename params>
static inline HC_DEVICE hc_components hc_moved_components(const params &p, const hc_chunk &chunk, int size) {
    hc_components own = hc_own_components(p.chunks, (int)threadIdx.x, size);
    for (int id = 0; id < HC_N_COMPONENTS; id++)
        if (p.chunks.place[id] >= 0 && !p.chunks.step[id])
            own.part[id].data = p.parts.part[id].data + chunk.row * p.parts.part[id].row_stride;
    own.first_row = chunk.row * p.geometry.groups + chunk.number * p.chunks.groups; /* with one group a row */
    return own;
}

#endif
