/* Chunks of a format: how many groups a thread has, and where its values and components lie in shared memory. */
#include "cuda/steps.h"

#include "base/layout.h"
#include "formats/format.h"

#include <string.h>

enum { ROW_CHUNK = 32 };

/* Bytes of each component of a row with so many columns or groups. What rows share counts as one number. */
static void component_bytes(const hc_format *format, int64_t group, int64_t columns, int32_t bytes[HC_N_COMPONENTS]) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const int64_t groups = group ? columns / group : 1;
    const hc_geometry row = {.rows = 1,
                             .runs = 1,
                             .run_length = columns,
                             .group = group ? group : columns,
                             .groups_per_run = groups,
                             .groups = groups,
                             .columns = columns,
                             .padded = columns,
                             .whole_length = columns,
                             .whole_columns = columns};
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    ops->layout(format, &row, layout);
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        bytes[i] = !layout[i].present  ? -1
                   : layout[i].per_row ? (int32_t)hc_component_bytes(&layout[i])
                                       : (int32_t)hc_dtype_size(layout[i].dtype);
}

/* The smallest number of groups whose components begin and end on bytes; shared memory for `size` bytes a value. */
hc_status hc_cuda_plan_chunks(const hc_format *format, const hc_geometry *geometry, int size, bool has_components,
                              hc_cuda_chunks *chunks, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const int64_t unit = ops->unit ? ops->unit(format) : 1;
    memset(chunks, 0, sizeof *chunks);
    const bool is_row = geometry->groups == 1 && format->group == 0;
    int32_t bytes[HC_N_COMPONENTS], twice[HC_N_COMPONENTS];
    if (is_row) {
        chunks->columns = ROW_CHUNK;
        component_bytes(format, 0, ROW_CHUNK, bytes);
        component_bytes(format, 0, 2 * ROW_CHUNK, twice);
    } else {
        int64_t groups = hc_max(1, unit / geometry->group);
        while (groups * geometry->group * 2 <= ROW_CHUNK && geometry->padded % (groups * geometry->group * 2) == 0)
            groups *= 2;
        for (;; groups *= 2) {
            int32_t eight[HC_N_COMPONENTS];
            component_bytes(format, geometry->group, groups * geometry->group, bytes);
            component_bytes(format, geometry->group, 8 * groups * geometry->group, eight);
            bool is_even = groups * geometry->group % 8 == 0 || groups >= geometry->groups;
            for (int i = 0; i < HC_N_COMPONENTS; i++)
                is_even = is_even && (eight[i] == bytes[i] || eight[i] == 8 * bytes[i]);
            if (is_even || groups * geometry->group > HC_CUDA_SHARED_BYTES)
                break;
        }
        if (groups * geometry->group > HC_CUDA_SHARED_BYTES / size)
            return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not encode groups of %lld values",
                           (long long)geometry->group);
        chunks->groups = (int32_t)groups;
        chunks->columns = (int32_t)(groups * geometry->group);
        component_bytes(format, geometry->group, 2 * chunks->columns, twice);
    }
    chunks->per_row = hc_ceil_div(geometry->padded, chunks->columns);
    chunks->all = chunks->per_row * geometry->rows;
    const int64_t last_columns = geometry->padded - (chunks->per_row - 1) * chunks->columns;
    component_bytes(format, is_row ? 0 : geometry->group, last_columns, chunks->last);
    chunks->ld = chunks->columns | 1; /* odd, so that threads touch all banks */
    if (last_columns == chunks->columns && chunks->columns >= 8 && !(chunks->columns & (chunks->columns - 1)))
        while (chunks->columns >> (chunks->shift + 1))
            chunks->shift++;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        chunks->place[i] = -1;
        if (bytes[i] < 0 || !has_components)
            continue;
        chunks->step[i] = twice[i] == bytes[i] ? 0 : bytes[i];
        chunks->own_bytes = (int32_t)hc_round_up(chunks->own_bytes, 4);
        chunks->place[i] = chunks->own_bytes;
        chunks->own_bytes += bytes[i];
    }
    chunks->own_bytes = has_components ? (int32_t)hc_round_up(chunks->own_bytes, 4) | 4 : 0;
    const int64_t each = (int64_t)chunks->ld * size + chunks->own_bytes;
    chunks->threads = (int32_t)hc_min(HC_CUDA_MAX_THREADS, (HC_CUDA_SHARED_BYTES - 16) / each);
    if (chunks->threads >= HC_WARP)
        chunks->threads -= chunks->threads % HC_WARP;
    if (chunks->threads < 1 || chunks->all > UINT32_MAX) /* HC_ROW_QUOTIENT */
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not take %lld rows with groups of %lld values",
                       (long long)geometry->rows, (long long)geometry->group);
    return HC_OK;
}

int64_t hc_cuda_shared_bytes(const hc_cuda_chunks *chunks, int size) {
    return hc_round_up((int64_t)chunks->threads * chunks->ld * size, 16) + (int64_t)chunks->threads * chunks->own_bytes;
}

bool hc_cuda_is_flat(const hc_cuda_chunks *chunks, const hc_geometry *geometry, const hc_row_view *view) {
    const int64_t size = hc_dtype_size(view->dtype);
    return chunks->shift && view->dtype != HC_F64 && (uintptr_t)view->data % 16 == 0 && view->runs.n == 0 &&
           view->run_length == geometry->padded && view->column_stride == size &&
           (view->rows.n == 0 || (view->rows.n == 1 && view->rows.stride[0] == view->run_length * size));
}

bool hc_cuda_has_flat_parts(const hc_cuda_chunks *chunks, const hc_geometry *geometry, const hc_components *parts) {
    bool flat = chunks->shift > 0;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const hc_component *part = &parts->part[i];
        if (chunks->place[i] >= 0 && chunks->step[i])
            flat = flat && (uintptr_t)part->data % 4 == 0 &&
                   (geometry->rows == 1 || part->row_stride == chunks->per_row * chunks->step[i]);
    }
    return flat;
}

void hc_cuda_add_own_scales(hc_cuda_chunks *chunks, hc_cuda_integer_rows *to) {
    to->own_scales = (int32_t)hc_round_up(chunks->own_bytes, 4);
    chunks->own_bytes = to->own_scales + hc_max(chunks->groups, 1) * (int32_t)sizeof(float);
}
