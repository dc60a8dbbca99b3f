/* The C core without Python: every format and matmul against the definitions of plain.c, in guarded memory, with
 * every ISA that the machine has, with one thread and with several. The last line is "N passed, M failed".
 *
 * It needs only a C compiler, so it can be built for another machine and run in an emulator. There the argument
 * "emulated" leaves out the fork of a process with threads, which qemu-user does not survive. The arguments
 * "fingerprints", "allocations", "kernels" and "cube" run the programs of fingerprints.h, allocations.h, kernels.h and
 * cube.h; "stack" runs fingerprints.h in a thread with a small stack.
 */
#include "allocations.h"
#include "arrays.h"
#include "cube.h"
#include "fingerprints.h"
#include "guard.h"
#include "kernels/kernels.h"
#include "plain.h"
#include "quota.h"
#include "system.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_passed, n_failed;
static bool is_emulated;
static hc_error error;

/* Counts a check, prints a line if it failed, and releases its memory. */
static void report(bool ok, const char *what, const char *detail) {
    ok = guard_release() && ok;
    ok ? n_passed++ : n_failed++;
    if (!ok)
        printf("FAILED %s: %s\n", what, detail);
}

static const struct {
    const char *text;
    hc_format format;
} FORMATS[] = {
    {"int8", {.family = PLAIN_INT, .bits = 8, .group = 0, .option = {1, 0}}},
    {"int4", {.family = PLAIN_INT, .bits = 4, .group = 0, .option = {1, 0}}},
    {"int16", {.family = PLAIN_INT, .bits = 16, .group = 0, .option = {1, 0}}},
    {"int24", {.family = PLAIN_INT, .bits = 24, .group = 0, .option = {1, 0}}},
    {"int3-asym", {.family = PLAIN_INT, .bits = 3, .group = 0, .option = {0, 0}}},
    {"int2-g8-f16", {.family = PLAIN_INT, .bits = 2, .group = 8, .option = {1, 1}}},
    {"int5-g7-asym-f16", {.family = PLAIN_INT, .bits = 5, .group = 7, .option = {0, 1}}},
    {"int8-g16-asym", {.family = PLAIN_INT, .bits = 8, .group = 16, .option = {0, 0}}},
    {"vsq4-g16", {.family = PLAIN_VSQ, .bits = 4, .group = 16, .option = {0, 0, 0, 0}}},
    {"vsq4-g16-s4", {.family = PLAIN_VSQ, .bits = 4, .group = 16, .option = {4, 0, 0, 0}}},
    {"vsq3-g5-s6", {.family = PLAIN_VSQ, .bits = 3, .group = 5, .option = {6, 0, 0, 0}}},
    {"vsq8-g64-s10", {.family = PLAIN_VSQ, .bits = 8, .group = 64, .option = {10, 0, 0, 0}}},
    {"vsq4u-g16-s8", {.family = PLAIN_VSQ, .bits = 4, .group = 16, .option = {8, 1, 0, 0}}},
    {"vsq6-g16-s6-tensor", {.family = PLAIN_VSQ, .bits = 6, .group = 16, .option = {6, 0, 1, 0}}},
    {"vsq2-g16-s2-refit", {.family = PLAIN_VSQ, .bits = 2, .group = 16, .option = {2, 0, 0, 1}}},
};
enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

static const hc_clip ABSMAX = {HC_CLIP_ABSMAX, 0};

static bool same_bits(const float *got, const float *wanted, int64_t n, char *detail) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(got + i, wanted + i, sizeof *got) != 0) {
            sprintf(detail, "value %lld is %.9g, expected %.9g", (long long)i, (double)got[i], (double)wanted[i]);
            return false;
        }
    return true;
}

/* Quantizing then dequantizing equals the plain definition; so does fake_quantize. */
static void check_format(const hc_run *run, int f, int64_t rows, int64_t columns, uint32_t seed, hc_dtype dtype) {
    const hc_format *format = &FORMATS[f].format;
    const int64_t shape[2] = {rows, columns};
    const int axis = 1;
    char detail[400] = "";
    hc_packed packed;
    hc_geometry geometry;
    bool ok = make_packed(format, 2, shape, 1, &axis, &packed, &geometry, &error);
    double *x = random_values(rows * columns, seed);
    const hc_view x_view = view_of(converted(x, rows * columns, dtype), dtype, 2, shape);
    float *got = guard_alloc((size_t)(rows * columns) * 4), *fake = guard_alloc((size_t)(rows * columns) * 4);
    float *wanted = guard_alloc((size_t)(rows * columns) * 4);
    const hc_view out = view_of(got, HC_F32, 2, shape), fake_out = view_of(fake, HC_F32, 2, shape);
    ok = ok && hc_quantize(run, &x_view, &ABSMAX, &packed, &error) == HC_OK &&
         hc_dequantize(run, &packed, &out, &error) == HC_OK &&
         hc_fake_quantize(run, &x_view, format, 1, &axis, &ABSMAX, NULL, &fake_out, &error) == HC_OK;
    if (!ok) {
        report(false, FORMATS[f].text, error.text);
        return;
    }
    const plain_packed plain = plain_quantize(format, &geometry, x);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            wanted[r * columns + c] = plain_value(&plain, r, plain_column(&geometry, c));
    ok = same_bits(got, wanted, rows * columns, detail) && same_bits(fake, wanted, rows * columns, detail);
    snprintf(detail + strlen(detail), 80, " (%lld x %lld, seed %u, dtype %d)", (long long)rows, (long long)columns,
             seed, (int)dtype);
    report(ok, FORMATS[f].text, detail);
}

/* out = x @ w.T with w packed, x dense (a < 0), or packed on the fly by FORMATS[a]. */
static void check_product(const hc_run *run, int a, int w, int64_t m, int64_t n, int64_t k) {
    const int64_t x_shape[2] = {m, k}, w_shape[2] = {n, k}, out_shape[2] = {m, n};
    const int axis = 1;
    char name[96], detail[400] = "";
    snprintf(name, sizeof name, "%s x %s (%lld, %lld, %lld)", a < 0 ? "float32" : FORMATS[a].text, FORMATS[w].text,
             (long long)m, (long long)n, (long long)k);
    double *x = random_values(m * k, 7), *weights = random_values(n * k, 8);
    float *x_floats = converted(x, m * k, HC_F32);
    const hc_view x_view = view_of(x_floats, HC_F32, 2, x_shape);
    const hc_view w_view = view_of(converted(weights, n * k, HC_F32), HC_F32, 2, w_shape);
    float *got = guard_alloc((size_t)(m * n) * 4), *wanted = guard_alloc((size_t)(m * n) * 4);
    const hc_view out = view_of(got, HC_F32, 2, out_shape);
    hc_packed packed;
    hc_geometry geometry;
    bool ok = make_packed(&FORMATS[w].format, 2, w_shape, 1, &axis, &packed, &geometry, &error) &&
              hc_quantize(run, &w_view, &ABSMAX, &packed, &error) == HC_OK;
    packed.shape[0] = k; /* now the transpose; the stored rows are unchanged */
    packed.shape[1] = n;
    packed.axes[0] = 0;
    const hc_operand left = {.dense = &x_view}, right = {.packed = &packed};
    ok = ok && hc_matmul(run, &left, &right, a < 0 ? NULL : &FORMATS[a].format, NULL, &out, &error) == HC_OK;
    if (!ok) {
        report(false, name, error.text);
        return;
    }
    const plain_packed plain = plain_quantize(&FORMATS[w].format, &geometry, weights);
    plain_packed plain_x = {.code = NULL};
    if (a >= 0) {
        hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
        hc_layout(&FORMATS[a].format, 2, x_shape, 1, &axis, &geometry, layout, &error);
        plain_x = plain_quantize(&FORMATS[a].format, &geometry, x);
    }
    float *row = guard_alloc((size_t)k * 4);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t c = 0; c < k; c++)
            row[c] = plain_value(&plain, j, plain_column(&plain.geometry, c));
        for (int64_t i = 0; i < m; i++)
            wanted[i * n + j] = a >= 0   ? plain_packed_product(&plain_x, i, &plain, j)
                                : m <= 8 ? plain_gemv(x_floats + i * k, &plain, j)
                                         : plain_chain(k, x_floats + i * k, row);
    }
    ok = same_bits(got, wanted, m * n, detail);
    report(ok, name, detail);
}

/* Both operands float32: the core's own GEMM, without a BLAS. */
static void check_dense(const hc_run *run, int64_t m, int64_t n, int64_t k) {
    const int64_t a_shape[2] = {m, k}, b_shape[2] = {k, n}, out_shape[2] = {m, n};
    char detail[400] = "";
    float *a = converted(random_values(m * k, 21), m * k, HC_F32),
          *b = converted(random_values(k * n, 22), k * n, HC_F32);
    float *got = guard_alloc((size_t)(m * n) * 4), *wanted = guard_alloc((size_t)(m * n) * 4);
    float *column = guard_alloc((size_t)k * 4);
    const hc_view a_view = view_of(a, HC_F32, 2, a_shape), b_view = view_of(b, HC_F32, 2, b_shape);
    const hc_view out = view_of(got, HC_F32, 2, out_shape);
    const hc_operand left = {.dense = &a_view}, right = {.dense = &b_view};
    if (hc_matmul(run, &left, &right, NULL, NULL, &out, &error) != HC_OK) {
        report(false, "dense product", error.text);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        for (int64_t c = 0; c < k; c++)
            column[c] = b[c * n + j];
        for (int64_t i = 0; i < m; i++)
            wanted[i * n + j] = plain_chain(k, a + i * k, column);
    }
    report(same_bits(got, wanted, m * n, detail), "dense product", detail);
}

/* Filters packed along (r, s, c); images dense, or quantized as one row each. 5 x 4 pixels, 3 x 3 taps, padding 1. */
static void check_convolution(const hc_run *run, int a, int w) {
    enum { N = 2, C = 5, H = 5, W = 4, K = 3, R = 3, S = 3, TAPS = R * S * C };
    const int64_t x_shape[4] = {N, C, H, W}, w_shape[4] = {K, C, R, S}, out_shape[4] = {N, K, H, W};
    const int w_axes[3] = {2, 3, 1}, x_axes[4] = {2, 3, 1, 0};
    char name[96], detail[400] = "";
    snprintf(name, sizeof name, "convolution %s x %s", a < 0 ? "float32" : FORMATS[a].text, FORMATS[w].text);
    double *x = random_values(N * C * H * W, 31), *weights = random_values(K * C * R * S, 32);
    const hc_view x_view = view_of(converted(x, N * C * H * W, HC_F32), HC_F32, 4, x_shape);
    const hc_view w_view = view_of(converted(weights, K * C * R * S, HC_F32), HC_F32, 4, w_shape);
    float *got = guard_alloc(N * K * H * W * 4), *wanted = guard_alloc(N * K * H * W * 4);
    const hc_view out = view_of(got, HC_F32, 4, out_shape);
    const hc_window window = {.stride = {1, 1}, .pad_before = {1, 1}, .dilation = {1, 1}, .groups = 1};
    hc_packed packed;
    hc_geometry geometry, x_geometry;
    bool ok = make_packed(&FORMATS[w].format, 4, w_shape, 3, w_axes, &packed, &geometry, &error) &&
              hc_quantize(run, &w_view, &ABSMAX, &packed, &error) == HC_OK;
    const hc_operand filters = {.packed = &packed};
    ok = ok && hc_conv2d(run, &x_view, &filters, NULL, &window, NULL, a < 0 ? NULL : &FORMATS[a].format, &out,
                         &error) == HC_OK;
    if (!ok) {
        report(false, name, error.text);
        return;
    }
    double ordered[K * TAPS], pixels[N * H * W * C];
    for (int f = 0; f < K; f++)
        for (int t = 0; t < TAPS; t++)
            ordered[f * TAPS + t] = weights[(f * C + t % C) * R * S + t / C];
    for (int i = 0; i < N * H * W * C; i++)
        pixels[i] = x[(i / (H * W * C) * C + i % C) * H * W + i / C % (H * W)];
    const plain_packed plain = plain_quantize(&FORMATS[w].format, &geometry, ordered);
    plain_packed plain_x = {.code = NULL};
    if (a >= 0) {
        const int64_t image[4] = {N, C, H, W};
        hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
        hc_layout(&FORMATS[a].format, 4, image, 3, x_axes, &x_geometry, layout, &error);
        plain_x = plain_quantize(&FORMATS[a].format, &x_geometry, pixels);
    }
    for (int i = 0; i < N * K * H * W; i++) {
        const int image = i / (K * H * W), f = i / (H * W) % K, h = i / W % H, column = i % W;
        float sum = 0;
        int64_t total = 0;
        for (int t = 0; t < TAPS; t++) {
            const int y = h + t / C / S - 1, z = column + t / C % S - 1;
            if (y < 0 || y >= H || z < 0 || z >= W)
                continue;
            const int64_t place = plain_column(&geometry, t), pixel = (y * W + z) * C + t % C;
            sum = fmaf((float)pixels[image * H * W * C + pixel], plain_value(&plain, f, place), sum);
            if (a >= 0)
                total += (int64_t)plain_x.code[image * H * W * C + pixel] *
                         plain.step[f * geometry.groups + place / geometry.group] *
                         plain.code[f * geometry.padded + place];
        }
        if (a >= 0) /* row-scaled integers on the left, folded integers on the right */
            sum = (float)((double)plain_x.scale[image] * (double)plain.scale[f * geometry.groups] * (double)total);
        wanted[i] = sum;
    }
    ok = same_bits(got, wanted, N * K * H * W, detail);
    report(ok, name, detail);
}

/* The example of docs/formats/vsq.md: x = float32(arange(-16, 16)) * float32(0.48). */
static void check_worked_example(const hc_run *run) {
    static const int8_t CODES[32] = {-7, -7, -6, -6, -5, -5, -4, -4, -4, -3, -3, -2, -2, -1, -1, 0,
                                     0,  0,  1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7};
    const hc_format format = {.family = PLAIN_VSQ, .bits = 4, .group = 16, .option = {4, 0, 0, 0}};
    const int64_t shape[2] = {1, 32};
    const int axis = 1;
    hc_packed packed;
    hc_geometry geometry;
    float *x = guard_alloc(32 * 4);
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i - 16) * 0.48f;
    const hc_view view = view_of(x, HC_F32, 2, shape);
    if (!make_packed(&format, 2, shape, 1, &axis, &packed, &geometry, &error) ||
        hc_quantize(run, &view, &ABSMAX, &packed, &error) != HC_OK) {
        report(false, "worked example", error.text);
        return;
    }
    float gamma;
    memcpy(&gamma, packed.components.part[HC_COARSE].data, sizeof gamma);
    bool ok = gamma == 0.07314285635948181f && packed.components.part[HC_SCALES].data[0] == (15 | 14 << 4);
    for (int i = 0; i < 32; i++)
        ok = ok && (packed.components.part[HC_CODES].data[i / 2] >> (i % 2 * 4) & 15) == (CODES[i] & 15);
    report(ok, "worked example", "gamma, scales or codes differ");
}

static void check_refusals(const hc_run *run) {
    const int64_t shape[2] = {2, 3};
    const int axis = 1;
    const hc_format int8 = FORMATS[0].format, nine = {.family = PLAIN_INT, .bits = 9, .group = 0, .option = {1, 0}};
    hc_packed packed;
    hc_geometry geometry;
    float *x = guard_alloc(6 * 4);
    for (int i = 0; i < 6; i++)
        x[i] = i == 4 ? (float)NAN : 1;
    const hc_view view = view_of(x, HC_F32, 2, shape);
    bool ok = make_packed(&int8, 2, shape, 1, &axis, &packed, &geometry, &error) &&
              hc_quantize(run, &view, &ABSMAX, &packed, &error) == HC_VALUE && error.ndim == 2 && error.index[0] == 1 &&
              error.index[1] == 1;
    report(ok, "NaN is refused with its index", error.text);
    report(hc_format_check(&nine, &error) == HC_VALUE, "9 bits are refused", error.text);
    int64_t product;
    report(!hc_mul_size(INT64_MAX / 2, 3, &product) && hc_mul_size(1 << 20, 1 << 20, &product),
           "sizes that overflow are seen", "hc_mul_size");
}

/* Checks that a call ended with this status and this message. */
static void refused(hc_status got, hc_status wanted, const char *sentence) {
    report(got == wanted && strcmp(error.text, sentence) == 0, sentence, got == HC_OK ? "the call did it" : error.text);
}

/* Device numbers that no machine has. */
enum { FAR_DEVICE = 1000001, OTHER_DEVICE };

/* The memory of a device is never read: no path serves these devices, and the remaining operations run on the host. */
static void check_devices(const hc_run *run) {
    const int64_t shape[4] = {2, 2, 1, 1};
    const int axis = 1;
    const hc_format int8 = FORMATS[0].format;
    const hc_window window = {{1, 1}, {0, 0}, {1, 1}, 1};
    void *nowhere = (void *)64;
    float *here = guard_alloc(4 * sizeof *here), *answer = guard_alloc(4 * sizeof *answer);
    for (int i = 0; i < 4; i++)
        here[i] = 1;
    const hc_view x = view_of(here, HC_F32, 2, shape), out = view_of(answer, HC_F32, 2, shape);
    const hc_view images = view_of(here, HC_F32, 4, shape), filters = images;
    hc_view far = view_of(nowhere, HC_F32, 2, shape), far_images = view_of(nowhere, HC_F32, 4, shape);
    far.device = far_images.device = FAR_DEVICE;
    hc_run elsewhere = *run;
    elsewhere.device = OTHER_DEVICE;
    hc_packed w;
    hc_geometry geometry;
    report(make_packed(&int8, 2, shape, 1, &axis, &w, &geometry, &error) &&
               hc_quantize(run, &x, &ABSMAX, &w, &error) == HC_OK,
           "arrays of the host", error.text);
    const hc_operand a = {.dense = &x}, far_a = {.dense = &far}, wt = {.dense = &filters};
    hc_explanation found;
    hc_status status = hc_matmul(run, &far_a, &a, NULL, NULL, &out, &error);
    refused(status, HC_UNSUPPORTED,
            "matmul: a is on device 1000001, where no route can compute this call: copy it to the host first");
    status = hc_matmul(run, &a, &far_a, NULL, NULL, &out, &error);
    refused(status, HC_UNSUPPORTED,
            "matmul: b is on device 1000001, where no route can compute this call: copy it to the host first");
    status = hc_matmul(run, &a, &a, NULL, NULL, &far, &error);
    refused(status, HC_UNSUPPORTED,
            "matmul: out is on device 1000001, where no route can compute this call: copy it to the host first");
    status = hc_matmul(&elsewhere, &a, &a, NULL, NULL, &out, &error);
    refused(status, HC_UNSUPPORTED, "matmul: the run is for device 1000002, where no route can compute this call");
    status = hc_explain(run, &far_a, &a, NULL, &out, &found, &error);
    refused(status, HC_UNSUPPORTED,
            "matmul: a is on device 1000001, where no route can compute this call: copy it to the host first");
    status = hc_quantize(run, &far, &ABSMAX, &w, &error);
    refused(status, HC_UNSUPPORTED, "quantize: w is on device 1000001, expected the host: copy it there first");
    status = hc_dequantize(run, &w, &far, &error);
    refused(status, HC_UNSUPPORTED, "dequantize: out is on device 1000001, expected the host: copy it there first");
    status = hc_conv2d(run, &far_images, &wt, NULL, &window, NULL, NULL, &images, &error);
    refused(status, HC_UNSUPPORTED, "x is on device 1000001, expected the host: copy it there first");
    w.components.part[HC_SCALES].device = FAR_DEVICE;
    status = hc_dequantize(run, &w, &out, &error);
    refused(status, HC_VALUE, "dequantize: q has components on the devices 0 and 1000001, expected one device");
    w.components.part[HC_CODES].device = FAR_DEVICE;
    status = hc_dequantize(run, &w, &out, &error);
    refused(status, HC_UNSUPPORTED, "dequantize: q is on device 1000001, expected the host: copy it there first");
}

static bool multiplies(void *run) {
    const int before = n_failed;
    check_dense(run, 70, 65, 40);
    return n_failed == before;
}

/* After a fork, the child can use the thread pool that the parent used. */
static void check_fork(hc_run run) {
    multiplies(&run);
    report(child_says(multiplies, &run), "the child of a fork works", "it did not end well");
}

static void check_all(const hc_run *run) {
    static const int64_t SIZES[] = {1, 2, 15, 16, 17, 37, 64, 65, 130};
    static const hc_dtype DTYPES[] = {HC_F32, HC_F64, HC_BF16};
    for (int f = 0; f < N_FORMATS; f++)
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
            for (uint32_t seed = 0; seed < 4; seed++)
                check_format(run, f, 1 + (int64_t)(i + seed) % 4, SIZES[i], seed, DTYPES[(i + seed) % 3]);
    static const int64_t SHAPES[][3] = {{1, 1, 1}, {1, 17, 130}, {3, 5, 64}, {8, 33, 65}, {9, 16, 37}, {19, 35, 129}};
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++) {
        check_dense(run, SHAPES[s][0], SHAPES[s][1], SHAPES[s][2]);
        for (int w = 0; w < N_FORMATS; w++)
            for (int a = -1; a < N_FORMATS; a++)
                check_product(run, a, w, SHAPES[s][0], SHAPES[s][1], SHAPES[s][2]);
    }
    check_dense(run, 33, 70, 1100);
    for (int w = 0; w < N_FORMATS; w += 4)
        for (int a = -1; a < N_FORMATS; a += 4)
            check_product(run, a, w, 33, 70, 1100);
    for (int w = 0; w < N_FORMATS; w++) {
        check_convolution(run, -1, w);
        const plain_packed folded = {.format = FORMATS[w].format};
        if (plain_is_folded(&folded)) {
            check_convolution(run, 0, w);
            check_convolution(run, 4, w);
        }
    }
    check_worked_example(run);
    check_refusals(run);
    check_devices(run);
    if (!is_emulated)
        check_fork(*run);
}

int main(int n_arguments, char **arguments) {
    if (n_arguments > 1 && strcmp(arguments[1], "fingerprints") == 0)
        return fingerprints();
    if (n_arguments > 1 && strcmp(arguments[1], "allocations") == 0)
        return allocations();
    if (n_arguments > 1 && strcmp(arguments[1], "stack") == 0)
        return on_small_stack(
            fingerprints); /* musl's threads have 128 KiB, users' pools less; -1 if there is no such thread */
    if (n_arguments > 1 && strcmp(arguments[1], "kernels") == 0)
        return kernels(n_arguments - 2, arguments + 2);
    if (n_arguments > 1 && strcmp(arguments[1], "cube") == 0)
        return cube(n_arguments - 2, arguments + 2);
    is_emulated = n_arguments > 1 && strcmp(arguments[1], "emulated") == 0;
    report(guard_works(), "the guard", "a byte outside the memory goes unseen: nothing below means anything");
    report(quotas_are_read(), "the quotas of control groups", "a number of processors is wrong");
    for (int i = -1; i <= HC_N_ISA; i++) {
        uint32_t mask = 0;
        const char *name = i < 0 ? "scalar" : i < HC_N_ISA ? hc_isa_name(1u << i) : "all";
        if (i == HC_N_ISA)
            mask = hc_cpu_isa();
        else if (!hc_isa_from_name(name, &mask) || (mask & ~hc_cpu_isa()) != 0)
            continue;
        const int before = n_passed + n_failed;
        const hc_run run = {.isa = mask, .n_threads = i < HC_N_ISA ? 1 : 3};
        check_all(&run);
        printf("%s, %d threads: %d checks\n", name, run.n_threads, n_passed + n_failed - before);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
