/* 1:2, 2:4 and 4:8 in integer products: what is kept of 8 columns becomes 4 values and their 4 places (kernels/kernel.h,
 * sparse_s8). So a panel takes the bytes of the dense one, and gemm.c drives both alike, within the same bounds.
 */
#include "ops/sparse.h"

#include "sparsity/nm.h"

#include <string.h>

const hc_kernel *hc_kept_line(hc_product_kind kind, const hc_source *w, const hc_run *run) {
    if (kind != HC_PRODUCT_FOLDED || !w->sparse || w->form[HC_INT_FOLDED].n_limbs != 1)
        return NULL;
    const hc_format *format = ((const hc_packed_context *)w->sparse)->format;
    if (format->m != 2 * format->n || 8 % format->m)
        return NULL;
    /* No 8 columns cross a run or a group. */
    if ((w->runs > 1 && w->run_length % 8) || (w->group < w->run_length && w->group % 8))
        return NULL;
    /* Where the dense product has a stronger instruction set (AMX), it is the faster one. */
    const hc_kernel *line = hc_kernel_pick("sparse_s8", run->isa, NULL);
    return line->needs == hc_kernel_pick("gemm_s8", run->isa, NULL)->needs ? line : NULL;
}

/* The places of `kept` values, 4 of every 8 columns, from kept value `first` on, a multiple of 4. */
static void places_among_eight(const hc_packed_context *packed, int64_t row, int64_t first, int64_t kept,
                               int8_t *places) {
    const int n = packed->format->n, m = packed->format->m;
    const uint8_t *metadata = hc_part(packed->components, HC_METADATA, row);
    if (m == 4) {
        const uint8_t *restrict codes = metadata + first / 4;
        int8_t *restrict to = places;
        const int64_t steps = hc_ceil_div(kept, 4);
        for (int64_t s = 0; s < steps; s++) {
            const uint32_t code = codes[s], low = (code & 3) | (code & 12) << 6;
            const uint32_t all = low | (code & 48) << 12 | (code & 192) << 18 | 0x04040000;
            memcpy(to + s * 4, &all, sizeof all);
        }
        return;
    }
    hc_nm_positions(metadata, packed->geometry->columns, m, first, kept, (uint8_t *)places);
    memset(places + kept, 0, (size_t)(hc_round_up(kept, 4) - kept));
    for (int64_t t = 0; t < kept; t++)
        places[t] += t % 4 / n * m;
}

void hc_kept_integers(const hc_source *w, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                      const hc_int_tile *out) {
    const hc_packed_context *packed = w->sparse;
    const int64_t n = packed->format->n, m = packed->format->m;
    const int64_t kept = hc_ceil_div(columns, m) * n, first = first_column / 8 * 4;
    const hc_int_tile values = {.limb = {out->limb[0]}, .ld = out->ld, .row_scale = out->row_scale};
    hc_packed_integers(w, HC_INT_FOLDED, first_row, rows, first, kept, &values);
    for (int64_t r = 0; r < rows; r++) {
        int8_t *value = out->limb[0] + r * out->ld, *place = out->limb[1] + r * out->ld;
        places_among_eight(packed, packed->first_row + first_row + r, first, kept, place);
        /* What stands for no column counts for nothing. */
        memset(value + kept, 0, (size_t)(hc_round_up(kept, 4) - kept));
        for (int64_t t = kept - n; t < kept && columns % m; t++)
            if (t / 4 * 8 + place[t] >= columns)
                value[t] = 0;
    }
}
