/* Weights with codes of 8 and of 4 bits that kernels read as they are stored. */
#include "ops/rows/stored.h"
#include "base/convert.h"

bool hc_rows_are_bytes(const hc_format *format) {
    const hc_stored_form form = hc_form_of(format);
    return !format->m && !format->group && hc_form_is_bytes(&form) && hc_form_has_f32_scales(&form);
}

bool hc_rows_direct_weights(const hc_product *p) {
    const hc_packed_context *w = p->w_packed;
    return w && hc_rows_are_bytes(w->format) && w->geometry->padded == w->geometry->columns;
}

bool hc_rows_nibble_weights(const hc_product *p, int *words) {
    const hc_packed_context *w = p->w_packed;
    if (!HC_PICK(rows_s4, p->run) || !w || w->format->m || w->geometry->runs != 1)
        return false;
    const hc_stored_form form = hc_form_of(w->format);
    if (!hc_form_is_nibbles(&form))
        return false;
    const int64_t group = w->geometry->group;
    if (hc_form_has_f32_scales(&form) && !w->format->group) {
        *words = 0;
        return true;
    }
    *words = (int)(group / 8);
    return hc_form_has_nibble_scales(&form) && (group == 16 || group == 32 || group == 64);
}

void hc_rows_stored(const hc_product *p, int64_t first, hc_rows_s8_args *args, float *scales) {
    const hc_components *components = p->w_packed->components;
    const int64_t row = p->w_packed->first_row + first;
    args->w = hc_part(components, HC_CODES, row);
    args->ld_w = components->part[HC_CODES].row_stride;
    for (int64_t i = 0; i < args->n_w; i++)
        scales[i] = hc_load_f32(hc_part(components, args->words ? HC_COARSE : HC_SCALES, row + i));
    if (args->words) {
        args->scales = hc_part(components, HC_SCALES, row);
        args->ld_scales = components->part[HC_SCALES].row_stride;
    }
}
