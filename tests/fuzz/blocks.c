/* Blocks of GGUF as any bytes: each is read into an array, decoded and written back without an invalid access.
 *
 * A target of libFuzzer, in the form of OSS-Fuzz: build.sh compiles it. The first byte chooses the type, the second the
 * number of blocks per row; the rest are rows of blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "hc.h"

static const struct {
    const char *name, *family;
    int32_t bits, group, option;
} TYPES[] = {
    {"q4_0", "ggml", 4, 32, 0}, {"q4_1", "ggml", 4, 32, 1}, {"q5_0", "ggml", 5, 32, 2},    {"q5_1", "ggml", 5, 32, 3},
    {"q8_0", "ggml", 8, 32, 4}, {"q2_k", "ggml", 2, 16, 5}, {"q3_k", "ggml", 3, 16, 6},    {"q4_k", "ggml", 4, 32, 7},
    {"q5_k", "ggml", 5, 32, 8}, {"q6_k", "ggml", 6, 16, 9}, {"iq4_nl", "ggml", 4, 32, 10},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES, BLOCK = 256, MOST_ROWS = 64 };

static int32_t family_number(const char *wanted) {
    const char *name, *description;
    for (int32_t i = 0; hc_family(i, &name, &description); i++)
        if (strcmp(name, wanted) == 0)
            return i;
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    const int type = data[0] % N_TYPES;
    const int64_t columns = (1 + data[1] % 4) * (int64_t)BLOCK, row = hc_blocks_bytes(TYPES[type].name, columns);
    int64_t rows = row > 0 ? (int64_t)(size - 2) / row : 0;
    if (rows == 0)
        return 0;
    rows = rows > MOST_ROWS ? MOST_ROWS : rows;
    const hc_format format = {.family = family_number(TYPES[type].family),
                              .bits = TYPES[type].bits,
                              .group = TYPES[type].group,
                              .option = {TYPES[type].option}};
    const hc_run run = {.isa = hc_cpu_isa(), .n_threads = 1};
    hc_packed packed = {.format = format, .ndim = 2, .shape = {rows, columns}, .n_axes = 1, .axes = {1}};
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_geometry geometry;
    hc_error error;
    if (hc_layout(&format, 2, packed.shape, 1, packed.axes, &geometry, layout, &error) != HC_OK)
        abort();
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        int64_t bytes = hc_dtype_size(layout[i].dtype);
        for (int d = 0; d < layout[i].ndim; d++)
            bytes *= layout[i].shape[d];
        packed.components.part[i].row_stride = layout[i].per_row ? bytes : 0;
        packed.components.part[i].data = calloc((size_t)(layout[i].per_row ? bytes * rows : bytes), 1);
    }
    uint8_t *blocks = malloc((size_t)(rows * row)), *again = malloc((size_t)(rows * row));
    float *values = malloc((size_t)(rows * columns) * sizeof *values);
    memcpy(blocks, data + 2, (size_t)(rows * row));
    if (hc_read_blocks(&run, TYPES[type].name, blocks, &packed, &error) == HC_OK) {
        const hc_view out = {.data = values,
                             .ndim = 2,
                             .shape = {rows, columns},
                             .strides = {columns * (int64_t)sizeof *values, sizeof *values}};
        if (hc_dequantize(&run, &packed, &out, &error) != HC_OK)
            abort();
        if (hc_write_blocks(&run, TYPES[type].name, &packed, again, &error) == HC_OK &&
            memcmp(blocks, again, (size_t)(rows * row)) != 0)
            abort();
    }
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        free(packed.components.part[i].data);
    free(blocks);
    free(again);
    free(values);
    return 0;
}
