/* Stochastic rounding and the mask of gradients, against their equations. */
#include "kernels.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

static double chance_of(uint64_t seed, uint64_t index) {
    uint64_t h = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return (double)((h ^ h >> 31) >> 11) * 0x1p-53;
}

static void chance_definition(const hc_chance_levels *levels, const hc_chance_run *run, const double *x, float *y) {
    for (int64_t i = 0; i < run->n; i++) {
        const int64_t g = (run->skip + i) / run->group;
        const double scale = run->scale[g], quotient = x[i] / scale;
        const double low = levels->n ? levels->table[0] : run->low[g];
        const double high = levels->n ? levels->table[levels->n - 1] : run->high[g];
        double t = quotient > low ? quotient : low, below, above;
        t = t < high ? t : high;
        if (levels->n) {
            int place = 0;
            while (place < levels->n - 2 && t >= levels->table[place + 1])
                place++;
            below = levels->table[place];
            above = levels->table[place + 1];
        } else {
            int exponent;
            frexp(t, &exponent);
            const double step = fmax(t == 0 ? 0 : ldexp(1, exponent - 1), levels->least) / levels->fraction;
            below = floor(t / step) * step;
            above = below + step;
        }
        double v =
            (chance_of(run->seed, run->index + (uint64_t)i * run->step) < (t - below) / (above - below) ? above
                                                                                                        : below) *
            scale;
        v = scale == 0 ? 0 : v;
        y[i] = isnan(x[i]) ? (float)x[i] : (float)fmin(fmax(v, -(double)3.40282347e38f), (double)3.40282347e38f);
        y[i] += 0.0f; /* no -0 */
    }
}

static void chance_case(const hc_kernel *kernel, int64_t n, int n_levels, double fraction, double least, bool is_double,
                        float_kind kind) {
    begin("n %" D ", %d levels, fraction %g, least %g, float64 %d, %s", n, n_levels, fraction, least, is_double,
          float_kind_name(kind));
    const int64_t group = 1 + draw_below(40), skip = draw_below((uint32_t)group), n_groups = (skip + n) / group + 1;
    double *scale = items(n_groups, 8), *low = items(n_groups, 8), *high = items(n_groups, 8), *x = items(n, 8);
    float *singles = items(n, 4);
    double *table = items(HC_CHANCE_LEVELS, 8);
    for (int i = 0; i < HC_CHANCE_LEVELS; i++)
        table[i] = i < n_levels ? -1.5 + i * 0.25 + (double)draw_below(7) / 64 : (double)INFINITY;
    for (int64_t g = 0; g < n_groups; g++) {
        scale[g] = draw_below(7) ? ldexp(1 + (double)draw_below(8) / 8, (int)draw_below(9) - 4) : 0;
        low[g] = -(double)draw_below(16);
        high[g] = low[g] + 15;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = draw_below(3) ? (double)draw_float(kind) : scale[(skip + i) / group] * ((double)draw_below(80) / 4 - 10);
        singles[i] = (float)x[i];
        x[i] = is_double ? x[i] : (double)singles[i];
    }
    const hc_chance_levels levels = {n_levels, table, fraction, least};
    const uint64_t index = (uint64_t)draw_below(1u << 30) * draw_below(1u << 30);
    const hc_chance_run run = {n, skip, group, scale, low, high, 77, index, draw_below(2) ? 1 : draw_below(1u << 30)};
    const void *from = is_double ? (const void *)x : singles;
    float *wanted = items(n + 3, 4), *got;
    for (int64_t i = 0; i < n + 3; i++)
        wanted[i] = draw_float(kind);
    got = copy_of(wanted, n + 3, 4);
    chance_definition(&levels, &run, x, wanted);
    kernel->fn.round_by_chance(&levels, &run, from, is_double, got);
    for (int64_t i = 0; i < n; i++)
        got[i] += 0.0f;
    same("y", F32, got, wanted, n + 3);
    BENCH(chance_definition(&levels, &run, x, wanted), kernel->fn.round_by_chance(&levels, &run, from, is_double, got));
}

void check_round_by_chance(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
            const bool is_double = draw_below(2);
            chance_case(kernel, n, 0, 0x1p30, 0x1p30, is_double, (float_kind)kind);
            chance_case(kernel, n, 0, 0x1p30, 16, is_double, (float_kind)kind);
            chance_case(kernel, n, 0, 4, 0.5, is_double, (float_kind)kind);
            chance_case(kernel, n, 2 + (int)draw_below(15), 1, 1, is_double, (float_kind)kind);
            chance_case(kernel, n, 2 + (int)draw_below(255), 1, 1, is_double, (float_kind)kind);
        }
    chance_case(kernel, 700, 2, 1, 1, false, PLAIN);
    usual();
    chance_case(kernel, 1024, 0, 0x1p30, 0x1p30, false, PLAIN);
}

static void mark_case(const hc_kernel *kernel, int64_t n, int64_t group, bool is_double, bool clipped,
                      float_kind kind) {
    begin("n %" D ", group %" D ", float64 %d, thresholds %d, %s", n, group, is_double, clipped, float_kind_name(kind));
    const int64_t bytes = hc_ceil_div(n, 8), n_groups = n / group + 1;
    float *singles = items(n, 4), *threshold = clipped ? items(n_groups, 4) : NULL;
    double *doubles = items(n, 8);
    for (int64_t i = 0; i < n_groups && clipped; i++)
        threshold[i] = (float)draw_below(4);
    for (int64_t i = 0; i < n; i++) {
        singles[i] = draw_below(2) ? draw_float(kind) : (float)draw_below(9) - 4;
        doubles[i] = (double)singles[i];
    }
    const float low = draw_below(2) ? 0 : -1, high = clipped || draw_below(2) ? 1 : INFINITY;
    uint8_t *wanted = items(bytes + 2, 1), *got;
    memset(wanted, 0xa5, (size_t)bytes + 2);
    got = copy_of(wanted, bytes + 2, 1);
    for (int64_t i = 0; i < 8 * bytes; i++) {
        const float t = clipped && i < n ? threshold[i / group] : 1;
        const bool inside = i < n && low * t <= singles[i] && singles[i] <= high * t;
        wanted[i / 8] = (uint8_t)((wanted[i / 8] & ~(1 << (i & 7))) | inside << (i & 7));
    }
    const void *x = is_double ? (const void *)doubles : singles;
    kernel->fn.mark_inside(n, x, is_double, group, threshold, low, high, got);
    same("bits", U8, got, wanted, bytes + 2);
    BENCH((void)0, kernel->fn.mark_inside(n, x, is_double, group, threshold, low, high, got));
}

void check_mark_inside(const hc_kernel *kernel) {
    FOR_EACH(int64_t, group, 1, 5, 16, 600)
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            mark_case(kernel, n, *group, draw_below(2), draw_below(2), (float_kind)kind);
    mark_case(kernel, 1300, 7, false, true, PLAIN);
    usual();
    mark_case(kernel, 1024, 32, false, true, PLAIN);
}

static void note_case(const hc_kernel *kernel, int64_t n, float low, float high, float_kind kind) {
    begin("n %" D ", low %g, high %g, %s", n, (double)low, (double)high, float_kind_name(kind));
    float *x = items(n, 4), *wanted = items(n + 3, 4), *got;
    for (int64_t i = 0; i < n + 3; i++)
        wanted[i] = draw_float(kind);
    got = copy_of(wanted, n + 3, 4);
    for (int64_t i = 0; i < n; i++) {
        x[i] = draw_below(2) ? draw_float(kind) : (float)draw_below(9) - 4;
        const double bound = (double)(x[i] < 0 ? low : high);
        wanted[i] = low <= x[i] && x[i] <= high ? 1 : (float)(bound / (double)x[i]);
    }
    kernel->fn.note_factors(n, x, low, high, got);
    same("factors", F32, got, wanted, n + 3);
    BENCH((void)0, kernel->fn.note_factors(n, x, low, high, got));
}

void check_note_factors(const hc_kernel *kernel) {
    FOR_EACH(float, high, 0, 0x1p-140f, 0.3f, 3, FLT_MAX)
    for (int64_t n = 0; n < 70; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            note_case(kernel, n, draw_below(2) ? 0 : -*high, *high, (float_kind)kind);
    usual();
    note_case(kernel, 1024, -1, 1, PLAIN);
}

static void keep_case(const hc_kernel *kernel, int64_t n, float_kind kind) {
    begin("n %" D ", %s", n, float_kind_name(kind));
    const int64_t bytes = hc_ceil_div(n, 8);
    float *g = items(n, 4), *wanted = items(n + 3, 4), *got;
    uint8_t *bits = items(bytes, 1);
    for (int64_t i = 0; i < bytes; i++)
        bits[i] = (uint8_t)draw_below(256);
    for (int64_t i = 0; i < n + 3; i++)
        wanted[i] = draw_float(kind);
    got = copy_of(wanted, n + 3, 4);
    for (int64_t i = 0; i < n; i++) {
        g[i] = draw_float(kind);
        wanted[i] = bits[i / 8] >> (i & 7) & 1 ? g[i] : 0;
    }
    kernel->fn.keep_marked(n, g, bits, got);
    same("y", F32, got, wanted, n + 3);
    BENCH((void)0, kernel->fn.keep_marked(n, g, bits, got));
}

void check_keep_marked(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 70; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            keep_case(kernel, n, (float_kind)kind);
    usual();
    keep_case(kernel, 1024, PLAIN);
}
