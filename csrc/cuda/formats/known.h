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
            group = group_of && group_of < HC_CUDA_KNOWN_COLUMNS ? group_of : HC_CUDA_KNOWN_COLUMNS,                   \
            chunks_per_group = group_of > HC_CUDA_KNOWN_COLUMNS ? group_of / HC_CUDA_KNOWN_COLUMNS : 1,                \
            has_row_scale = group_of == 0,                                                                             \
            scale_bytes = scale_bytes_of,                                                                              \
            mode = mode_of                                                                                             \
        };                                                                                                             \
        static HC_DEVICE hc_format format(int32_t family) {                                                            \
            return {family, bits_of, group_of, {first, second, third, 0, 0, 0}, 0, 0};                                 \
        }                                                                                                              \
    };
#include "cuda/formats/known.def"
#undef HC_KNOWN

/* Calls `visit(shared values, address in the view)` for 16 bytes of the view at a time, `each` values. A warp moves the chunks of
 * its threads. */
template <int each, typename visitor>
static inline HC_DEVICE void hc_for_pieces(const hc_cuda_chunks &chunks, const hc_row_view &view, visitor visit) {
    enum { PIECES = HC_CUDA_KNOWN_COLUMNS / each, ROWS = HC_WARP / PIECES /* that a warp touches at once */ };
    const int lane = hc_lane(), first = (int)threadIdx.x - lane, n = hc_block_chunks(chunks);
    char *at = view.data + (((int64_t)blockIdx.x * chunks.threads + first) * PIECES + lane) * 16;
    float *shared = (float *)hc_shared() + (first + lane / PIECES) * HC_CUDA_KNOWN_LD + lane % PIECES * each;
    if (first + HC_WARP <= n) {
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            visit(shared + i * (ROWS * HC_CUDA_KNOWN_LD), at + i * 512);
        return;
    }
    HC_SHORT_LOOP
    for (int row = first + lane / PIECES; row < n && row < first + HC_WARP; row += ROWS) {
        visit(shared, at);
        shared += ROWS * HC_CUDA_KNOWN_LD;
        at += 512;
    }
}

/* The values of the block's chunks to shared memory, where they are after hc_copy_wait and a barrier. */
static inline HC_DEVICE void hc_load_known(const hc_cuda_chunks &chunks, const hc_row_view &x) {
    if (x.dtype == HC_F32) {
        hc_for_pieces<4>(chunks, x, [](float *to, const char *from) { hc_copy_16(to, from); });
        hc_copy_commit();
        return;
    }
    const bool is_half = x.dtype == HC_F16;
    hc_for_pieces<8>(chunks, x, [=](float *to, const char *from) {
        const hc_16_bytes eight = *(const hc_16_bytes *)from;
        alignas(16) float values[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint16_t bits = (uint16_t)(eight.word[i / 2] >> i % 2 * 16);
            values[i] = is_half ? hc_half_value(bits) : hc_bf16_to_f32(bits); /* a choice, not a branch */
        }
        hc_store_16(to, values);
        hc_store_16(to + 4, values + 4);
    });
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
    if (known::scale_bytes == 4 && chunk.number % known::chunks_per_group == 0)
        *(float *)(scales.data + item / known::chunks_per_group * 4) = hc_load_f32(own.scales);
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
    if (known::scale_bytes == 4)
        hc_store_f32(own.scales, *(const float *)(scales.data + item / known::chunks_per_group * 4));
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

template <typename functions>
static inline HC_DEVICE void hc_decode_parts(const uint32_t *table, const hc_format &format,
                                             const hc_geometry &geometry, const hc_components &own, const hc_tile &tile,
                                             float *values) {
    if constexpr (functions::has_table)
        functions::decode_by_table(table, &format, &geometry, &own, &tile, values, HC_CUDA_KNOWN_COLUMNS);
    else
        functions::decode(&format, &geometry, &own, &tile, values, HC_CUDA_KNOWN_COLUMNS);
}

/* The chunk of a thread. */
static inline HC_DEVICE hc_chunk hc_known_chunk(const hc_cuda_chunks &chunks, int slot, int groups) {
    const int64_t item = (int64_t)blockIdx.x * chunks.threads + slot;
    if (slot >= chunks.threads || item >= chunks.all)
        return {0, 0, 0, 0, 0};
    const uint32_t row = (uint32_t)item / (uint32_t)chunks.per_row,
                   number = (uint32_t)item - row * (uint32_t)chunks.per_row;
    return {row, number, (int64_t)number * HC_CUDA_KNOWN_COLUMNS, HC_CUDA_KNOWN_COLUMNS, groups};
}

/* The threshold of each group, or its largest magnitude where there is none; false for an invalid value. All threads of a warp call. */
template <typename functions, typename known>
static inline HC_DEVICE bool hc_known_thresholds(const hc_cuda_codec &p, const hc_format &format, const hc_chunk &chunk,
                                                 const float *values, bool is_valid, float *thresholds) {
    enum { GROUPS = HC_CUDA_KNOWN_COLUMNS / known::group };
    hc_geometry of_group = hc_known_geometry<known>();
    of_group.run_length = of_group.columns = of_group.padded = of_group.whole_length = of_group.whole_columns =
        known::group;
    of_group.groups_per_run = of_group.groups = 1;
    const int64_t group =
        chunk.row * p.geometry.groups + (known::has_row_scale ? 0 : chunk.number * GROUPS / known::chunks_per_group);
    bool legal = true;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const hc_float_rows x = {values + i * known::group, HC_F32, known::group, 0, 1};
        float found = 0;
        if (is_valid && !functions::maximum(&format, &of_group, &x, NULL, &found)) {
            found = hc_f32_from_bits(0x7fc00000);
            legal = false;
        }
        if (known::chunks_per_group == 2) {
            const uint32_t bits = hc_f32_bits(found);
            found = hc_f32_from_bits(hc_larger(bits, hc_shuffle_xor(bits, 1)));
        }
        thresholds[i] = p.thresholds && is_valid ? p.thresholds[group + i] : found;
    }
    return legal;
}

/* Encodes a chunk by the definition, values and components in the thread's row of shared memory. Codes take the place of values
 * that nothing reads again. Loops are not unrolled: few chunks are encoded here. */
template <typename functions>
static inline HC_DEVICE bool hc_encode_shared(const hc_format &format, hc_geometry geometry,
                                              const hc_encode_state &state, const float *thresholds,
                                              hc_16_bytes *shared, hc_known_parts &parts) {
    enum { COLUMNS = HC_CUDA_KNOWN_COLUMNS, WORDS = HC_CUDA_KNOWN_COLUMNS / 4 };
    uint32_t *word = (uint32_t *)shared;
    hc_components out = hc_components_of(parts);
    out.part[HC_CODES].data = (uint8_t *)word;
    out.part[HC_SCALES].data = (uint8_t *)(word + COLUMNS);
    out.part[HC_COARSE].data = (uint8_t *)(word + COLUMNS + 1);
    if (thresholds) {
        float *own = (float *)word + COLUMNS + 2;
        own[0] = thresholds[0];
        if (geometry.groups > 1)
            own[1] = thresholds[1];
        thresholds = own;
    }
    geometry.group = hc_held((uint32_t)geometry.group);
    geometry.groups = hc_held((uint32_t)geometry.groups);
    const hc_float_rows x = {shared, HC_F32, COLUMNS, 0, 1};
    const bool legal = functions::encode(&format, &geometry, &state, &x, thresholds, &out) == HC_DONE;
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        parts.codes[i] = word[i];
    hc_store_f32(parts.scales, hc_f32_from_bits(word[COLUMNS]));
    parts.coarse = hc_f32_from_bits(word[COLUMNS + 1]);
    return legal;
}

template <typename functions, typename known> static inline HC_DEVICE void hc_encode_known(const hc_cuda_codec &p) {
    enum { COLUMNS = HC_CUDA_KNOWN_COLUMNS, LD = HC_CUDA_KNOWN_LD, GROUPS = COLUMNS / known::group };
    const int slot = (int)threadIdx.x;
    uint32_t *found = (uint32_t *)((float *)hc_shared() + p.chunks.threads * LD);
    if (slot < p.chunks.rows)
        found[slot] = 0;
    hc_load_known(p.chunks, p.x);
    if constexpr (functions::has_table)
        functions::make_table(found);
    hc_copy_wait<0>();
    hc_barrier();
    const hc_chunk chunk = hc_known_chunk(p.chunks, slot, GROUPS);
    const bool is_valid = chunk.columns > 0;
    const int64_t item = (int64_t)blockIdx.x * p.chunks.threads + slot;
    const hc_geometry geometry = hc_known_geometry<known>();
    const hc_format format = known::format(p.format.family);
    alignas(16) float values[COLUMNS];
    hc_16_bytes *shared = (hc_16_bytes *)((float *)hc_shared() + slot * LD);
#pragma unroll
    for (int i = 0; i < COLUMNS / 4 && is_valid; i++) {
        const hc_16_bytes four = shared[i];
#pragma unroll
        for (int j = 0; j < 4; j++)
            values[4 * i + j] = hc_f32_from_bits(four.word[j]);
    }
    const hc_float_rows x = {values, HC_F32, COLUMNS, 0, 1};
    hc_encode_state state = {0, 0, NULL, &geometry, NULL};
    float thresholds[GROUPS];
    bool legal = true;
    if constexpr (functions::has_thresholds)
        legal = hc_known_thresholds<functions, known>(p, format, chunk, values, is_valid, thresholds);
    if constexpr (functions::has_row_maximum) {
        if (p.chunks.rows) {
            uint32_t bits = 0;
#pragma unroll
            for (int i = 0; i < GROUPS; i++)
                bits = hc_larger(bits, hc_f32_bits(thresholds[i]));
            /* a warp whose chunks are of one row finds its maximum first */
            const bool has_one_row = p.chunks.per_row % HC_WARP == 0;
            if (has_one_row)
                bits = hc_largest_of_warp(bits);
            uint32_t *row_maximum = found + (chunk.row - (int64_t)blockIdx.x * p.chunks.rows);
            if (is_valid && (!has_one_row || slot % HC_WARP == 0))
                hc_atomic_max(row_maximum, bits);
            hc_barrier();
            if (is_valid)
                state.maximum = hc_f32_from_bits(*row_maximum);
        } else if (p.row_maxima && is_valid) {
            state.maximum = hc_f32_from_bits(p.row_maxima[chunk.row]);
        }
        if (known::has_row_scale && !p.thresholds)
            thresholds[0] = state.maximum;
    } else if (p.maximum) {
        state.maximum = hc_f32_from_bits(*p.maximum);
    }
    if (is_valid) {
        hc_known_parts parts;
        const hc_components own = hc_components_of(parts);
        const hc_format of_chunk = functions::of_chunk(&format);
        functions::finish(&of_chunk, &state);
        const float *by = functions::has_thresholds ? thresholds : NULL;
        if constexpr (!functions::is_quick)
            legal = functions::encode(&of_chunk, &geometry, &state, &x, by, &own) == HC_DONE;
        else if (!functions::encode_quickly(found, &of_chunk, &geometry, &state, &x, by, &own))
            legal = hc_encode_shared<functions>(of_chunk, geometry, state, by, shared, parts);
        if (!legal)
            hc_refuse_row(p.illegal, chunk.row);
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
            hc_decode_parts<functions>(found, format, geometry, own, tile, values);
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
    uint32_t *table = (uint32_t *)((float *)hc_shared() + p.chunks.threads * HC_CUDA_KNOWN_LD);
    if constexpr (functions::has_table) {
        functions::make_table(table);
        hc_barrier();
    }
    const hc_chunk chunk = hc_known_chunk(p.chunks, slot, HC_CUDA_KNOWN_COLUMNS / known::group);
    if (chunk.columns > 0) {
        const int64_t item = (int64_t)blockIdx.x * p.chunks.threads + slot;
        const hc_geometry geometry = hc_known_geometry<known>();
        const hc_format format = known::format(p.format.family);
        hc_known_parts parts;
        hc_load_known_parts<known>(p, chunk, item, parts);
        const hc_components own = hc_components_of(parts);
        const hc_tile tile = {0, 1, 0, HC_CUDA_KNOWN_COLUMNS};
        alignas(16) float values[HC_CUDA_KNOWN_COLUMNS];
        hc_decode_parts<functions>(table, format, geometry, own, tile, values);
        hc_store_row((hc_16_bytes *)((float *)hc_shared() + slot * HC_CUDA_KNOWN_LD), values);
    }
    hc_store_pieces(p.chunks, p.x);
}

#define HC_CODEC_KNOWN(name, functions, blocks)                                                                        \
    HC_KERNEL(hc_encode_known_##name, hc_cuda_codec, 256, blocks) { hc_encode_known<functions, hc_known_##name>(p); }  \
    HC_KERNEL(hc_decode_known_##name, hc_cuda_codec, 128) { hc_decode_known<functions, hc_known_##name>(p); }

#endif
