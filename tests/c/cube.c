/* The program of cube.h. */
#include "cube.h"
#include "arrays.h"
#include "guard.h"
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 512 };

int cube(int n_arguments, char **arguments) {
    if (n_arguments != 2 || (strcmp(arguments[0], "int8") != 0 && strcmp(arguments[0], "float32") != 0)) {
        printf("FAILED cube: expected int8 or float32, and a number of products\n");
        return 1;
    }
    const bool packs = strcmp(arguments[0], "int8") == 0;
    const hc_format int8 = {.family = PLAIN_INT, .bits = 8, .group = 0, .option = {1, 0}};
    const hc_clip absmax = {HC_CLIP_ABSMAX, 0};
    const int64_t shape[2] = {SIDE, SIDE};
    const int axis = 1;
    const hc_run run = {.isa = hc_cpu_isa(), .n_threads = 1};
    const int64_t n = (int64_t)SIDE * SIDE;
    const hc_view x = view_of(converted(random_values(n, 7), n, HC_F32), HC_F32, 2, shape);
    const hc_view w = view_of(converted(random_values(n, 8), n, HC_F32), HC_F32, 2, shape);
    const hc_view out = view_of(guard_alloc((size_t)n * sizeof(float)), HC_F32, 2, shape);
    hc_packed packed;
    hc_geometry geometry;
    hc_error error;
    hc_status status = HC_OK;
    if (!make_packed(&int8, 2, shape, 1, &axis, &packed, &geometry, &error))
        status = HC_VALUE;
    if (status == HC_OK)
        status = hc_quantize(&run, &w, &absmax, &packed, &error);
    packed.axes[0] = 0; /* now the transpose; the stored rows are unchanged */
    const hc_operand left = {.dense = &x}, right = {.packed = packs ? &packed : NULL, .dense = packs ? NULL : &w};
    for (int i = atoi(arguments[1]); status == HC_OK && i > 0; i--)
        status = hc_matmul(&run, &left, &right, packs ? &int8 : NULL, NULL, &out, &error);
    if (status != HC_OK)
        printf("FAILED cube: %s\n", error.text);
    guard_release();
    return status != HC_OK;
}
