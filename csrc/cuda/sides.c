/* One side of a product of integers; sides.h. */
#include "cuda/sides.h"
#include "cuda/formats/families.h"

#include "formats/format.h"
#include "ops/codec/rows.h"

#include <string.h>

hc_status hc_cuda_load_side(hc_cuda_side *side, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(side->format.family);
    hc_format whole = side->format; /* what a pattern drops is zeros among the integers */
    whole.n = whole.m = 0;
    const hc_status status = hc_cuda_refuse(&whole, &side->geometry, false, error);
    if (status != HC_OK)
        return status;
    memset(side->form, 0, sizeof side->form);
    const bool is_kept = side->format.m > 0 && hc_cuda_stored_like(&side->format, HC_CUDA_INTEGERS).family ==
                                                   FAMILY_own; /* without a kernel */
    const bool has_integers = ops->int_form && !is_kept && hc_cuda_kernel_of(&side->format, HC_CUDA_INTEGERS).name;
    for (int mode = 0; mode <= HC_INT_GROUPED && has_integers; mode++)
        ops->int_form(&side->format, (hc_int_mode)mode, &side->form[mode]);
    return HC_OK;
}

/* Whole columns of a group. */
static int64_t group_of(const hc_cuda_side *side) {
    const int64_t group = side->geometry.group;
    return !side->format.group ? 0 : side->format.m ? group / side->format.n * side->format.m : group;
}

/* Columns of a segment, 0 for the whole row; -1: the groups of the two sides do not nest. */
int64_t hc_cuda_segment_of(const hc_cuda_side *x, const hc_cuda_side *w) {
    const int64_t a = group_of(x), b = group_of(w);
    if (a == 0 || b == 0)
        return a + b;
    if (x->geometry.groups_per_run == 1 || w->geometry.groups_per_run == 1) /* which ends with the run, as all do */
        return x->geometry.groups_per_run > 1 ? a : w->geometry.groups_per_run > 1 ? b : hc_max(a, b);
    return a % b == 0 ? b : b % a == 0 ? a : -1;
}

/* True if a segment ends inside a block of the side's pattern. */
bool hc_cuda_cuts_blocks(const hc_cuda_side *side, int64_t group) {
    return side->format.m && group < side->geometry.whole_length && group % side->format.m;
}

/* How the integers of a side lie in rows. */
static void complete(const hc_cuda_side *side, hc_cuda_integer_rows *to) {
    to->n_limbs = side->form[to->mode].n_limbs;
    to->per_run = to->group ? hc_ceil_div(side->geometry.whole_length, to->group) : 0;
}

hc_status hc_cuda_add_quantized_integers(const hc_cuda_side *side, const hc_view *x, int n_axes, const int *axes,
                                         hc_cuda_integer_rows to, int64_t cleared, hc_cuda_plan *plan,
                                         hc_error *error) {
    complete(side, &to);
    const hc_cuda_result result = {.to = &to};
    return hc_cuda_add_quantize(x, NULL, &side->format, &side->geometry, n_axes, axes, &result, cleared, plan, error);
}

hc_status hc_cuda_add_integers(const hc_cuda_side *side, hc_cuda_integer_rows to, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_integers p = {.format = hc_cuda_stored_like(&side->format, HC_CUDA_INTEGERS),
                          .geometry = side->geometry,
                          .parts = side->parts,
                          .to = to};
    complete(side, &p.to);
    const hc_status status = hc_cuda_plan_chunks(&side->format, &side->geometry, 1, true, &p.chunks, error);
    if (status != HC_OK)
        return status;
    p.chunks.ld = hc_cuda_integers_ld(p.chunks.columns);
    hc_cuda_add_own_scales(&p.chunks, &p.to);
    p.format = hc_cuda_add_record(&p.format, &p.geometry, plan);
    p.chunks.flat = hc_cuda_has_flat_parts(&p.chunks, &p.geometry, &p.parts) ? HC_FLAT_PARTS : 0;
    const int64_t each = p.chunks.ld * p.to.n_limbs + p.chunks.own_bytes;
    p.chunks.threads = (int32_t)hc_min(p.chunks.threads, (HC_CUDA_SHARED_BYTES - 16) / each);
    const hc_cuda_entry kernel = hc_cuda_kernel_of(&side->format, HC_CUDA_INTEGERS);
    hc_cuda_step *step = hc_cuda_add_step(plan, kernel.module, kernel.name, hc_ceil_div(p.chunks.all, p.chunks.threads),
                                          1, p.chunks.threads, hc_cuda_shared_bytes(&p.chunks, p.to.n_limbs), sizeof p);
    step->params.integers = p;
    return HC_OK;
}

/* Where workspace is reserved for what a format stores of rows. */
void hc_cuda_reserve_parts(const hc_format *format, const hc_geometry *geometry, hc_cuda_plan *plan,
                           hc_components *parts) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_format_layout(format, geometry, layout);
    memset(parts, 0, sizeof *parts);
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        if (layout[i].present) {
            const int64_t bytes = hc_component_bytes(&layout[i]);
            parts->part[i].row_stride = layout[i].per_row ? bytes : 0;
            parts->part[i].data = hc_cuda_reserve(plan, layout[i].per_row ? bytes * geometry->rows : bytes);
        }
}

/* Rows of `length` values a run in the workspace. */
static hc_view rows_of(const hc_geometry *geometry, int64_t length, hc_dtype dtype, hc_cuda_plan *plan) {
    hc_view values = {.dtype = dtype, .ndim = 3, .shape = {geometry->rows, geometry->runs, length}};
    int64_t step = hc_dtype_size(dtype);
    for (int i = 2; i >= 0; step *= values.shape[i--])
        values.strides[i] = step;
    values.data = hc_cuda_reserve(plan, step);
    return values;
}

static const int AXES[] = {1, 2};

hc_status hc_cuda_decode_rows(const hc_packed *packed, const hc_geometry *geometry, hc_dtype dtype, hc_cuda_plan *plan,
                              const void **decoded, hc_error *error) {
    hc_cuda_codec codec = {.format = packed->format, .geometry = *geometry, .parts = packed->components};
    const int size = (int)hc_dtype_size(dtype);
    const hc_status status = hc_cuda_plan_chunks(&packed->format, geometry, size, true, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    const hc_view values = rows_of(geometry, geometry->run_length, dtype, plan);
    hc_rows_init(&codec.x, &values, geometry, 2, AXES);
    hc_cuda_add_decode(plan, &codec, size);
    *decoded = values.data;
    return HC_OK;
}

hc_status hc_cuda_decode_whole(const hc_packed *packed, const hc_geometry *geometry, hc_cuda_plan *plan,
                               const void **decoded, hc_error *error) {
    if (packed->format.m == 0)
        return hc_cuda_decode_rows(packed, geometry, HC_F32, plan, decoded, error);
    const hc_view values = rows_of(geometry, geometry->whole_length, HC_F32, plan);
    *decoded = values.data;
    return hc_cuda_add_decode_kept(packed, geometry, 0, &values, 2, AXES, plan, error);
}
