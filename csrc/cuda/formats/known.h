/* Encoding to the formats of known.def. The compiler knows their parameters: a thread has the 32 values of its chunk, their
 * components and what becomes of them in registers, by the definition of the family.
 *
 *   x -> shared values, by 16 bytes -> registers -> definition -> components
 *                                                              -> integers of a matmul
 *                                                              -> rounded values -> shared values -> y, by 16 bytes
 *
 * Rows are contiguous and consist of whole chunks. A row of shared values has 36 floats, so that threads that move 16 bytes each
 * touch all banks. Behind them lie the maxima of the block's rows.
 */
#ifndef HC_CUDA_KNOWN_H
#define HC_CUDA_KNOWN_H

#include "cuda/codec.h"

#define HC_KNOWN(name, family_name, bits_of, group_of, first, second, third, scale_bytes_of, mode_of)                  \
    struct hc_known_##name {                                                                                           \
        enum {                                                                                                         \
            bits = bits_of,                                                                                            \
            group = group_of ? group_of : HC_CUDA_KNOWN_COLUMNS,                                                       \
            scale_bytes = scale_bytes_of,                                                                              \
            mode = mode_of                                                                                             \
        };                                                                                                             \
        static HC_DEVICE hc_format format(int32_t family) {                                                            \
            return {family, bits_of, group_of, {first, second, third, 0, 0, 0}, 0, 0};                                 \
        }                                                                                                              \
    };
#include "cuda/formats/known.def"
#undef HC_KNOWN

/* Calls `visit(shared values, address in the view)` for 16 bytes of the view at a time, `each` values. */
template <int each, typename visitor>
static inline HC_DEVICE void hc_for_pieces(const hc_cuda_chunks &chunks, const hc_row_view &view, visitor visit) {
    enum { PIECES = HC_CUDA_KNOWN_COLUMNS / each };
    const int n = hc_block_chunks(chunks) * PIECES;
    char *at = view.data + ((int64_t)blockIdx.x * chunks.threads * PIECES + (int)threadIdx.x) * 16;
    float *shared =
        (float *)hc_shared() + (int)threadIdx.x / PIECES * HC_CUDA_KNOWN_LD + (int)threadIdx.x % PIECES * each;
    HC_SHORT_LOOP
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        visit(shared, at);
        at += (int)blockDim.x * 16;
        shared += (int)blockDim.x / PIECES * HC_CUDA_KNOWN_LD;
    }
}

/* 16 bits of a word to a float32. */
template <bool is_half> static inline HC_DEVICE float hc_widened(uint32_t word, int i) {
    const uint16_t bits = (uint16_t)(word >> i * 16);
    return is_half ? hc_half_value(bits) : hc_bf16_to_f32(bits);
}
template <bool is_half>
static inline HC_DEVICE void hc_load_halves(const hc_cuda_chunks &chunks, const hc_row_view &x) {
    hc_for_pieces<8>(chunks, x, [](float *to, const char *from) {
        const hc_16_bytes eight = *(const hc_16_bytes *)from;
        alignas(16) float values[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            values[i] = hc_widened<is_half>(eight.word[i / 2], i % 2);
        hc_store_16(to, values);
        hc_store_16(to + 4, values + 4);
    });
}

/* The values of the block's chunks to shared memory. */
static inline HC_DEVICE void hc_load_known(const hc_cuda_chunks &chunks, const hc_row_view &x) {
    if (x.dtype == HC_F32) {
        hc_for_pieces<4>(chunks, x, [](float *to, const char *from) { hc_copy_16(to, from); });
        hc_copy_commit();
        hc_copy_wait<0>();
    } else if (x.dtype == HC_F16) {
        hc_load_halves<true>(chunks, x);
    } else {
        hc_load_halves<false>(chunks, x);
    }
}

/* Components of a chunk, in registers. */
struct hc_known_parts {
    alignas(16) uint32_t codes[HC_CUDA_KNOWN_COLUMNS / 4];
    alignas(4) uint8_t scales[4];
    float coarse;
};

/* Stores the components of a chunk; those of a row, by its first chunk; those of all rows, by the first of all. */
template <typename known>
static inline HC_DEVICE void hc_store_known(const hc_cuda_codec &p, const hc_chunk &chunk, int64_t item,
                                            const hc_known_parts &own) {
    uint8_t *codes = p.parts.part[HC_CODES].data + item * (known::bits * HC_CUDA_KNOWN_COLUMNS / 8);
#pragma unroll
    for (int i = 0; i < known::bits / 4; i++)
        ((hc_16_bytes *)codes)[i] = ((const hc_16_bytes *)own.codes)[i];
    const hc_component &scales = p.parts.part[HC_SCALES], &coarse = p.parts.part[HC_COARSE];
    if (known::scale_bytes == 1)
        scales.data[item] = own.scales[0];
    if (known::scale_bytes == 2)
        ((uint16_t *)scales.data)[item] = (uint16_t)(own.scales[0] | own.scales[1] << 8);
    if (known::scale_bytes == 0 && chunk.number == 0)
        *(float *)(scales.data + chunk.row * scales.row_stride) = hc_load_f32(own.scales);
    if (p.chunks.place[HC_COARSE] >= 0 && chunk.number == 0 && (coarse.row_stride || chunk.row == 0))
        *(float *)(coarse.data + chunk.row * coarse.row_stride) = own.coarse;
}

template <typename known>
static inline HC_DEVICE void hc_load_known_parts(const hc_cuda_codec &p, const hc_chunk &chunk, int64_t item,
                                                 hc_known_parts &own) {
    const uint8_t *codes = p.parts.part[HC_CODES].data + item * (known::bits * HC_CUDA_KNOWN_COLUMNS / 8);
#pragma unroll
    for (int i = 0; i < known::bits / 4; i++)
        ((hc_16_bytes *)own.codes)[i] = ((const hc_16_bytes *)codes)[i];
    const hc_component &scales = p.parts.part[HC_SCALES], &coarse = p.parts.part[HC_COARSE];
    if (known::scale_bytes == 1)
        own.scales[0] = scales.data[item];
    if (known::scale_bytes == 2) {
        const uint16_t both = ((const uint16_t *)scales.data)[item];
        own.scales[0] = (uint8_t)both, own.scales[1] = (uint8_t)(both >> 8);
    }
    if (known::scale_bytes == 0)
        hc_store_f32(own.scales, *(const float *)(scales.data + chunk.row * scales.row_stride));
    own.coarse = p.chunks.place[HC_COARSE] < 0 ? 0 : *(const float *)(coarse.data + chunk.row * coarse.row_stride);
}

/* Integers of a chunk to their place: segments of the size of its groups, or, where rows have one scale, of whole chunks. */
template <typename known>
static inline HC_DEVICE void hc_store_known_integers(const hc_cuda_integer_rows &to, const hc_chunk &chunk,
                                                     const uint32_t word[HC_CUDA_KNOWN_COLUMNS / 4],
                                                     const float *scales, float row_scale) {
    enum { GROUPS = HC_CUDA_KNOWN_COLUMNS / known::group, PIECES = HC_CUDA_KNOWN_COLUMNS / 16 };
    int8_t *row = to.integers + chunk.row * to.ld;
    if (to.mode == HC_INT_FOLDED) {
        if (chunk.number == 0)
            to.scales[chunk.row] = row_scale;
    } else if (known::mode == HC_INT_GROUPED) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            to.scales[chunk.row * to.segments + chunk.number * GROUPS + i] = scales[i];
    } else {
        const int64_t segment = HC_ROW_QUOTIENT(chunk.first, to.group);
        if (segment * to.group == chunk.first)
            to.scales[chunk.row * to.segments + segment] = row_scale;
    }
    if (to.for_nibbles) {
        row += chunk.first;
#pragma unroll
        for (int odd = 0; odd < 2; odd++) { /* hc_nibble_place */
            hc_16_bytes four;
#pragma unroll
            for (int i = 0; i < 4; i++)
                four.word[i] = hc_permute_bytes(word[2 * i], word[2 * i + 1], odd ? 0x7531 : 0x6420);
            *(hc_16_bytes *)(row + odd * 16) = four;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int64_t group = i * 16 / known::group;
        int8_t *at = known::mode == HC_INT_FOLDED
                         ? row + chunk.first + i * 16
                         : row + (chunk.number * GROUPS + group) * to.length + i * 16 % known::group;
        *(hc_16_bytes *)at = {{word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]}};
    }
}

/* A chunk as a row, and its components, for the definition. */
template <typename known> static inline HC_DEVICE hc_geometry hc_known_geometry() {
    hc_geometry geometry;
    geometry.rows = geometry.runs = 1;
    geometry.run_length = geometry.columns = geometry.padded = geometry.whole_length = geometry.whole_columns =
        HC_CUDA_KNOWN_COLUMNS;
    geometry.group = known::group;
    geometry.groups_per_run = geometry.groups = HC_CUDA_KNOWN_COLUMNS / known::group;
    return geometry;
}
static inline HC_DEVICE hc_components hc_components_of(hc_known_parts &parts) {
    hc_components own;
#pragma unroll
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        own.part[i] = {NULL, 0, 0};
    own.part[HC_CODES].data = (uint8_t *)parts.codes;
    own.part[HC_SCALES].data = parts.scales;
    own.part[HC_COARSE].data = (uint8_t *)&parts.coarse;
    own.first_row = 0;
    return own;
}

/* Values of a thread to its row of shared memory, and those of the block to y. */
static inline HC_DEVICE void hc_store_row(hc_16_bytes *shared, const float *values) {
#pragma unroll
    for (int i = 0; i < HC_CUDA_KNOWN_COLUMNS / 4; i++)
        hc_store_16(shared + i, values + 4 * i);
}
static inline HC_DEVICE void hc_store_pieces(const hc_cuda_chunks &chunks, const hc_row_view &y) {
    hc_barrier();
    hc_for_pieces<4>(chunks, y, [](const float *from, char *to) { *(hc_16_bytes *)to = *(const hc_16_bytes *)from; });
}

template <typename functions, typename known> static inline HC_DEVICE void hc_encode_known(const hc_cuda_codec &p) {
    enum { COLUMNS = HC_CUDA_KNOWN_COLUMNS, LD = HC_CUDA_KNOWN_LD, GROUPS = COLUMNS / known::group };
    const int slot = (int)threadIdx.x;
    uint32_t *found = (uint32_t *)((float *)hc_shared() + p.chunks.threads * LD);
    if (slot < p.chunks.rows)
        found[slot] = 0;
    hc_load_known(p.chunks, p.x);
    hc_barrier();
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    const bool is_there = chunk.columns > 0;
    const int64_t item = (int64_t)blockIdx.x * p.chunks.threads + slot;
    const hc_geometry geometry = hc_known_geometry<known>();
    const hc_format format = known::format(p.format.family);
    alignas(16) float values[COLUMNS];
    hc_16_bytes *shared = (hc_16_bytes *)((float *)hc_shared() + slot * LD);
#pragma unroll
    for (int i = 0; i < COLUMNS / 4 && is_there; i++) {
        const hc_16_bytes four = shared[i];
#pragma unroll
        for (int j = 0; j < 4; j++)
            values[4 * i + j] = hc_f32_from_bits(four.word[j]);
    }
    const hc_float_rows x = {values, HC_F32, COLUMNS, 0, 1};
    uint32_t *row_maximum = p.row_maxima ? p.row_maxima + chunk.row : NULL;
    if (p.chunks.rows) {
        row_maximum = found + slot / p.chunks.per_row;
        if (is_there)
            hc_add_maximum<functions>(p, format, geometry, chunk, x, row_maximum);
        hc_barrier();
    }
    if (is_there) {
        hc_known_parts parts;
        const hc_components own = hc_components_of(parts);
        if (!hc_encode_chunk<functions>(p, format, geometry, chunk, x, own, row_maximum))
            hc_refuse_row(p.state, chunk.row);
        const hc_tile tile = {0, 1, 0, COLUMNS};
        if (p.to.n_limbs) {
            if constexpr (functions::has_integers) {
                alignas(16) uint32_t word[COLUMNS / 4];
                float scales[GROUPS], row_scale = 0;
                const hc_int_tile out = {{(int8_t *)word, NULL, NULL}, COLUMNS, scales, GROUPS, &row_scale};
                functions::decode_int(&format, &geometry, &own, &tile, (hc_int_mode)known::mode, &out);
                hc_store_known_integers<known>(p.to, chunk, word, scales, row_scale);
            }
        } else if (p.y.data) {
            functions::decode(&format, &geometry, &own, &tile, values, COLUMNS);
            hc_store_row(shared, values);
        } else {
            hc_store_known<known>(p, chunk, item, parts);
        }
    }
    if (p.y.data)
        hc_store_pieces(p.chunks, p.y);
}

template <typename functions, typename known> static inline HC_DEVICE void hc_decode_known(const hc_cuda_codec &p) {
    const int slot = (int)threadIdx.x;
    const hc_chunk chunk = hc_chunk_of(p.chunks, p.geometry, slot);
    if (chunk.columns > 0) {
        const int64_t item = (int64_t)blockIdx.x * p.chunks.threads + slot;
        const hc_geometry geometry = hc_known_geometry<known>();
        const hc_format format = known::format(p.format.family);
        hc_known_parts parts;
        hc_load_known_parts<known>(p, chunk, item, parts);
        const hc_components own = hc_components_of(parts);
        const hc_tile tile = {0, 1, 0, HC_CUDA_KNOWN_COLUMNS};
        alignas(16) float values[HC_CUDA_KNOWN_COLUMNS];
        functions::decode(&format, &geometry, &own, &tile, values, HC_CUDA_KNOWN_COLUMNS);
        hc_store_row((hc_16_bytes *)((float *)hc_shared() + slot * HC_CUDA_KNOWN_LD), values);
    }
    hc_store_pieces(p.chunks, p.x);
}

#define HC_CODEC_KNOWN(name, functions)                                                                                \
    HC_KERNEL(hc_encode_known_##name, hc_cuda_codec, 256, 2) { hc_encode_known<functions, hc_known_##name>(p); }       \
    HC_KERNEL(hc_decode_known_##name, hc_cuda_codec, 128) { hc_decode_known<functions, hc_known_##name>(p); }

#endif
