#include "fingerprints.h"

#include "arrays.h"
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5, FEW = 3, MANY = 12 };

static void add(uint64_t *hash, const void *data, size_t bytes) { /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

static bool find_family(const char *wanted, int32_t *family) {
    const char *name, *description;
    for (*family = 0; hc_family(*family, &name, &description); ++*family)
        if (strcmp(name, wanted) == 0)
            return true;
    return false;
}

static bool parse(char *line, char **text, hc_format *format) {
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

/* false, with a sentence, where a call fails. */
static bool fingerprint(const hc_run *run, const hc_format *format, int64_t k, uint64_t *hash, hc_error *error) {
    const int64_t shape[2] = {N, k};
    const int axis = 1;
    const hc_clip clip = {HC_CLIP_ABSMAX, 0};
    hc_packed packed;
    hc_geometry geometry;
    if (!make_packed(format, 2, shape, 1, &axis, &packed, &geometry, error))
        return false;
    const hc_view w = view_of(converted(random_values(N * k, 5), N * k, HC_F32), HC_F32, 2, shape);
    float *values = guard_alloc((size_t)(N * k) * 4);
    const hc_view out = view_of(values, HC_F32, 2, shape);
    if (hc_quantize(run, &w, &clip, &packed, error) != HC_OK || hc_dequantize(run, &packed, &out, error) != HC_OK)
        return false;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_layout(format, 2, shape, 1, &axis, &geometry, layout, error);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        int64_t bytes = layout[i].present ? hc_dtype_size(layout[i].dtype) * (layout[i].per_row ? N : 1) : 0;
        for (int d = 0; d < layout[i].ndim; d++)
            bytes *= layout[i].shape[d];
        add(hash, packed.components.part[i].data, (size_t)bytes);
    }
    add(hash, values, (size_t)(N * k) * 4);

    packed.shape[0] = k; /* its transpose: the same rows */
    packed.shape[1] = N;
    packed.axes[0] = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t m = i % 2 ? MANY : FEW, x_shape[2] = {m, k}, y_shape[2] = {m, N};
        const hc_view x = view_of(converted(random_values(m * k, 9), m * k, HC_F32), HC_F32, 2, x_shape);
        float *y = guard_alloc((size_t)(m * N) * 4);
        const hc_view y_view = view_of(y, HC_F32, 2, y_shape);
        const hc_operand left = {.dense = &x}, right = {.packed = &packed};
        if (hc_matmul(run, &left, &right, i < 2 ? NULL : format, NULL, &y_view, error) != HC_OK)
            return false;
        add(hash, y, (size_t)(m * N) * 4);
    }
    return true;
}

int fingerprints(void) {
    static const int64_t COLUMNS[] = {1, 37, 64, 200};
    char line[256];
    int failed = 0;
    while (fgets(line, sizeof line, stdin)) {
        char *text;
        hc_format format;
        hc_error error = {""};
        uint64_t first = 0;
        if (!parse(line, &text, &format)) {
            printf("FAILED no format in the line: %s\n", line);
            return 1;
        }
        for (int i = -1; i <= HC_N_ISA; i++) {
            uint32_t mask = 0, hash_mask = hc_cpu_isa();
            if (i < 0)
                hc_isa_from_name("scalar", &mask);
            else if (i == HC_N_ISA)
                mask = hash_mask;
            else if (!hc_isa_from_name(hc_isa_name(1u << i), &mask) || (mask & ~hash_mask) != 0)
                continue;
            const hc_run run = {.isa = mask, .n_threads = i < HC_N_ISA ? 1 : 3};
            uint64_t hash = 0xcbf29ce484222325u;
            bool ok = true;
            for (size_t j = 0; ok && j < sizeof COLUMNS / sizeof *COLUMNS; j++)
                ok = fingerprint(&run, &format, COLUMNS[j], &hash, &error);
            ok = guard_release() && ok;
            first = i < 0 ? hash : first;
            if (!ok || hash != first) {
                printf("FAILED %s, mask %x: %s\n", text, mask, ok ? "other bits than scalar" : error.text);
                failed = 1;
            }
        }
        printf("%s %016llx\n", text, (unsigned long long)first);
    }
    return failed;
}
