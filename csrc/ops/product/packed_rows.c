/* Runs of packed rows as columns without padding. Decoding starts at a byte and a group boundary. */
#include "ops/product/packed_rows.h"

#include "ops/codec/decode.h"

#include <string.h>

/* Calls `part` for every run that the columns touch. The padded columns [tile.first_column, ..) contain them from
 * `skip` on, and their values are written to the result from column `to` on. */
typedef struct {
    hc_tile tile;
    int64_t skip, to, count;
} hc_run_part;

static bool next_part(const hc_packed_context *packed, int64_t first_column, int64_t columns, hc_run_part *part) {
    const hc_geometry *g = packed->geometry;
    part->to += part->count;
    if (part->to >= columns)
        return false;
    const bool by_runs = g->padded != g->columns; /* runs without padding are one */
    const int64_t length = by_runs ? g->run_length : g->columns;
    const int64_t column = first_column + part->to, run = column / length, inside = column % length;
    const int64_t run_padded = by_runs ? g->groups_per_run * g->group : g->columns;
    const int64_t padded = run * run_padded + inside;
    part->count = hc_min(length - inside, columns - part->to);
    part->tile.first_column = padded & ~(int64_t)7;
    part->skip = padded - part->tile.first_column;
    part->tile.columns = part->skip + part->count;
    return true;
}

void hc_packed_floats(const hc_source *source, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      float *values, int64_t ld) {
    const hc_packed_context *packed = source->context;
    hc_run_part part = {.tile = {.first_row = packed->first_row + first_row, .rows = rows}};
    while (next_part(packed, first_column, columns, &part)) {
        if (part.skip == 0) {
            hc_decode_tile(packed->run, packed->format, packed->geometry, packed->components, &part.tile,
                           values + part.to, ld);
            continue;
        }
        /* The start is not at a byte: decode piece by piece through a small buffer. */
        enum { PIECE = 512 };
        float piece[PIECE];
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < part.tile.columns; c += PIECE) {
                const hc_tile tile = {part.tile.first_row + r, 1, part.tile.first_column + c,
                                      hc_min(PIECE, part.tile.columns - c)};
                hc_decode_tile(packed->run, packed->format, packed->geometry, packed->components, &tile, piece, PIECE);
                const int64_t from = c == 0 ? part.skip : 0;
                memcpy(values + r * ld + part.to + c + from - part.skip, piece + from,
                       (size_t)(tile.columns - from) * sizeof *piece);
            }
    }
}

void hc_packed_integers(const hc_source *source, hc_int_mode mode, int64_t first_row, int64_t rows,
                        int64_t first_column, int64_t columns, const hc_int_tile *out) {
    const hc_packed_context *packed = source->context;
    const int n_limbs = source->form[mode].n_limbs;
    hc_run_part part = {.tile = {.first_row = packed->first_row + first_row, .rows = rows}};
    for (int64_t r = 0; r < rows && columns == 0; r++) { /* no part writes the scale of a row without values */
        if (out->row_scale)
            out->row_scale[r] = 0;
        if (out->group_scale && packed->format->group == 0)
            out->group_scale[r * out->groups_ld] = 0;
    }
    int64_t group = 0;
    while (next_part(packed, first_column, columns, &part)) {
        hc_int_tile tile = *out;
        tile.group_scale = out->group_scale ? out->group_scale + group : NULL;
        for (int i = 0; i < n_limbs; i++)
            tile.limb[i] = out->limb[i] + part.to;
        if (part.skip == 0) {
            hc_decode_int_tile(packed->run, packed->format, packed->geometry, packed->components, &part.tile, mode,
                               &tile);
        } else {
            enum { PIECE = 1024 };
            int8_t piece[3][PIECE];
            const int64_t effective = packed->geometry->group;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < part.tile.columns; c += PIECE) {
                    const hc_tile one = {part.tile.first_row + r, 1, part.tile.first_column + c,
                                         hc_min(PIECE, part.tile.columns - c)};
                    float scales[PIECE + 1];
                    hc_int_tile small = {.limb = {piece[0], piece[1], piece[2]},
                                         .ld = PIECE,
                                         .group_scale = scales,
                                         .groups_ld = PIECE + 1,
                                         .row_scale = out->row_scale ? out->row_scale + r : NULL};
                    hc_decode_int_tile(packed->run, packed->format, packed->geometry, packed->components, &one, mode,
                                       &small);
                    const int64_t from = c == 0 ? part.skip : 0;
                    for (int i = 0; i < n_limbs; i++)
                        memcpy(tile.limb[i] + r * out->ld + c + from - part.skip, piece[i] + from,
                               (size_t)(one.columns - from));
                    if (!out->group_scale)
                        continue;
                    /* Groups that only skipped columns touch do not belong to the caller. */
                    const int64_t wanted = (part.tile.first_column + part.skip) / effective;
                    const int64_t first = one.first_column / effective;
                    const int64_t last = (one.first_column + one.columns - 1) / effective;
                    for (int64_t g = hc_max(first, wanted); g <= last; g++)
                        tile.group_scale[r * out->groups_ld + g - wanted] = scales[g - first];
                }
        }
        if (packed->format->group)
            group += hc_ceil_div(part.count, packed->geometry->group); /* parts start at group boundaries */
    }
}
