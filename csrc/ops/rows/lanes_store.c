/* Writes sums of lanes to `out`. */
#include "ops/rows/lanes.h"

#include <string.h>

enum { STORED = 8, UNIT = 16 };

/* Writes STORED rows of `out` together. Their cache lines, which often share a set of L1, stay there until they are
 * complete. */
void hc_lanes_store(hc_pack_x32_fn *transpose, const hc_rows *out, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t ld, const float *values) {
    const int64_t step = out->n_dims ? out->stride[0] : 0;
    if (out->n_dims <= 1 && out->column_stride == sizeof(float) && step >= 0 && step % 4 == 0 &&
        step / 4 <= INT32_MAX) {
        for (int64_t i = 0; i < rows; i += STORED) {
            char *to = hc_row(out, row + i) + column * 4;
            for (int64_t j = 0; j < columns; j += UNIT)
                transpose(values + j * ld + i, ld * 4, (int)hc_min(UNIT, columns - j), hc_min(STORED, rows - i),
                          to + j * 4, (int)(step / 4), 0);
        }
        return;
    }
    const int last = out->n_dims - 1;
    if (last >= 0 &&
        out->stride[last] == sizeof(float)) { /* planes of images: a column is contiguous, as in `values` */
        for (int64_t i = 0, even; i < rows; i += even) {
            even = rows - i;
            if (last > 0)
                even = hc_min(even, out->shape[last] - (out->first + row + i) % out->shape[last]);
            char *to = hc_row(out, row + i) + column * out->column_stride;
            for (int64_t j = 0; j < columns; j++, to += out->column_stride)
                memcpy(to, values + j * ld + i, (size_t)even * sizeof(float));
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        char *to = hc_row(out, row + i) + column * out->column_stride;
        for (int64_t j = 0; j < columns; j++, to += out->column_stride)
            memcpy(to, values + j * ld + i, sizeof(float));
    }
}
