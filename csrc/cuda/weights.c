/* Weights of a matmul of integers before the product; weights.h. */
#include "cuda/weights.h"

#include "base/layout.h"
#include "formats/format.h"

enum { STEP_BYTES = 64, K_BYTES = 32 /* of an mma */, SPARSE_STEP = 128, SPARSE_K = 64 /* columns */ };
enum { ALIGNMENT = 256, BYTE_MOST = 127 };

bool hc_cuda_is_stored_as_integers(const hc_cuda_side *side, bool has_parts, int64_t ld) {
    const hc_stored_form form = hc_form_of(&side->format);
    const hc_component *codes = &side->parts.part[HC_CODES], *scales = &side->parts.part[HC_SCALES];
    return hc_form_is_bytes(&form) && hc_form_has_f32_scales(&form) && side->format.group == 0 && side->format.m == 0 &&
           side->geometry.runs == 1 && side->geometry.columns == ld &&
           (!has_parts || (codes->row_stride == ld && (uintptr_t)codes->data % 16 == 0 &&
                           scales->row_stride == sizeof(float) && (uintptr_t)scales->data % sizeof(float) == 0));
}

/* Codes of 4 bits in whole steps and whole segments; folded, with scales of 4 bits or of rows. */
static bool keeps_nibbles(const hc_cuda_side *w, const hc_cuda_form *form) {
    const hc_stored_form stored = hc_form_of(&w->format);
    const hc_component *codes = &w->parts.part[HC_CODES], *scales = &w->parts.part[HC_SCALES];
    if (!hc_form_is_nibbles(&stored) || w->format.m || w->geometry.runs > 1 || w->geometry.columns % STEP_BYTES ||
        codes->row_stride % 16 || (uintptr_t)codes->data % 16)
        return false;
    if (form->mode == HC_INT_GROUPED)
        return form->segments * form->length == w->geometry.columns;
    return w->format.group == 0 ? hc_form_has_f32_scales(&stored)
                                : hc_form_has_nibble_scales(&stored) && w->geometry.group == 16 &&
                                      scales->row_stride % 2 == 0 && (uintptr_t)scales->data % 2 == 0;
}

hc_status hc_cuda_form_of(const hc_cuda_side *x, const hc_cuda_side *w, hc_cuda_form *form, hc_error *error) {
    const hc_int_mode mode =
        x->form[HC_INT_FOLDED].available && w->form[HC_INT_FOLDED].available ? HC_INT_FOLDED : HC_INT_GROUPED;
    const hc_int_form *of_x = &x->form[mode], *of_w = &w->form[mode];
    const int64_t group = mode == HC_INT_FOLDED ? 0 : hc_cuda_segment_of(x, w);
    if (!of_x->available || !of_w->available || of_x->has_minima ||
        (of_w->has_minima && (w->geometry.runs > 1 || w->format.m > 0)))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply these two formats: use the CPU");
    if (group < 0 || (group && (hc_cuda_cuts_blocks(x, group) || hc_cuda_cuts_blocks(w, group))) ||
        x->geometry.whole_columns != w->geometry.whole_columns || (group && x->geometry.runs != w->geometry.runs))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    const int64_t columns = group ? group : x->geometry.whole_columns, most = (int64_t)of_x->max_abs * of_w->max_abs;
    if (columns > INT64_MAX / most)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not add %lld products in 64 bits: use the CPU",
                       (long long)columns);
    *form = (hc_cuda_form){.mode = mode, .group = group, .has_minima = of_w->has_minima};
    form->segments = group ? w->geometry.runs * hc_ceil_div(w->geometry.whole_length, group) : 1;
    if (form->has_minima && form->segments > HC_CUDA_SHARED_BYTES / (int64_t)sizeof(float))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not add minima of %lld groups: use the CPU",
                       (long long)form->segments);
    form->is_wide = of_x->n_limbs > 1 || of_w->n_limbs > 1 || columns > INT32_MAX / most;
    const bool is_24 = !form->is_wide && w->format.n == 2 && w->format.m == 4 && w->geometry.runs == 1;
    form->length = (int32_t)hc_round_up(columns, is_24 ? SPARSE_K : K_BYTES);
    form->ld = hc_round_up(form->segments * form->length, is_24 ? SPARSE_STEP : STEP_BYTES);
    if (is_24)
        form->kind = HC_CUDA_24;
    else if (!form->is_wide && keeps_nibbles(w, form))
        form->kind = HC_CUDA_NIBBLES;
    else if (!form->is_wide && mode == HC_INT_FOLDED && hc_cuda_is_stored_as_integers(w, true, form->ld))
        form->kind = HC_CUDA_STORED;
    return HC_OK;
}

/* The next bytes of what is made; NULL where there is no memory. */
static void *take(hc_cuda_made *made, void *memory, int64_t bytes) {
    const int64_t at = made->bytes;
    made->bytes += hc_round_up(bytes, ALIGNMENT);
    return memory ? (char *)memory + at : NULL;
}

void hc_cuda_lay_out(const hc_cuda_side *w, const hc_cuda_form *form, void *memory, hc_cuda_made *made) {
    const int64_t rows = w->geometry.rows, floats = rows * form->segments * (int64_t)sizeof(float);
    *made = (hc_cuda_made){.integers = NULL};
    bool is_whole = false; /* no zeros lie between the integers */
    if (form->kind == HC_CUDA_BYTES) {
        is_whole = form->ld == w->geometry.whole_columns && w->geometry.runs == 1 && w->format.m == 0;
        made->integers = take(made, memory, w->form[form->mode].n_limbs * rows * form->ld);
    }
    if (form->kind == HC_CUDA_24) {
        made->integers = take(made, memory, rows * (form->ld / 2));
        made->places = take(made, memory, rows * (form->ld / 8));
    }
    made->cleared = is_whole ? 0 : made->bytes;
    if (form->kind != HC_CUDA_STORED && (form->kind != HC_CUDA_NIBBLES || form->mode == HC_INT_GROUPED))
        made->scales = take(made, memory, floats);
    if (form->has_minima)
        made->minima = take(made, memory, floats);
}

hc_status hc_cuda_add_weights(const hc_cuda_side *w, const hc_cuda_form *form, const hc_cuda_made *made,
                              hc_cuda_plan *plan, hc_error *error) {
    if (made->bytes == 0)
        return HC_OK;
    const hc_cuda_integer_rows integers = {.mode = form->mode,
                                           .group = form->group,
                                           .segments = form->segments,
                                           .length = form->length,
                                           .ld = form->ld,
                                           .scales_alone = form->kind == HC_CUDA_NIBBLES,
                                           .integers = made->integers,
                                           .metadata = made->places,
                                           .scales = made->scales};
    const hc_status status = hc_cuda_add_integers(w, integers, plan, error);
    if (status != HC_OK || !form->has_minima)
        return status;
    hc_cuda_step *step = hc_cuda_add_step(plan, "ggml", "hc_minima_ggml",
                                          hc_ceil_div(w->geometry.rows * form->segments, HC_CUDA_MAX_THREADS), 1,
                                          HC_CUDA_MAX_THREADS, 0, sizeof step->params.minima);
    step->params.minima = (hc_cuda_minima){w->format, w->geometry, w->parts, form->segments, form->group, made->minima};
    return HC_OK;
}

/* The form for rows of bytes with one scale each; false: the kernels lack it. */
static bool prepacked_form_of(const hc_cuda_side *w, hc_cuda_form *form) {
    hc_cuda_side x = {.geometry = w->geometry};
    hc_error error;
    for (int mode = 0; mode < HC_N_INT_MODES; mode++)
        x.form[mode] = (hc_int_form){.available = true, .max_abs = BYTE_MOST, .n_limbs = 1};
    return hc_cuda_form_of(&x, w, form, &error) == HC_OK;
}

bool hc_cuda_find_prepacked(const hc_packed *packed, const hc_cuda_side *w, const hc_cuda_form *form,
                            hc_cuda_made *made) {
    hc_cuda_form own;
    if (!packed->prepacked || !prepacked_form_of(w, &own) || own.kind != form->kind || own.mode != form->mode ||
        own.is_wide != form->is_wide || own.length != form->length || own.group != form->group || own.ld != form->ld)
        return false;
    hc_cuda_lay_out(w, form, (void *)(uintptr_t)packed->prepacked, made);
    return true;
}

hc_status hc_cuda_plan_prepack(const hc_packed *packed, void *memory, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_side w = {.format = packed->format, .parts = packed->components};
    hc_cuda_form form;
    hc_cuda_made made;
    hc_error lacking;
    hc_cuda_begin(plan, memory);
    const hc_status status = hc_cuda_packed_geometry(packed, &w.geometry, error);
    if (status != HC_OK)
        return status;
    if (hc_cuda_load_side(&w, &lacking) != HC_OK || !prepacked_form_of(&w, &form))
        return HC_OK;
    hc_cuda_lay_out(&w, &form, memory, &made);
    plan->workspace_bytes = made.bytes;
    if (made.cleared)
        hc_cuda_add_clear(plan, made.integers, made.cleared);
    return hc_cuda_add_weights(&w, &form, &made, plan, error);
}
