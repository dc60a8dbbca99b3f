/* The definitions, as docs/formats/ writes them. Needs -ffp-contract=off, like all tests here. */
#include "plain.h"
#include "guard.h"

#include <float.h>
#include <math.h>

static float half_round(float x) { /* RNE to float16 of 0 <= x <= 65504 */
    const double step = x < 0x1p-14f ? 0x1p-24 : ldexp(1, ilogbf(x) - 10);
    return (float)(rint((double)x / step) * step);
}

static int32_t code_of(double x, double scale, int32_t low, int32_t high) {
    if (scale == 0)
        return 0;
    const double q = rint(x / scale);
    return (int32_t)(q < low ? low : q > high ? high : q);
}

static float absmax(const double *x, int64_t n, bool positive_only) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, positive_only ? x[i] : fabs(x[i]));
    return (float)largest;
}

static void int_group(const hc_format *f, const double *x, int64_t n, int32_t *code, float *scale) {
    const int32_t top = (1 << (f->bits - (f->option[0] ? 1 : 0))) - 1;
    double low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    *scale = f->option[0] ? absmax(x, n, false) / (float)top : (float)((high - low) / top);
    if (f->option[1])
        *scale = half_round(fminf(*scale, 65504.0f));
    if (f->option[0]) {
        for (int64_t i = 0; i < n; i++)
            code[i] = code_of(x[i], *scale, -top, top);
        return;
    }
    const int32_t zero = code_of(-low, *scale, 0, top);
    for (int64_t i = 0; i < n; i++) {
        const int32_t q = code_of(x[i], *scale, -top, top) + zero;
        code[i] = (q < 0 ? 0 : q > top ? top : q) - zero;
    }
}

static void vsq_codes(const hc_format *f, const double *x, int64_t n, double scale, int32_t *code) {
    const int32_t top = (1 << (f->bits - (f->option[1] ? 0 : 1))) - 1;
    for (int64_t i = 0; i < n; i++)
        code[i] = code_of(x[i], scale, f->option[1] ? 0 : -top, top);
}

/* VS-Quant's equations 7c to 7j for the groups of one gamma, from their fine scales. */
static void vsq_coarse(const hc_format *f, int64_t groups, int32_t *step, float *scale) {
    const int32_t top = (1 << f->option[0]) - 1;
    float largest = 0;
    for (int64_t g = 0; g < groups; g++)
        largest = fmaxf(largest, scale[g]);
    const float gamma = largest / (float)top;
    for (int64_t g = 0; g < groups; g++) {
        step[g] = code_of(scale[g], gamma, 0, top);
        scale[g] = gamma;
    }
}

int64_t plain_column(const hc_geometry *g, int64_t column) {
    if (g->padded == g->columns)
        return column;
    return column / g->run_length * g->groups_per_run * g->group + column % g->run_length;
}

plain_packed plain_quantize(const hc_format *format, const hc_geometry *g, const double *x) {
    plain_packed p = {.format = *format, .geometry = *g};
    p.code = guard_alloc((size_t)(g->rows * g->padded) * sizeof *p.code);
    p.step = guard_alloc((size_t)(g->rows * g->groups) * sizeof *p.step);
    p.scale = guard_alloc((size_t)(g->rows * g->groups) * sizeof *p.scale);
    double *values = guard_alloc((size_t)(g->rows * g->padded) * sizeof *values);
    for (int64_t i = 0; i < g->rows * g->padded; i++)
        values[i] = 0;
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < g->columns; c++)
            values[r * g->padded + plain_column(g, c)] = x[r * g->columns + c];
    const bool is_vsq = format->family == PLAIN_VSQ;
    const int32_t top = (1 << (format->bits - (format->option[1] ? 0 : 1))) - 1; /* for VSQ */
    for (int64_t i = 0; i < g->rows * g->groups; i++) {
        p.step[i] = 1;
        if (is_vsq) {
            p.scale[i] = absmax(values + i * g->group, g->group, format->option[1]) / (float)top;
            vsq_codes(format, values + i * g->group, g->group, p.scale[i], p.code + i * g->group);
        } else {
            int_group(format, values + i * g->group, g->group, p.code + i * g->group, p.scale + i);
        }
    }
    if (!is_vsq || format->option[0] == 0)
        return p;
    if (format->option[2])
        vsq_coarse(format, g->rows * g->groups, p.step, p.scale);
    for (int64_t r = 0; r < g->rows && !format->option[2]; r++)
        vsq_coarse(format, g->groups, p.step + r * g->groups, p.scale + r * g->groups);
    for (int64_t i = 0; i < g->rows * g->groups; i++)
        if (format->option[3] || p.step[i] == 0)
            vsq_codes(format, values + i * g->group, g->group, (double)p.scale[i] * p.step[i], p.code + i * g->group);
    return p;
}

static int64_t group_at(const plain_packed *p, int64_t row, int64_t column) {
    return row * p->geometry.groups + column / p->geometry.group;
}

static int64_t code_at(const plain_packed *p, int64_t row, int64_t column) {
    return p->code[row * p->geometry.padded + column];
}

static float scale_at(const plain_packed *p, int64_t row, int64_t column) {
    const int64_t g = group_at(p, row, column);
    return p->scale[g] * (float)p->step[g];
}

float plain_value(const plain_packed *p, int64_t row, int64_t column) {
    const int64_t g = group_at(p, row, column);
    const double value = (double)p->scale[g] * (double)(p->step[g] * code_at(p, row, column));
    return (float)fmax(fmin(value, (double)FLT_MAX), -(double)FLT_MAX);
}

bool plain_is_folded(const plain_packed *p) {
    return p->format.family == PLAIN_VSQ ? p->format.option[0] != 0 : p->format.group == 0;
}

float plain_packed_product(const plain_packed *a, int64_t i, const plain_packed *b, int64_t j) {
    const int64_t n = a->geometry.columns;
    if (plain_is_folded(a) && plain_is_folded(b)) {
        int64_t sum = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t at = plain_column(&a->geometry, k), bt = plain_column(&b->geometry, k);
            sum += a->step[group_at(a, i, at)] * code_at(a, i, at) * b->step[group_at(b, j, bt)] * code_at(b, j, bt);
        }
        const double scales = (double)a->scale[i * a->geometry.groups] * (double)b->scale[j * b->geometry.groups];
        return (float)(scales * (double)sum);
    }
    float total = 0;
    for (int64_t k = 0; k < n;) {
        const int64_t at = plain_column(&a->geometry, k), bt = plain_column(&b->geometry, k);
        int64_t dot = 0;
        for (; k < n && group_at(a, i, plain_column(&a->geometry, k)) == group_at(a, i, at) &&
               group_at(b, j, plain_column(&b->geometry, k)) == group_at(b, j, bt);
             k++)
            dot += code_at(a, i, plain_column(&a->geometry, k)) * code_at(b, j, plain_column(&b->geometry, k));
        total = fmaf(scale_at(a, i, at) * scale_at(b, j, bt), (float)dot, total);
    }
    return total;
}

float plain_gemv(const float *x, const plain_packed *w, int64_t j) {
    const bool grouped = w->format.group != 0, two_level = w->format.family == PLAIN_VSQ && w->format.option[0] != 0;
    const int n_lanes = grouped ? 16 : 64;
    float lane[64] = {0}, p = 0;
    for (int64_t k = 0; k < w->geometry.columns; k++) {
        const int64_t column = plain_column(&w->geometry, k), g = column / w->geometry.group;
        const float code = (float)code_at(w, j, column);
        if (!grouped) {
            lane[k % 64] = fmaf(x[k], code, lane[k % 64]);
            continue;
        }
        p = fmaf(x[k], code, p);
        const bool last = k + 1 == w->geometry.columns || plain_column(&w->geometry, k + 1) / w->geometry.group != g;
        if (last) {
            const int64_t at = group_at(w, j, column);
            lane[g % 16] = fmaf(two_level ? (float)w->step[at] : w->scale[at], p, lane[g % 16]);
            p = 0;
        }
    }
    for (int half = n_lanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return grouped && !two_level ? lane[0] : lane[0] * w->scale[j * w->geometry.groups];
}

float plain_chain(int64_t k, const float *x, const float *w) {
    float sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum = fmaf(x[i], w[i], sum);
    return sum;
}
