/* Encoding and decoding on the device: a thread a chunk, by the format's own definition, values and components staged in
 * shared memory so that both sides of global memory are touched in order.
 *
 *   x -> shared values (thread, column) -> definition -> shared components (thread, byte) -> components, and back
 *
 * What lies chunk behind chunk (HC_FLAT_*) is moved by 16 or 4 bytes, the rest one by one. A thread sees its chunk as a
 * row of its own. What the whole row or array must give first, its largest magnitude, becomes the threshold of the row, or
 * the coarse scale. hc_maximum has found it; where a block has whole rows, `encode` does, behind the components:
 *
 *   values | components | maxima of the block's rows
 */
#ifndef HC_CUDA_CODEC_H
#define HC_CUDA_CODEC_H

#include "cuda/definition.h"
#include "cuda/kept.h"

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

/* Shared by formats that need nothing of the whole row or array, or only its largest magnitude as a threshold. */
struct hc_plain_format {
    static constexpr bool has_integers = false, is_quick = false, is_quick_by_chunks = false, has_thresholds = true,
                          has_table = false, has_row_maximum = true; /* of kernels of known.h */
    /* Kernels of few vectors whose loops over them are short code, with sums in local memory: they meet formats or shapes that are rare. */
    static constexpr bool is_rolled = false, is_kept_rolled = false;
    static constexpr bool has_kept_integers = true; /* those of a pattern */
    static HC_DEVICE void finish(const hc_format *, hc_encode_state *) {}
    static HC_DEVICE bool maximum_is_coarse(const hc_format *) { return false; }
    /* Bit c of column c: a value that is refused and that no scale makes NaN. */
    static HC_DEVICE uint32_t lost(const hc_format *, const hc_float_rows *, int) { return 0; }
    static HC_DEVICE hc_format of_chunk(const hc_format *format) { return *format; }
    static HC_DEVICE bool maximum(const hc_format *, const hc_geometry *geometry, const hc_float_rows *x, const float *,
                                  float *found) {
        bool legal = true;
        *found = hc_group_absmax(x, 0, 0, geometry->padded, &legal);
        return legal;
    }
};
/* The functions of a definition that stands in the namespace `definition`. */
#define HC_MAXIMUM(family)                                                                                             \
    static HC_DEVICE void finish(const hc_format *format, hc_encode_state *state) {                                    \
        definition::family##_finish(format, 0, state);                                                                 \
    }                                                                                                                  \
    static HC_DEVICE bool maximum(const hc_format *format, const hc_geometry *geometry, const hc_float_rows *x,        \
                                  const float *thresholds, float *found) {                                             \
        hc_encode_state state = {0, 0, NULL, geometry, NULL};                                                          \
        const int64_t illegal = definition::family##_observe(format, geometry, 0, x, thresholds, &state);              \
        *found = state.maximum;                                                                                        \
        return illegal == HC_DONE;                                                                                     \
    }
#define HC_DECODES(family)                                                                                             \
    static HC_DEVICE void decode(const hc_format *format, const hc_geometry *geometry, const hc_components *parts,     \
                                 const hc_tile *tile, float *values, int64_t ld) {                                     \
        definition::family##_decode(format, geometry, parts, tile, values, ld);                                        \
    }                                                                                                                  \
    static HC_DEVICE void decode_f64(const hc_format *format, const hc_geometry *geometry, const hc_components *parts, \
                                     const hc_tile *tile, double *values, int64_t ld) {                                \
        definition::family##_decode_f64(format, geometry, parts, tile, values, ld);                                    \
    }
#define HC_HAS_INTEGERS(family)                                                                                        \
    static constexpr bool has_integers = true;                                                                         \
    static HC_DEVICE void decode_int(const hc_format *format, const hc_geometry *geometry, const hc_components *parts, \
                                     const hc_tile *tile, hc_int_mode mode, const hc_int_tile *out) {                  \
        definition::family##_decode_int(format, geometry, parts, tile, mode, out);                                     \
    }
#define HC_HAS_CODES(family)                                                                                           \
    static HC_DEVICE void decode_codes(const hc_format *format, const hc_geometry *geometry,                           \
                                       const hc_components *parts, const hc_tile *tile, const hc_code_tile *out) {     \
        definition::family##_decode_codes(format, geometry, parts, tile, out);                                         \
    }
#define HC_ENCODES(function)                                                                                           \
    static HC_DEVICE int64_t encode(const hc_format *format, const hc_geometry *geometry,                              \
                                    const hc_encode_state *state, const hc_float_rows *x, const float *thresholds,     \
                                    const hc_components *out) {                                                        \
        return definition::function(format, geometry, state, x, thresholds, out);                                      \
    }
#define HC_ENCODES_QUICKLY(function)                                                                                   \
    static constexpr bool is_quick = true;                                                                             \
    static HC_DEVICE bool encode_quickly(const uint32_t *, const hc_format *format, const hc_geometry *geometry,       \
                                         const hc_encode_state *state, const hc_float_rows *x,                         \
                                         const float *thresholds, const hc_components *out) {                          \
        return quick::function(format, geometry, state, x, thresholds, out) == HC_DONE;                                \
    }

/* format: its functions, as a codec_<family>.cu names them. */
template <typename format>
static inline HC_DEVICE bool hc_encode_chunk(const hc_cuda_codec &p, const hc_format &whole,
                                             const hc_geometry &geometry, const hc_chunk &chunk, const hc_float_rows &x,
                                             const hc_components &own, const uint32_t *row_maximum_bits) {
    hc_encode_state state = {0, 0, NULL, &geometry, NULL};
    hc_format of_chunk = whole;
    const float *thresholds = p.thresholds ? p.thresholds + chunk.row * p.geometry.groups : NULL;
    if (thresholds && p.chunks.groups)
        thresholds += chunk.number * p.chunks.groups;
    float row_maximum = 0;
    if (row_maximum_bits) {
        row_maximum = hc_f32_from_bits(*row_maximum_bits);
        if (!format::maximum_is_coarse(&whole))
            thresholds = &row_maximum;
        else
            of_chunk = format::of_chunk(&whole);
    }
    state.maximum = row_maximum_bits ? row_maximum : p.maximum ? hc_f32_from_bits(*p.maximum) : 0;
    format::finish(&of_chunk, &state);
    if constexpr (format::is_quick_by_chunks)
        if (format::encode_quickly(NULL, &of_chunk, &geometry, &state, &x, thresholds, &own))
            return true;
    return format::encode(&of_chunk, &geometry, &state, &x, thresholds, &own) == HC_DONE;
}

/* The values of this thread's chunk in shared memory. */
static inline HC_DEVICE hc_float_rows hc_chunk_values(const hc_cuda_codec &p, int columns) {
    const int size = hc_value_bytes(p.x);
    return {hc_shared() + (int)threadIdx.x * p.chunks.ld * size, size == 8 ? HC_F64 : HC_F32, columns, 0, 1};
}

static inline HC_DEVICE void hc_refuse_row(hc_cuda_illegal *illegal, int64_t row) {
    /* 2^32 - 1 - row, so that the largest is the first row */
    if (illegal)
        hc_atomic_max(illegal, (uint32_t)(row < 0xfffffffe ? 0xffffffff - row : 1));
}

/* The largest magnitude of this thread's chunk. NaN is the largest of all. */
template <typename format>
static inline HC_DEVICE void hc_find_maximum(const hc_cuda_codec &p, const hc_format &whole,
                                             const hc_geometry &geometry, const hc_chunk &chunk, const hc_float_rows &x,
                                             uint32_t *found) {
    const float *thresholds = p.thresholds ? p.thresholds + chunk.row * p.geometry.groups : NULL;
    if (thresholds && p.chunks.groups)
        thresholds += chunk.number * p.chunks.groups;
    float maximum = 0;
    if (!format::maximum(&whole, &geometry, &x, thresholds, &maximum)) {
        hc_refuse_row(p.illegal, chunk.row);
        maximum = hc_f32_from_bits(0x7fc00000);
    }
    *found = hc_f32_bits(maximum);
}

/* Where hc_cuda_integer_rows has a column of a segment with `for_nibbles`. */
static inline HC_DEVICE uint32_t hc_nibble_place(uint32_t at) {
    return at / 32 * 32 + at % 2 * 16 + at / 8 % 4 * 4 + at / 2 % 4;
}

/* n bytes of shared memory to global memory, by words where both lie on words. */
static inline HC_DEVICE void hc_store_bytes(int8_t *to, const int8_t *from, int n) {
    int i = 0;
    if (((uintptr_t)to | (uintptr_t)from) % 4 == 0) {
        HC_SHORT_LOOP
        for (; i + 16 <= n && (uintptr_t)to % 16 == 0; i += 16) {
            const uint32_t *word = (const uint32_t *)(from + i);
            *(hc_16_bytes *)(to + i) = {{word[0], word[1], word[2], word[3]}};
        }
        HC_SHORT_LOOP
        for (; i + 4 <= n; i += 4)
            *(uint32_t *)(to + i) = *(const uint32_t *)(from + i);
    }
    HC_SHORT_LOOP
    for (; i < n; i++)
        to[i] = from[i];
}

/* Integers of a chunk without a pattern: pieces that end with a run or a segment. */
template <typename params>
static inline HC_DEVICE void hc_store_integers(const params &p, const hc_chunk &chunk, const int8_t *values, int ld,
                                               const float *scales) {
    const hc_cuda_integer_rows &to = p.to;
    const hc_geometry &g = p.geometry;
    const int64_t padded_run = g.runs > 1 ? HC_ROW_QUOTIENT(g.padded, g.runs) : g.padded;
    const int64_t group = to.per_run ? to.group : g.whole_length;
    int64_t run = g.runs > 1 ? HC_ROW_QUOTIENT(chunk.first, padded_run) : 0, in_run = chunk.first - run * padded_run;
    HC_SHORT_LOOP
    for (int c = 0; c < chunk.columns;) {
        const int64_t in_segment = to.per_run ? HC_ROW_QUOTIENT(in_run, group) : 0;
        const int64_t at = in_run - in_segment * group, segment = run * to.per_run + in_segment;
        const int64_t left = hc_min(group - at, g.run_length - in_run);
        const int n = left > 0 ? (int)hc_min(left, chunk.columns - c) : 0;
        if (n > 0 && to.mode == HC_INT_GROUPED && at == 0 && (to.per_run || run == 0))
            to.scales[chunk.row * to.segments + segment] = scales[p.chunks.groups ? c / (int)g.group : 0];
        /* of a row with one segment, a column of the row */
        const int64_t place = to.per_run ? at : run * g.whole_length + at;
        HC_SHORT_LOOP
        for (int limb = 0; limb < to.n_limbs && !to.scales_alone; limb++) {
            int8_t *row = to.integers + (limb * g.rows + chunk.row) * to.ld + segment * to.length;
            const int8_t *from = values + limb * ld + c;
            if (!to.for_nibbles) {
                hc_store_bytes(row + place, from, n);
                continue;
            }
            HC_SHORT_LOOP
            for (int i = 0; i < n; i++)
                row[hc_nibble_place((uint32_t)place + (uint32_t)i)] = from[i];
        }
        c += n, in_run += n;
        if (in_run >= g.run_length) { /* the rest of the run is padding */
            c += (int)hc_min(padded_run - in_run, chunk.columns - c);
            in_run = 0;
            run++;
        }
    }
}

/* Those of a pattern. The first kept value of a block stands for it where a segment begins. */
template <typename params>
static inline HC_DEVICE void hc_store_kept_integers(const params &p, const hc_chunk &chunk, const int8_t *values,
                                                    int ld, const float *scales) {
    const hc_cuda_integer_rows &to = p.to;
    const int64_t padded_run = HC_ROW_QUOTIENT(p.geometry.padded, p.geometry.runs);
    for (int c = 0; c < chunk.columns; c++) {
        const int64_t column = chunk.first + c, run = HC_ROW_QUOTIENT(column, padded_run),
                      kept = column - run * padded_run;
        if (kept >= p.geometry.run_length)
            continue;
        const int64_t in_run = hc_kept_column(p.format, p.geometry, p.parts.part[HC_METADATA], chunk.row, run,
                                              kept); /* in whole columns */
        const int64_t begin = HC_ROW_QUOTIENT(kept, p.format.n) * p.format.m;
        const bool is_first = (uint32_t)kept % (uint32_t)p.format.n == 0;
        const int64_t in_segment = to.per_run ? HC_ROW_QUOTIENT(begin, to.group) : 0,
                      segment = run * to.per_run + in_segment;
        if (to.mode == HC_INT_GROUPED && is_first && (to.per_run ? begin == in_segment * to.group : column == 0))
            to.scales[chunk.row * to.segments + segment] = scales[p.chunks.groups ? c / (int)p.geometry.group : 0];
        /* the last block of a run may reach beyond it, where its values are zeros */
        if (to.scales_alone || (in_run >= p.geometry.whole_length && !to.metadata))
            continue;
        /* of a row with one segment, a column of the row */
        const int64_t logical = to.per_run ? in_run : run * p.geometry.whole_length + in_run;
        const int64_t at = to.per_run ? in_run - in_segment * to.group : logical;
        const int64_t place = to.for_nibbles ? hc_nibble_place((uint32_t)at) : at;
        if (to.metadata) {
            const int64_t whole = segment * to.length + at, block = whole / 4;
            to.integers[chunk.row * (to.ld / 2) + block * 2 + kept % 2] = values[c];
            hc_atomic_or(to.metadata + chunk.row * (to.ld / 32) + block / 8, (uint32_t)(whole % 4)
                                                                                 << (block % 8 * 4 + kept % 2 * 2));
            continue;
        }
        for (int limb = 0; limb < to.n_limbs; limb++)
            to.integers[(limb * p.geometry.rows + chunk.row) * to.ld + segment * to.length + place] =
                values[limb * ld + c];
    }
}

/* The integers of a chunk, decoded to `own_values` and `own_scales` in shared memory, to their places among the segments. */
template <typename format, bool is_stored, typename params>
static inline HC_DEVICE void hc_write_integers(const params &p, const hc_geometry &geometry, const hc_chunk &chunk,
                                               const hc_components &own, void *own_values, void *own_scales) {
    int8_t *values = (int8_t *)own_values;
    float *scales = (float *)own_scales, row_scale = 0;
    const int ld = hc_cuda_integers_ld(p.chunks.columns);
    const bool scales_alone = is_stored && p.to.scales_alone && chunk.groups > 0; /* one value of each group */
    const int each = scales_alone ? (int)geometry.group : chunk.columns;
    for (int first = 0; first < chunk.columns; first += each) {
        const hc_tile tile = {0, 1, first, scales_alone ? 1 : chunk.columns};
        float *own_scale = scales_alone ? scales + first / each : scales;
        const hc_int_tile out = {{values, values + ld, values + 2 * ld}, ld, own_scale, chunk.groups, &row_scale};
        format::decode_int(&p.format, &geometry, &own, &tile, (hc_int_mode)p.to.mode, &out);
    }
    if (p.to.mode == HC_INT_FOLDED && chunk.number == 0)
        p.to.scales[chunk.row] = row_scale;
    if constexpr (is_stored && format::has_kept_integers)
        if (p.format.m)
            return hc_store_kept_integers(p, chunk, values, ld, scales);
    hc_store_integers(p, chunk, values, ld, scales);
}

template <typename format> static inline HC_DEVICE void hc_integers_block(const hc_cuda_integers &p) {
    const int slot = (int)threadIdx.x, size = p.to.n_limbs;
    hc_move_parts<false>(p, size);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    if (chunk.columns == 0)
        return;
    const hc_geometry geometry = hc_chunk_geometry(p.chunks, p.geometry, chunk);
    hc_move_own_parts<false>(p, chunk, size);
    const hc_components own = hc_moved_components(p, chunk, size);
    hc_write_integers<format, true>(p, geometry, chunk, own, hc_shared() + slot * p.chunks.ld * size,
                                    hc_own(p.chunks, slot, size) + p.to.own_scales);
}

/* Encodes; where there is a y or rows of integers, writes these and keeps no component. */
template <typename format> static inline HC_DEVICE void hc_encode_block(const hc_cuda_codec &p) {
    const int slot = (int)threadIdx.x, size = hc_value_bytes(p.x), ld = p.chunks.ld;
    const bool is_fake = p.y.data != NULL;
    uint32_t *found = (uint32_t *)hc_own(p.chunks, p.chunks.threads, size);
    if (slot < p.chunks.rows)
        found[slot] = 0;
    hc_load_chunks(p.chunks, p.geometry, p.x);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    const hc_geometry geometry = hc_chunk_geometry(p.chunks, p.geometry, chunk);
    const hc_float_rows x = hc_chunk_values(p, chunk.columns);
    uint32_t *row_maximum = p.row_maxima ? p.row_maxima + chunk.row : NULL;
    if (p.chunks.rows) {
        row_maximum = found + slot / p.chunks.per_row;
        if (chunk.columns > 0) {
            uint32_t maximum;
            hc_find_maximum<format>(p, p.format, geometry, chunk, x, &maximum);
            hc_atomic_max(row_maximum, maximum);
        }
        hc_barrier();
    }
    if (chunk.columns > 0) {
        const hc_components own = hc_own_components(p.chunks, slot, size);
        uint32_t lost = 0;
        if (!hc_encode_chunk<format>(p, p.format, geometry, chunk, x, own, row_maximum)) {
            hc_refuse_row(p.illegal, chunk.row);
            lost = format::lost(&p.format, &x, chunk.columns);
        }
        /* integers and rounded values take the place of the values, which nothing reads again */
        if (p.to.n_limbs) {
            if constexpr (format::has_integers)
                hc_write_integers<format, false>(p, geometry, chunk, own, hc_shared() + slot * ld * size,
                                                 hc_own(p.chunks, slot, size) + p.to.own_scales);
        } else if (is_fake) {
            const hc_tile tile = {0, 1, 0, chunk.columns};
            float *values = (float *)(hc_shared() + slot * ld * size);
            format::decode(&p.format, &geometry, &own, &tile, values, chunk.columns);
            HC_SHORT_LOOP
            for (int c = 0; lost; c++, lost >>= 1)
                values[c] = lost & 1 ? hc_f32_from_bits(0x7fc00000) : values[c];
        } else {
            hc_move_own_parts<true>(p, chunk, size);
        }
    }
    if (p.to.n_limbs)
        return;
    hc_barrier();
    if (!is_fake) {
        hc_move_parts<true>(p, size);
        return;
    }
    if (p.chunks.flat & HC_FLAT_Y) {
        hc_store_flat(p.chunks, p.y);
        return;
    }
    hc_for_values(p.chunks, p.geometry, p.y, [=](int place, char *to) {
        if (to)
            *(float *)to = ((const float *)(hc_shared() + place / ld * ld * size))[place % ld];
    });
}

template <typename format> static inline HC_DEVICE void hc_decode_block(const hc_cuda_codec &p) {
    const int size = hc_value_bytes(p.x);
    hc_move_parts<false>(p, size);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, (int)threadIdx.x);
    if (chunk.columns > 0) {
        hc_geometry geometry = hc_chunk_geometry(p.chunks, p.geometry, chunk);
        geometry.groups = 1;
        hc_move_own_parts<false>(p, chunk, size);
        const hc_components own = hc_moved_components(p, chunk, size);
        const hc_tile tile = {0, 1, 0, chunk.columns};
        const int place = (int)threadIdx.x * p.chunks.ld;
        if (p.x.dtype == HC_F64)
            format::decode_f64(&p.format, &geometry, &own, &tile, (double *)hc_shared() + place, chunk.columns);
        else
            format::decode(&p.format, &geometry, &own, &tile, (float *)hc_shared() + place, chunk.columns);
    }
    hc_barrier();
    hc_store_chunks(p.chunks, p.geometry, p.x);
}

static inline HC_DEVICE float hc_shuffle_add(float value, int mask) {
    return value + hc_f32_from_bits(hc_shuffle_xor(hc_f32_bits(value), mask));
}

/* The kernels of a family; `format` names the functions of its definition. */
#define HC_ENCODERS(family, format)                                                                                    \
    HC_KERNEL(hc_encode_##family, hc_cuda_codec, 256, 2) { hc_encode_block<format>(p); }
#define HC_DECODERS(family, format)                                                                                    \
    HC_KERNEL(hc_decode_##family, hc_cuda_codec, 128, 1) { hc_decode_block<format>(p); }
#define HC_INTEGERS(family, format)                                                                                    \
    HC_KERNEL(hc_integers_##family, hc_cuda_integers, 128, 1) { hc_integers_block<format>(p); }

#endif
