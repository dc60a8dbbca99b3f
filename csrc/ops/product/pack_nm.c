/* Patterns in integer matmuls: the nonzeros of every kr columns, at most 4, become 4 values and their 4 positions
 * (kernels/sparse/nm.h: gemm_nm_s8_of8). A panel therefore takes at most the bytes of the dense panel, and gemm.c
 * treats both alike, within the same bounds.
 */
#include "ops/product/packed_rows.h"
#include "ops/product/sparse.h"

#include "sparsity/nm.h"

#include <string.h>

/* Whether such columns never cross a run or a group, and have at most 4 nonzeros. */
static bool fits(const hc_source *w, const hc_format *format, int kr) {
    return kr % format->m == 0 && kr / format->m * format->n <= 4 && !(w->runs > 1 && w->run_length % kr) &&
           !(w->group < w->run_length && w->group % kr);
}

const char *hc_nm_kernel_refusal(const hc_source *w, const hc_run *run) {
    if (!w->sparse)
        return "no side has a pattern";
    if (w->form[HC_INT_FOLDED].n_limbs != 1)
        return "its integers take more than 8 bits";
    return hc_nm_kernel(w, run) ? NULL
                                : "no kernel for this pattern: more than 4 of every 8 to 64 columns, or none here";
}

const hc_kernel *hc_nm_kernel(const hc_source *w, const hc_run *run) {
    if (!w->sparse || w->form[HC_INT_FOLDED].n_limbs != 1)
        return NULL;
    const hc_kernel *const kernels[] = {HC_BEST(gemm_nm_s8_of64, run), HC_BEST(gemm_nm_s8_of32, run),
                                        HC_BEST(gemm_nm_s8_of16, run), HC_BEST(gemm_nm_s8_of8, run)};
    const hc_format *format = ((const hc_packed_context *)w->sparse)->format;
    for (int i = 0; i < 4; i++)
        if (kernels[i]->kr && fits(w, format, kernels[i]->kr))
            return kernels[i];
    return NULL;
}

/* Positions of `kept` nonzeros from `first` on, one byte each; up to 7 more bytes are written. m is a power of two. */
static void unpack_positions(const hc_packed_context *packed, hc_gemv_unpack_fn *unpack, int64_t row, int64_t first,
                             int64_t kept, uint8_t *positions) {
    const int bits = hc_position_bits(packed->format->m);
    const uint8_t *metadata = hc_part(packed->components, HC_METADATA, row);
    const int64_t bytes = hc_ceil_div(packed->geometry->columns * bits, 8), at = first / 8 * bits;
    if (first % 8)
        hc_nm_positions(metadata, packed->geometry->columns, packed->format->m, first, kept, positions);
    else
        unpack(metadata + at, bytes - at, bits, kept, positions);
}

/* Expands per_step bytes of each step to 4, the others 0. Three bytes after the last are overwritten. */
static void spread(uint8_t *restrict from, int per_step, int64_t kept, int64_t slots, uint8_t *restrict to) {
    memset(from + kept, 0, 3);
    for (int64_t t = 0; t < slots; t += 4, from += per_step) {
        uint32_t four;
        memcpy(&four, from, sizeof four);
        four &= ((uint32_t)1 << 8 * per_step) - 1;
        memcpy(to + t, &four, sizeof four);
    }
}

void hc_nm_form_init(hc_nm_form *form, const hc_format *format, int kr, const hc_run *run) {
    const int per_step = kr / format->m * format->n;
    *form = (hc_nm_form){.kr = kr, .per_step = per_step};
    for (int i = 0; i < per_step; i++)
        form->base |= (uint32_t)(i / format->n * format->m) << 8 * i;
    form->unpack = HC_PICK(gemv_unpack, run);
}

void hc_nm_integers(const hc_source *w, const hc_nm_form *form, int64_t first_row, int64_t rows, int64_t first_column,
                    int64_t columns, const hc_int_tile *out) {
    const hc_packed_context *packed = w->sparse;
    const int n = packed->format->n, m = packed->format->m;
    const int64_t kept = hc_ceil_div(columns, m) * n, first = first_column / m * n;
    const int64_t slots = hc_ceil_div(columns, form->kr) * 4;
    HC_ASSUME(out->ld >= slots + 8);
    const bool spreads = form->per_step < 4;
    const hc_int_tile values = {.limb = {out->limb[spreads ? 2 : 0]}, .ld = out->ld, .row_scale = out->row_scale};
    hc_packed_integers(w, HC_INT_FOLDED, first_row, rows, first, kept, &values);
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *value = (uint8_t *)out->limb[0] + r * out->ld, *place = (uint8_t *)out->limb[1] + r * out->ld;
        const int64_t row = packed->first_row + first_row + r;
        if (spreads) {
            uint8_t *dense = (uint8_t *)out->limb[2] + r * out->ld;
            spread(dense, form->per_step, kept, slots, value);
            unpack_positions(packed, form->unpack, row, first, kept, dense);
            spread(dense, form->per_step, kept, slots, place);
        } else {
            unpack_positions(packed, form->unpack, row, first, kept, place);
            memset(value + kept, 0, (size_t)(slots - kept));
            memset(place + kept, 0, (size_t)(slots - kept));
        }
        /* Nonzeros beyond the last column get the value 0. */
        for (int64_t t = slots - 4; t < slots && columns % m; t++)
            if (t / 4 * form->kr + (place[t] ^ (form->base >> t % 4 * 8 & 0xff)) >= columns)
                value[t] = 0;
    }
}
