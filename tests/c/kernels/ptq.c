/* The float64 sums and roundings that codes depend on, against their equations. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>

#define D PRId64

static double *doubles(int64_t n, float_kind kind) {
    double *x = items(n, 8);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)draw_float(kind) * (1 + (double)draw_below(1 << 20) * 0x1p-45);
    return x;
}

static void gemm_definition(const hc_kernel *kernel, int64_t k, const double *a, const double *b, int64_t ldb,
                            double *c, int64_t ldc) {
    for (int i = 0; i < kernel->mr; i++)
        for (int j = 0; j < kernel->nr; j++)
            for (int64_t p = 0; p < k; p++)
                c[i * ldc + j] = fma(a[p * kernel->mr + i], b[p * ldb + j], c[i * ldc + j]);
}

static void gemm_case(const hc_kernel *kernel, int64_t k, int64_t ldb, int64_t ldc, float_kind kind) {
    const int64_t n = (kernel->mr - 1) * ldc + kernel->nr, depth = (ldb < 0 ? -ldb : ldb) * (k - 1) + kernel->nr;
    begin("k %" D ", ldb %" D ", ldc %" D ", %s", k, ldb, ldc, float_kind_name(kind));
    const double *a = doubles(k * kernel->mr, kind), *rows = doubles(k ? depth : 0, kind);
    const double *b = ldb < 0 && k ? rows + (k - 1) * -ldb : rows;
    double *wanted = doubles(n, kind), *got = copy_of(wanted, n, 8);
    gemm_definition(kernel, k, a, b, ldb, wanted, ldc);
    kernel->fn.gemm_f64(k, a, b, ldb, got, ldc);
    same("c", F64, got, wanted, n);
    BENCH(gemm_definition(kernel, k, a, b, ldb, wanted, ldc), kernel->fn.gemm_f64(k, a, b, ldb, got, ldc));
}

void check_gemm_f64(const hc_kernel *kernel) {
    const int nr = kernel->nr;
    FOR_EACH(int64_t, k, 0, 1, 2, 3, 5, 8, 64)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        gemm_case(kernel, *k, nr, nr, (float_kind)kind);
        gemm_case(kernel, *k, nr + 3, nr + 5, (float_kind)kind);
        gemm_case(kernel, *k, -nr - 1, nr, (float_kind)kind);
    }
    usual();
    gemm_case(kernel, 256, nr, nr, PLAIN);
}

static void axpy_definition(int64_t n, double alpha, const double *x, double *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = fma(alpha, x[i], y[i]);
}

static void axpy_case(const hc_kernel *kernel, int64_t n, float_kind kind) {
    begin("n %" D ", %s", n, float_kind_name(kind));
    const double *alpha = doubles(1, kind), *x = doubles(n, kind);
    double *wanted = doubles(n, kind), *got = copy_of(wanted, n, 8);
    axpy_definition(n, *alpha, x, wanted);
    kernel->fn.axpy_f64(n, *alpha, x, got);
    same("y", F64, got, wanted, n);
    BENCH(axpy_definition(n, *alpha, x, wanted), kernel->fn.axpy_f64(n, *alpha, x, got));
}

void check_axpy_f64(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            axpy_case(kernel, n, (float_kind)kind);
    usual();
    axpy_case(kernel, 128, PLAIN);
}

/* Random scales, some of them 0. */
static double *draw_scales(int64_t n) {
    double *scale = items(n, 8);
    for (int64_t i = 0; i < n; i++)
        scale[i] = draw_below(7) ? ldexp(1 + (double)draw_below(8) / 8, (int)draw_below(9) - 4) : 0;
    return scale;
}

static double *draw_inputs(int64_t n, const double *scale, float_kind kind) {
    double *x = doubles(n, kind);
    for (int64_t i = 0; i < n; i++)
        if (draw_below(3) == 0)
            x[i] = scale[i] * ((double)draw_below(40) / 2 - 10);
    return x;
}

static double within(double t, double low, double high) {
    t = t > low ? t : low;
    return t < high ? t : high;
}

static void steps_definition(int64_t n, const double *x, const double *scale, const double *zero, double low,
                             double high, double *code, double *value) {
    for (int64_t i = 0; i < n; i++) {
        const double t = scale[i] > 0 ? rint(within(x[i] / scale[i], -0x1p31, 0x1p31)) : 0, z = zero ? zero[i] : 0;
        code[i] = within(t + z, low, high);
        value[i] = scale[i] * (code[i] - z);
    }
}

static void steps_case(const hc_kernel *kernel, int64_t n, bool has_zero, float_kind kind) {
    begin("n %" D ", zero points %d, %s", n, has_zero, float_kind_name(kind));
    const double *scale = draw_scales(n), *x = draw_inputs(n, scale, kind), low = has_zero ? 0 : -7,
                 high = has_zero ? 15 : 7;
    double *zero = has_zero ? items(n, 8) : NULL;
    for (int64_t i = 0; zero && i < n; i++)
        zero[i] = (double)draw_below(16);
    double *wanted = doubles(2 * n, PLAIN), *got = copy_of(wanted, 2 * n, 8);
    steps_definition(n, x, scale, zero, low, high, wanted, wanted + n);
    kernel->fn.round_steps(n, x, scale, zero, low, high, got, got + n);
    same("codes and values", F64, got, wanted, 2 * n);
    BENCH(steps_definition(n, x, scale, zero, low, high, wanted, wanted + n),
          kernel->fn.round_steps(n, x, scale, zero, low, high, got, got + n));
}

void check_round_steps(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            steps_case(kernel, n, draw_below(2), (float_kind)kind);
    usual();
    steps_case(kernel, 128, false, PLAIN);
}

static void levels_definition(int64_t n, const double *x, const double *scale, int n_levels, const double *levels,
                              const double *thresholds, int64_t stride, int64_t lane, double *code, double *value) {
    for (int64_t i = 0; i < n; i++) {
        const double t = scale[i] > 0 ? x[i] / scale[i] : 0;
        int found = 0;
        for (int level = 1; level < n_levels; level++)
            found += t > thresholds[(level - 1) * stride + i * lane];
        code[i] = found;
        value[i] = levels[found * stride + i * lane] * scale[i];
    }
}

static void levels_case(const hc_kernel *kernel, int64_t n, int n_levels, bool per_row, float_kind kind) {
    begin("n %" D ", %d levels, of each row %d, %s", n, n_levels, per_row, float_kind_name(kind));
    const double *scale = draw_scales(n), *x = draw_inputs(n, scale, kind);
    const int64_t width = per_row ? n : 1;
    double *levels = items(n_levels * width, 8), *thresholds = items((n_levels - 1) * width, 8);
    for (int64_t i = 0; i < width; i++)
        for (int level = 0; level < n_levels; level++) {
            levels[level * width + i] =
                (level ? levels[(level - 1) * width + i] : -9) + (double)draw_below(4) / 2; /* some are equal */
            if (level)
                thresholds[(level - 1) * width + i] = (levels[level * width + i] + levels[(level - 1) * width + i]) / 2;
        }
    double *wanted = doubles(2 * n, PLAIN), *got = copy_of(wanted, 2 * n, 8);
    levels_definition(n, x, scale, n_levels, levels, thresholds, width, per_row, wanted, wanted + n);
    kernel->fn.round_levels(n, x, scale, n_levels, levels, thresholds, width, per_row, got, got + n);
    same("codes and values", F64, got, wanted, 2 * n);
    BENCH(levels_definition(n, x, scale, n_levels, levels, thresholds, width, per_row, wanted, wanted + n),
          kernel->fn.round_levels(n, x, scale, n_levels, levels, thresholds, width, per_row, got, got + n));
}

void check_round_levels(const hc_kernel *kernel) {
    FOR_EACH(int, n_levels, 1, 2, 7, 16, 255)
    for (int64_t n = 0; n < 40; n += n < 18 ? 1 : 7)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            levels_case(kernel, n, *n_levels, draw_below(2), (float_kind)kind);
    usual();
    levels_case(kernel, 128, 16, false, PLAIN);
}
