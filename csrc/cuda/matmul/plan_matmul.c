/* Steps of a matmul: both sides become rows of integers, or w stays packed, or x meets float values (cuda/hc_cuda.h). */
#include "cuda/matmul/plans.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

enum { MOST_STRIDE = 1 << 24 /* bytes of a row: the offset of the last of a block's 256 rows fits 32 bits */ };

/* After a gemm without bias. */
static void add_minima(const hc_cuda_gemm *gemm, const float *bias, const float *minima, hc_cuda_plan *plan) {
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "minima", "hc_add_minima", gemm->m, hc_ceil_div(gemm->n, HC_CUDA_MAX_THREADS),
                         HC_CUDA_MAX_THREADS, gemm->segments * (int64_t)sizeof(float), sizeof step->params.add_minima);
    step->params.add_minima = (hc_cuda_add_minima){*gemm, minima};
    step->params.add_minima.gemm.bias = bias;
}

/* The operands of a product of integers, and the order of its sums. */
static hc_status load(const hc_operand *x, const hc_format *activations, const hc_packed *packed, const float *bias,
                      const hc_view *out, const hc_cuda_plan *plan, hc_cuda_product *p, hc_error *error) {
    hc_cuda_init_product(p, plan);
    hc_cuda_side *a = &p->x, *w = &p->w;
    *a = (hc_cuda_side){.format = x->packed ? x->packed->format : *activations};
    *w = (hc_cuda_side){.format = packed->format, .parts = packed->components};
    const int last = x->dense ? x->dense->ndim - 1 : 0;
    hc_status status = hc_cuda_packed_geometry(packed, &w->geometry, error);
    if (status == HC_OK)
        status = x->packed
                     ? hc_cuda_packed_geometry(x->packed, &a->geometry, error)
                     : hc_format_geometry(activations, x->dense->ndim, x->dense->shape, 1, &last, &a->geometry, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(a, error);
    if (status == HC_OK)
        status = hc_cuda_load_side(w, error);
    if (status == HC_OK)
        status = hc_cuda_form_of(a, w, &p->form, error);
    if (status != HC_OK)
        return status;
    const hc_cuda_form *form = &p->form;
    /* a block that adds minima has a float of each segment in shared memory */
    const bool has_room = !form->has_minima || form->segments <= HC_CUDA_SHARED_BYTES / (int64_t)sizeof(float);
    const hc_component *codes = &w->parts.part[HC_CODES], *scales = &w->parts.part[HC_SCALES];
    const bool has_offsets = hc_max(form->ld, hc_max(codes->row_stride, scales->row_stride)) < MOST_STRIDE;
    if (w->geometry.rows > HC_CUDA_MOST_ROWS || !hc_cuda_has_even_rows(out) || !has_room || !has_offsets)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    p->section = form->mode == HC_INT_FOLDED ? HC_CUDA_FOLDED : HC_CUDA_GROUPED;
    p->m = a->geometry.rows;
    p->n = w->geometry.rows;
    p->gemm = hc_cuda_gemm_of(out);
    p->gemm.m = p->m;
    p->gemm.n = p->n;
    p->gemm.mode = form->mode;
    p->gemm.segments = form->segments;
    p->gemm.length = form->length;
    p->gemm.bias = form->has_minima ? NULL : bias;
    p->gemm.x_limbs = a->form[form->mode].n_limbs;
    p->gemm.w_limbs = w->form[form->mode].n_limbs;
    if (x->packed)
        a->parts = x->packed->components;
    return HC_OK;
}

hc_status hc_cuda_plan_matmul(const hc_operand *x, const hc_format *activations, const hc_packed *packed,
                              const float *bias, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                              hc_error *error) {
    hc_cuda_begin(plan, workspace);
    if (x->dense && !activations)
        return hc_cuda_plan_floats(x->dense, packed, bias, out, plan, error);
    hc_cuda_product p;
    const hc_cuda_path *path;
    hc_status status = load(x, activations, packed, bias, out, plan, &p, error);
    if (status == HC_OK)
        status = hc_cuda_choose(&p, plan, &path, error);
    if (status != HC_OK)
        return status;
    const hc_cuda_form *form = &p.form;
    hc_cuda_side *a = &p.x;
    hc_cuda_gemm *gemm = &p.gemm;
    const int last = x->dense ? x->dense->ndim - 1 : 0;
    gemm->ld = hc_cuda_ld_of(&p, path);
    const bool x_is_stored = form->mode == HC_INT_FOLDED && !form->is_wide && !path->interleaves &&
                             hc_cuda_is_stored_as_integers(a, x->packed != NULL, gemm->ld);
    const bool is_made = !path->reads_pieces && !hc_cuda_find_prepacked(packed, &p.w, form, &p.made);
    if (is_made) {
        hc_cuda_lay_out(&p.w, form, NULL, &p.made);
        hc_cuda_lay_out(&p.w, form, hc_cuda_reserve(plan, p.made.bytes), &p.made);
        if (p.made.cleared)
            hc_cuda_add_clear(plan, p.made.integers, p.made.cleared);
    }
    float *x_scales = hc_cuda_reserve(plan, gemm->m * gemm->segments * (int64_t)sizeof(float));
    const int64_t x_bytes = x_is_stored ? 0 : gemm->x_limbs * gemm->m * gemm->ld;
    const bool x_is_whole = a->geometry.columns == gemm->ld && a->format.m == 0; /* no zeros lie between its integers */
    const int64_t cleared = x_is_whole || !x_bytes ? -1 : plan->workspace_bytes;
    int8_t *x_integers = hc_cuda_reserve(plan, x_bytes);
    gemm->x = x_integers;
    gemm->x_scales = x_scales;
    if (x_is_stored && !x->packed) {
        const hc_cuda_result result = {.parts = &a->parts};
        hc_cuda_reserve_parts(&a->format, &a->geometry, plan, &a->parts);
        status = hc_cuda_add_quantize(x->dense, NULL, &a->format, &a->geometry, 1, &last, &result, -1, plan, error);
    }
    if (x_is_stored) {
        gemm->x = (const int8_t *)a->parts.part[HC_CODES].data;
        gemm->x_scales = (const float *)a->parts.part[HC_SCALES].data;
    } else {
        const hc_cuda_integer_rows to = {.mode = form->mode,
                                         .group = form->group,
                                         .segments = form->segments,
                                         .length = form->length,
                                         .ld = gemm->ld,
                                         .for_nibbles = path->interleaves,
                                         .integers = x_integers,
                                         .scales = x_scales};
        if (x->packed && cleared >= 0)
            hc_cuda_add_clear(plan, x_integers, x_bytes);
        status = x->packed ? hc_cuda_add_integers(a, to, plan, error)
                           : hc_cuda_add_quantized_integers(a, x->dense, 1, &last, to, cleared, plan, error);
    }
    if (status == HC_OK && is_made)
        status = hc_cuda_add_weights(&p.w, form, &p.made, plan, error);
    if (status != HC_OK)
        return status;
    gemm->w = p.made.integers;
    gemm->w_scales = p.made.scales;
    if (form->kind == HC_CUDA_STORED && !path->reads_pieces) {
        gemm->w = (const int8_t *)p.w.parts.part[HC_CODES].data;
        gemm->w_scales = (const float *)p.w.parts.part[HC_SCALES].data;
    }
    path->add(&p, path, plan);
    if (form->has_minima)
        add_minima(gemm, bias, p.made.minima, plan);
    return HC_OK;
}
