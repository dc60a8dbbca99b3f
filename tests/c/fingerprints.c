#include "fingerprints.h"

#include "arrays.h"
#include "guard.h"
#include "operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of weight rows and of vectors. With a pattern: enough for one block of rows and a remainder. */
enum { ROWS = 5, FEW = 3, MANY = 12, PATTERN_ROWS = 35, PATTERN_MANY = 20 };

void add_bytes(uint64_t *hash, const void *data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

static bool find_family(const char *wanted, int32_t *family) {
    const char *name, *description;
    for (*family = 0; hc_family(*family, &name, &description); ++*family)
        if (strcmp(name, wanted) == 0)
            return true;
    return false;
}

bool read_format(char *line, char **text, hc_format *format) {
    *format = (hc_format){0};
    *text = strtok(line, " \n");
    const char *n = strtok(NULL, " \n"), *m = strtok(NULL, " \n"), *family = strtok(NULL, " \n");
    if (!*text || !n || !m || !family || !find_family(family, &format->family))
        return false;
    format->n = (int32_t)atol(n);
    format->m = (int32_t)atol(m);
    for (int i = 0; i < 2 + HC_N_OPTIONS; i++) {
        const char *word = strtok(NULL, " \n");
        if (!word)
            break;
        *(i == 0 ? &format->bits : i == 1 ? &format->group : &format->option[i - 2]) = (int32_t)atol(word);
    }
    return true;
}

/* Prunes, then quantizes the kept values; except for the metadata, components are as without the pattern. */
static hc_status encode_pattern(const hc_run *run, const hc_view *w, hc_packed *packed, hc_error *error) {
    static const hc_clip ABSMAX = {HC_CLIP_ABSMAX, 0};
    const int n = packed->format.n, m = packed->format.m;
    int64_t size, bytes;
    hc_status status = hc_prune_sizes(w, n, m, packed->n_axes, packed->axes, &size, &bytes, error);
    if (status != HC_OK)
        return status;
    const int64_t kept_shape[2] = {w->shape[0], size / w->shape[0]};
    float *values = guard_alloc((size_t)size * 4);
    hc_packed kept = *packed;
    kept.format.n = kept.format.m = 0;
    kept.shape[1] = kept_shape[1];
    const hc_view kept_view = view_of(values, HC_F32, 2, kept_shape);
    status = hc_prune(run, w, NULL, n, m, packed->n_axes, packed->axes, values,
                      packed->components.part[HC_METADATA].data, error);
    return status == HC_OK ? hc_quantize(run, &kept_view, &ABSMAX, &kept, error) : status;
}

/* Matmuls with few and with many vectors, without and with quantized activations, without and with prepacked panels.
 * `packed` is the transpose of the quantized array: its stored rows are the same. */
static hc_status products(const hc_run *run, const hc_packed *packed, uint64_t *hash, hc_error *error) {
    const int64_t k = packed->shape[0], rows = packed->shape[1];
    const int64_t few = packed->format.m ? 1 : FEW, many = packed->format.m ? PATTERN_MANY : MANY;
    hc_format activations = packed->format; /* without the pattern */
    activations.n = activations.m = 0;
    hc_prepacked *panels = NULL;
    hc_status status = hc_prepack(run, packed, &panels, error);
    hc_packed before = *packed;
    before.prepacked = panels;
    for (int i = 0; i < 8 && status == HC_OK; i++) {
        const int64_t m = i % 2 ? many : few, x_shape[2] = {m, k}, y_shape[2] = {m, rows};
        const hc_view x = view_of(converted(random_values(m * k, 9), m * k, HC_F32), HC_F32, 2, x_shape);
        float *y = guard_alloc((size_t)(m * rows) * 4);
        const hc_view y_view = view_of(y, HC_F32, 2, y_shape);
        const hc_operand left = {.dense = &x}, right = {.packed = i < 4 ? packed : &before};
        status = hc_matmul(run, &left, &right, i % 4 < 2 ? NULL : &activations, NULL, &y_view, error);
        if (status == HC_OK)
            add_bytes(hash, y, m * rows * 4);
    }
    hc_prepacked_free(panels);
    return status;
}

/* 1 x 1 convolutions of two images of 2 x 3 pixels; the filters are the rows of `packed`. */
static hc_status convolutions(const hc_run *run, const hc_packed *packed, uint64_t *hash, hc_error *error) {
    enum { N = 2, H = 2, W = 3 };
    const int64_t filters = packed->shape[0], channels = packed->shape[1];
    const int64_t x_shape[4] = {N, channels, H, W}, y_shape[4] = {N, filters, H, W}, size = N * channels * H * W;
    hc_packed w = *packed;
    w.ndim = 4;
    w.shape[2] = w.shape[3] = 1;
    w.n_axes = 3;
    memcpy(w.axes, (const int[]){2, 3, 1}, 3 * sizeof(int));
    hc_format activations = packed->format;
    activations.n = activations.m = 0;
    const hc_window window = {{1, 1}, {0, 0}, {1, 1}, 1};
    const hc_view x = view_of(converted(random_values(size, 11), size, HC_F32), HC_F32, 4, x_shape);
    hc_status status = HC_OK;
    for (int i = 0; i < 2 && status == HC_OK; i++) {
        float *y = guard_alloc((size_t)(N * filters * H * W) * 4);
        const hc_view out = view_of(y, HC_F32, 4, y_shape);
        const hc_operand right = {.packed = &w};
        status = hc_conv2d(run, &x, &right, NULL, &window, NULL, i ? &activations : NULL, &out, error);
        if (status == HC_OK)
            add_bytes(hash, y, N * filters * H * W * 4);
    }
    return status;
}

/* hc_fake_quantize with every kind of clipping that the format accepts. */
static hc_status in_one(const hc_run *run, const hc_format *format, const hc_view *w, uint64_t *hash, hc_error *error) {
    static const hc_clip CLIPS[] = {{HC_CLIP_ABSMAX, 0}, {HC_CLIP_PERCENTILE, 90}, {HC_CLIP_OCTAV, 0}};
    const int axis = 1;
    const int64_t size = w->shape[0] * w->shape[1];
    hc_format plain = *format;
    plain.n = plain.m = 0;
    for (size_t i = 0; i < sizeof CLIPS / sizeof *CLIPS; i++) {
        float *values = guard_alloc((size_t)size * 4);
        const hc_view out = view_of(values, HC_F32, 2, w->shape);
        const hc_status status = hc_fake_quantize(run, w, &plain, 1, &axis, &CLIPS[i], NULL, &out, error);
        if (status == HC_VALUE && i > 0)
            continue; /* the format has no scale that clipping could change */
        if (status != HC_OK)
            return status;
        add_bytes(hash, values, size * 4);
    }
    return HC_OK;
}

hc_status fingerprint(const hc_run *run, const hc_format *format, int64_t k, uint64_t *hash, hc_error *error) {
    const int64_t rows = format->m ? PATTERN_ROWS : ROWS, shape[2] = {rows, k};
    const int axis = 1;
    const hc_clip clip = {HC_CLIP_ABSMAX, 0};
    hc_packed packed;
    hc_geometry geometry;
    if (!make_packed(format, 2, shape, 1, &axis, &packed, &geometry, error))
        return HC_VALUE;
    const hc_view w = view_of(converted(random_values(rows * k, 5), rows * k, HC_F32), HC_F32, 2, shape);
    float *values = guard_alloc((size_t)(rows * k) * 4);
    const hc_view out = view_of(values, HC_F32, 2, shape);
    hc_status status =
        format->m ? encode_pattern(run, &w, &packed, error) : hc_quantize(run, &w, &clip, &packed, error);
    if (status == HC_OK)
        status = hc_dequantize(run, &packed, &out, error);
    if (status != HC_OK)
        return status;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_layout(format, 2, shape, 1, &axis, &geometry, layout, error);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        int64_t bytes = layout[i].present ? hc_dtype_size(layout[i].dtype) * (layout[i].per_row ? rows : 1) : 0;
        for (int d = 0; d < layout[i].ndim; d++)
            bytes *= layout[i].shape[d];
        add_bytes(hash, packed.components.part[i].data, bytes);
    }
    add_bytes(hash, values, rows * k * 4);
    if ((status = in_one(run, format, &w, hash, error)) != HC_OK ||
        (status = convolutions(run, &packed, hash, error)) != HC_OK)
        return status;
    packed.shape[0] = k;
    packed.shape[1] = rows;
    packed.axes[0] = 0;
    return products(run, &packed, hash, error);
}

/* Prints a line: the fingerprint that all instruction sets share, or the error. */
typedef hc_status fingerprint_fn(const hc_run *run, const void *of, uint64_t *hash, hc_error *error);
static bool print_fingerprint(const char *name, fingerprint_fn *take, const void *of) {
    const uint32_t all = hc_cpu_isa();
    uint64_t first = 0;
    bool passed = true;
    for (int i = -1; i <= HC_N_ISA; i++) {
        uint32_t mask = 0;
        if (i < 0)
            hc_isa_from_name("scalar", &mask);
        else if (i == HC_N_ISA)
            mask = all;
        else if (!hc_isa_from_name(hc_isa_name(1u << i), &mask) || (mask & ~all) != 0)
            continue;
        const hc_run run = {.isa = mask, .n_threads = i < HC_N_ISA ? 1 : 3};
        uint64_t hash = 0xcbf29ce484222325u;
        hc_error error = {0};
        bool ok = take(&run, of, &hash, &error) == HC_OK;
        ok = guard_release() && ok;
        first = i < 0 ? hash : first;
        if (!ok || hash != first) {
            printf("FAILED %s, mask %x: %s\n", name, mask, ok ? "other bits than scalar" : error.text);
            passed = false;
        }
    }
    printf("%s %016llx\n", name, (unsigned long long)first);
    return passed;
}

static hc_status of_format(const hc_run *run, const void *of, uint64_t *hash, hc_error *error) {
    static const int64_t COLUMNS[] = {1, 37, 64, 200}, PATTERN_COLUMNS[] = {1, 37, 328};
    const hc_format *format = of;
    hc_status status = HC_OK;
    for (size_t j = 0; format->m == 0 && status == HC_OK && j < sizeof COLUMNS / sizeof *COLUMNS; j++)
        status = fingerprint(run, format, COLUMNS[j], hash, error);
    for (size_t j = 0; format->m && status == HC_OK && j < sizeof PATTERN_COLUMNS / sizeof *PATTERN_COLUMNS; j++)
        status = fingerprint(run, format, PATTERN_COLUMNS[j], hash, error);
    return status;
}

static hc_status of_operation(const hc_run *run, const void *of, uint64_t *hash, hc_error *error) {
    return ((const operation *)of)->take(run, hash, error);
}

int fingerprints(void) {
    char line[256];
    bool passed = true;
    while (fgets(line, sizeof line, stdin)) {
        char *text;
        hc_format format;
        if (!read_format(line, &text, &format)) {
            printf("FAILED no format in the line: %s\n", line);
            return 1;
        }
        passed = print_fingerprint(text, of_format, &format) && passed;
    }
    for (const operation *one = OPERATIONS; one->name; one++)
        passed = print_fingerprint(one->name, of_operation, one) && passed;
    return !passed;
}
