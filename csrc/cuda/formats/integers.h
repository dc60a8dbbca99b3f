/* Integers of chunks, as rows of segments for matmuls (hc_cuda_integer_rows): from components, or where a kernel has just encoded x. */
#ifndef HC_CUDA_INTEGERS_H
#define HC_CUDA_INTEGERS_H

#include "cuda/formats/chunks.h"
#include "cuda/kept.h"

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

#define HC_INTEGERS(family, format)                                                                                    \
    HC_KERNEL(hc_integers_##family, hc_cuda_integers, 128, 1) { hc_integers_block<format>(p); }

#endif
