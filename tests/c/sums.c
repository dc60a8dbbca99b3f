/* Dense matmuls and convolutions of all float types, comparisons, emulated sums, a systolic array. */
#include "arrays.h"
#include "guard.h"
#include "hc_emulate.h"
#include "model/systolic.h"
#include "operations.h"

#include <string.h>

static hc_status dense_product(const hc_run *run, hc_dtype left_type, int64_t m, int64_t n, int64_t k, uint64_t *hash,
                               hc_error *error) {
    const int64_t a_shape[3] = {2, m, k}, b_shape[2] = {k, n}, out_shape[3] = {2, m, n}, size = 2 * m * n;
    const hc_view a = view_of(converted(random_values(2 * m * k, 21), 2 * m * k, left_type), left_type, 3, a_shape);
    const hc_view b = view_of(converted(random_values(k * n, 22), k * n, HC_F32), HC_F32, 2, b_shape);
    float *y = guard_alloc((size_t)size * 4);
    const hc_view out = view_of(y, HC_F32, 3, out_shape);
    const hc_operand left = {.dense = &a}, right = {.dense = &b};
    const hc_status status = hc_matmul(run, &left, &right, NULL, NULL, &out, error);
    if (status == HC_OK)
        add_bytes(hash, y, size * 4);
    return status;
}

static hc_status dense_convolution(const hc_run *run, hc_dtype type, uint64_t *hash, hc_error *error) {
    enum { N = 2, C = 6, H = 7, W = 5, K = 9, R = 3, S = 2, OUT = N * K * H * (W + 1) };
    const int64_t x_shape[4] = {N, C, H, W}, w_shape[4] = {K, C, R, S}, out_shape[4] = {N, K, H, W + 1};
    const hc_view x = view_of(converted(random_values(N * C * H * W, 31), N * C * H * W, type), type, 4, x_shape);
    const hc_view w = view_of(converted(random_values(K * C * R * S, 32), K * C * R * S, HC_F32), HC_F32, 4, w_shape);
    float *y = guard_alloc(OUT * 4);
    const hc_view out = view_of(y, HC_F32, 4, out_shape);
    const hc_operand filters = {.dense = &w};
    const hc_window window = {{1, 1}, {1, 1}, {1, 1}, 1};
    const hc_status status = hc_conv2d(run, &x, &filters, NULL, &window, NULL, NULL, &out, error);
    if (status == HC_OK)
        add_bytes(hash, y, OUT * 4);
    return status;
}

hc_status take_dense(const hc_run *run, uint64_t *hash, hc_error *error) {
    static const int64_t SHAPES[][3] = {{1, 17, 130}, {8, 33, 65}, {33, 70, 1100}};
    static const hc_dtype TYPES[] = {HC_F32, HC_F64, HC_BF16};
    hc_status status = HC_OK;
    for (int t = 0; t < 3 && status == HC_OK; t++) {
        for (int s = 0; s < 3 && status == HC_OK; s++)
            status = dense_product(run, TYPES[t], SHAPES[s][0], SHAPES[s][1], SHAPES[s][2], hash, error);
        if (status == HC_OK)
            status = dense_convolution(run, TYPES[t], hash, error);
    }
    return status;
}

hc_status take_compare(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { SIZE = 70001 };
    const int64_t shape[1] = {SIZE};
    const hc_view x = view_of(converted(random_values(SIZE, 41), SIZE, HC_F64), HC_F64, 1, shape);
    const hc_view y = view_of(converted(random_values(SIZE, 42), SIZE, HC_F32), HC_F32, 1, shape);
    hc_error_state state = {.values = 0};
    const hc_status status = hc_compare(run, &x, &y, &state, error);
    const hc_error_sums sums = hc_compared(&state);
    if (status == HC_OK)
        add_bytes(hash, &sums, sizeof sums);
    return status;
}

/* Emulated accumulators: float16, 24 bits, and two of tensor cores. */
hc_status take_emulated(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { M = 5, N = 11, K = 75 };
    static const hc_float_sum SUMS[] = {{11, -14, 1, 0, false, false, -126, 0},
                                        {24, -126, 75, 0, false, false, -126, 0},
                                        {24, -126, 8, 26, true, true, -14, -133},
                                        {11, -14, 8, 25, true, false, -14, -1}};
    const double *x = random_values((M + N) * K, 51);
    const float *floats = converted(x, (M + N) * K, HC_F32);
    int32_t *codes = guard_alloc((M + N) * K * sizeof *codes);
    for (int i = 0; i < (M + N) * K; i++)
        codes[i] = (int32_t)(x[i] * 30) % 128;
    int64_t *sums = guard_alloc(M * N * sizeof *sums);
    const hc_code_rows a = {.rows = M, .columns = K, .group = K, .groups = 1, .codes = codes};
    const hc_code_rows b = {.rows = N, .columns = K, .group = K, .groups = 1, .codes = codes + M * K};
    const hc_code_sum sum = {.bits = 16, .saturates = true, .chunk = 4, .unit = 1};
    hc_status status = hc_emulate_codes(run, &a, &b, &sum, sums, error);
    if (status == HC_OK)
        add_bytes(hash, sums, M * N * (int64_t)sizeof *sums);
    float *y = guard_alloc(M * N * 4);
    for (size_t i = 0; i < sizeof SUMS / sizeof *SUMS && status == HC_OK; i++) {
        status = hc_emulate_floats(run, M, N, K, floats, floats + M * K, &SUMS[i], y, error);
        if (status == HC_OK)
            add_bytes(hash, y, M * N * 4);
    }
    return status;
}

hc_status take_systolic(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { M = 5, N = 7, K = 9 };
    (void)run;
    const double *a = random_values(M * K, 61), *b = random_values(K * N, 62);
    double *c = guard_alloc(M * N * sizeof *c);
    hc_status status = HC_OK;
    for (int dataflow = 0; dataflow < 3 && status == HC_OK; dataflow++) {
        hc_systolic_run pulses = {.rows = 4, .cols = 3};
        status = hc_systolic_gemm(a, b, M, N, K, (hc_systolic_dataflow)dataflow, c, &pulses, error);
        if (status == HC_OK) {
            add_bytes(hash, c, M * N * (int64_t)sizeof *c);
            add_bytes(hash, &pulses, sizeof pulses);
        }
    }
    return status;
}
