/* The clipping thresholds of groups, against their equations, and operations of one value each. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define D PRId64

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void pair_definition(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper) {
    for (int64_t g = 0; g < groups; g++) {
        float *sorted = malloc((size_t)n * sizeof *sorted);
        for (int64_t i = 0; i < n; i++)
            sorted[i] = fabsf(x[g * n + i]);
        qsort(sorted, (size_t)n, sizeof *sorted, descending);
        lower[g] = sorted[place - 1];
        upper[g] = sorted[place > 1 ? place - 2 : 0];
        free(sorted);
    }
}

static void maxima_definition(int64_t groups, int64_t n, const float *x, float *maxima) {
    for (int64_t g = 0; g < groups; g++) {
        uint32_t largest = 0, bits;
        for (int64_t i = 0; i < n; i++) {
            memcpy(&bits, x + g * n + i, 4);
            largest = (bits & INT32_MAX) > largest ? bits & INT32_MAX : largest;
        }
        memcpy(maxima + g, &largest, 4);
    }
}

/* The values of the groups, and the initial contents of the outputs. */
static float *values(int64_t n, float_kind kind) {
    float *x = items(n, 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_below(5) ? draw_float(kind) : (float)draw_below(3) - 1;
    return x;
}

static void maxima_case(const hc_kernel *kernel, int64_t groups, int64_t n, float_kind kind) {
    begin("groups %" D ", n %" D ", %s", groups, n, float_kind_name(kind));
    const float *x = values(groups * n, kind);
    float *wanted = values(groups + 3, PLAIN), *got = copy_of(wanted, groups + 3, 4);
    maxima_definition(groups, n, x, wanted);
    kernel->fn.maxima(groups, n, x, got);
    same("maxima", F32, got, wanted, groups + 3);
    BENCH(maxima_definition(groups, n, x, wanted), kernel->fn.maxima(groups, n, x, got));
}

void check_maxima(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 3, 8, 16, 31, 64, 300)
    for (int64_t groups = 0; groups < 18; groups++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            maxima_case(kernel, groups, *n, (float_kind)kind);
    usual();
    maxima_case(kernel, 64, 32, PLAIN);
}

static void pair_case(const hc_kernel *kernel, int64_t groups, int64_t n, int64_t place) {
    begin("groups %" D ", n %" D ", place %" D, groups, n, place);
    const float *x = values(groups * n, PLAIN);
    float *wanted[2], *got[2];
    for (int i = 0; i < 2; i++) {
        wanted[i] = values(groups + 3, PLAIN);
        got[i] = copy_of(wanted[i], groups + 3, 4);
    }
    pair_definition(groups, n, place, x, wanted[0], wanted[1]);
    kernel->fn.top_pair(groups, n, place, x, got[0], got[1]);
    same("lower", F32, got[0], wanted[0], groups + 3);
    same("upper", F32, got[1], wanted[1], groups + 3);
    BENCH(pair_definition(groups, n, place, x, wanted[0], wanted[1]),
          kernel->fn.top_pair(groups, n, place, x, got[0], got[1]));
}

void check_top_pair(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 2, 3, 8, 31, 64, 300)
    FOR_EACH(int64_t, place, 1, 2, 3, 4, 5, 20, HC_TOP)
    for (int64_t groups = 0; groups < 18 && *place <= *n; groups += groups < 9 ? 1 : 4)
        pair_case(kernel, groups, *n, *place);
    usual();
    pair_case(kernel, 64, 32, 2);
}

static double sum_beyond(const double *magnitudes, int64_t n, double s, double *count) {
    double lane[8] = {0};
    *count = 0;
    for (int64_t i = 0; i < n; i++)
        if (magnitudes[i] > s) {
            lane[i % 8] += magnitudes[i];
            *count += 1;
        }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static float octav_definition(const double *magnitudes, int64_t n, double inside, float absmax) {
    double nonzero, outside, s = sum_beyond(magnitudes, n, 0, &nonzero);
    if (nonzero == 0)
        return 0;
    s /= nonzero;
    for (int t = 0; t < HC_OCTAV_STEPS; t++) {
        const double sum = sum_beyond(magnitudes, n, s, &outside);
        if (outside == 0)
            return absmax;
        const double next = sum / (inside * (nonzero - outside) + outside);
        if (next == s)
            break;
        s = next;
    }
    return (float)s;
}

static void octav_case(const hc_kernel *kernel, int64_t groups, int64_t n, bool is_double, bool positive, int few) {
    begin("groups %" D ", n %" D ", float64 %d, positive %d, %d other values", groups, n, is_double, positive, few);
    float *singles = values(groups * n, PLAIN), *wanted = values(groups + 3, PLAIN), *got;
    double *x = items(groups * n, 8), *magnitudes = items(groups * n, 8);
    got = copy_of(wanted, groups + 3, 4);
    for (int64_t i = 0; i < groups * n; i++) {
        if (few)
            singles[i] = (float)draw_below((uint32_t)few) / 2; /* groups of zeros, of equal values */
        x[i] = (double)singles[i] * (is_double ? 1 + (double)draw_below(1 << 20) * 0x1p-45 : 1);
        magnitudes[i] = positive ? (x[i] > 0 ? x[i] : 0) : fabs(x[i]);
    }
    const double inside = ldexp(1, -2 * (int)(1 + draw_below(8))) / 3;
    for (int64_t g = 0; g < groups; g++)
        wanted[g] = octav_definition(magnitudes + g * n, n, inside, wanted[g]);
    const void *from = is_double ? (const void *)x : singles;
    static _Alignas(HC_CACHE_LINE) double scratch[HC_OCTAV_SCRATCH];
    kernel->fn.octav(groups, n, from, is_double, positive, inside, scratch, got);
    same("thresholds", F32, got, wanted, groups + 3);
    BENCH((void)octav_definition(magnitudes, n, inside, 0),
          kernel->fn.octav(groups, n, from, is_double, positive, inside, scratch, got));
}

void check_octav(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 1, 3, 8, 17, 32, 256, 257, 300)
    for (int64_t groups = 0; groups < 18; groups++)
        FOR_EACH(int, few, 0, 1, 2, 4)
    octav_case(kernel, groups, *n, draw_below(4) == 0, draw_below(4) == 0, *few);
    usual();
    octav_case(kernel, 1, 32, false, false, 0);
}

/* Operations of one value each (kernels/pointwise/pointwise.h): those of C. */
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
