/* Encoding and decoding on the device: a thread a chunk (formats/chunks.h), by the format's own definition.
 *
 *   x -> shared values (thread, column) -> definition -> shared components (thread, byte) -> components, and back
 *
 * A thread sees its chunk as a row of its own. What the whole row or array must give first, its largest magnitude, becomes the threshold of the row, or
 * the coarse scale. hc_maximum has found it; where a block has whole rows, `encode` does, behind the components:
 *
 *   values | components | maxima of the block's rows
 */
#ifndef HC_CUDA_CODEC_H
#define HC_CUDA_CODEC_H

#include "cuda/formats/integers.h"

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

#endif
