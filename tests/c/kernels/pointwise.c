/* Operations of one value each: every kernel has the results of the operations of C. */
#include "kernels.h"

#include <inttypes.h>

#define D PRId64

static float within(float a, const hc_pointwise_part *part) {
    return part->low > a ? part->low : a > part->high ? part->high : a;
}

static float value_of(const hc_pointwise_part *part, float a, float b) {
    switch (part->operation) {
    case HC_POINTWISE_ADD:
        return a + b;
    case HC_POINTWISE_SUB:
        return a - b;
    case HC_POINTWISE_MUL:
        return a * b;
    case HC_POINTWISE_DIV:
        return a / b;
    case HC_POINTWISE_CLIP:
        return within(a, part);
    case HC_POINTWISE_HARD: {
        const float product = a * part->scale;
        return within(product + part->shift, part);
    }
    default:
        return a < 0 ? a * part->scale : a;
    }
}

static void pointwise_case(const hc_kernel *kernel, int operation, int64_t n, int steps, float_kind kind) {
    begin("operation %d, %" D " values, steps %d, %s", operation, n, steps, float_kind_name(kind));
    float *a = items(n, 4), *b = items(n, 4), *got = items(n, 4), *wanted = items(n, 4);
    for (int64_t i = 0; i < n; i++) {
        a[i] = draw_float(kind);
        b[i] = draw_float(kind);
    }
    const bool has_two = operation <= HC_POINTWISE_DIV;
    const hc_pointwise_part part = {.operation = (hc_pointwise_operation)operation,
                                    .a = a,
                                    .b = has_two ? b : NULL,
                                    .a_step = steps & 1,
                                    .b_step = has_two ? steps >> 1 : 0,
                                    .low = -0.25f,
                                    .high = 1.5f,
                                    .scale = 0.1f,
                                    .shift = 0.5f,
                                    .to = got};
    for (int64_t i = 0; i < n; i++)
        wanted[i] = value_of(&part, a[i * part.a_step], b[i * (steps >> 1)]);
    kernel->fn.pointwise_f32(n, &part);
    same("results", F32, got, wanted, n);
    if (n == 1 || (part.a_step && (part.b_step || !has_two))) { /* in place */
        hc_pointwise_part own = part;
        own.to = a;
        kernel->fn.pointwise_f32(n, &own);
        same("results in place", F32, a, wanted, n);
    }
    BENCH(hc_pointwise_f32_scalar(n, &part), kernel->fn.pointwise_f32(n, &part));
}

void check_pointwise_f32(const hc_kernel *kernel) {
    for (int operation = 0; operation < HC_N_POINTWISE; operation++) {
        FOR_EACH(int64_t, n, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130)
        for (int steps = 0; steps < 4; steps++)
            for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
                pointwise_case(kernel, operation, *n, steps, (float_kind)kind);
    }
    usual();
    pointwise_case(kernel, HC_POINTWISE_MUL, 1024, 3, PLAIN);
}
