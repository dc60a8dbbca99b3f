/* Convolutions that read windows in place: tiles against their equations. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

static void direct_definition(const hc_kernel *kernel, int64_t taps, int64_t run, const float *const *rows,
                              const float *panel, int64_t tap_step, int64_t step, int n_rows, int columns, float *c,
                              int64_t ldc) {
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < columns; j++) {
            float sum = 0.0f;
            for (int64_t t = 0; t < taps; t++)
                for (int64_t v = 0; v < run; v++)
                    sum = fmaf(rows[t * kernel->mr + i][v], panel[t * tap_step + v * step + j], sum);
            c[i * ldc + j] = sum;
        }
}

/* Each run has its own memory; pointers of rows that must not be read are invalid. */
static void direct_case(const hc_kernel *kernel, int64_t taps, int64_t run, int n_rows, int columns, int64_t ldc,
                        bool taps_first, float_kind kind) {
    const int64_t n = (n_rows - 1) * ldc + columns, nr = kernel->nr;
    const int64_t tap_step = taps_first ? run * nr : nr, value_step = taps_first ? nr : taps * nr;
    begin("%" D " taps of %" D ", taps first %d, %d rows of %d, ldc %" D ", %s", taps, run, taps_first, n_rows, columns,
          ldc, float_kind_name(kind));
    const float *rows[64 * 16];
    for (int64_t t = 0; t < taps; t++)
        for (int i = 0; i < kernel->mr; i++)
            rows[t * kernel->mr + i] = i < n_rows ? floats(run, kind) : NULL;
    const float *panel = floats(taps * run * kernel->nr, kind);
    float *wanted = floats(n, kind), *got = copy_of(wanted, n, 4);
    direct_definition(kernel, taps, run, rows, panel, tap_step, value_step, n_rows, columns, wanted, ldc);
    kernel->fn.direct_f32(taps, run, rows, panel, tap_step, value_step, n_rows, columns, got, ldc);
    same("c", F32, got, wanted, n);
    BENCH(direct_definition(kernel, taps, run, rows, panel, tap_step, value_step, n_rows, columns, wanted, ldc),
          kernel->fn.direct_f32(taps, run, rows, panel, tap_step, value_step, n_rows, columns, got, ldc));
}

void check_direct_f32(const hc_kernel *kernel) {
    for (int n_rows = 1; n_rows <= kernel->mr; n_rows++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
            direct_case(kernel, 1, 1, n_rows, kernel->nr, kernel->nr, true, (float_kind)kind);
            direct_case(kernel, 3, 5, n_rows, kernel->nr, kernel->nr + 5, kind % 2, (float_kind)kind);
        }
    for (int columns = 1; columns < kernel->nr; columns++)
        FOR_EACH(int, n_rows, 1, 2, kernel->mr)
    direct_case(kernel, 2, 3, *n_rows, columns, columns + 3, columns % 2, PLAIN);
    FOR_EACH(int64_t, taps, 1, 2, 9)
    FOR_EACH(int64_t, run, 1, 2, 3, 16, 21)
    for (int taps_first = 0; taps_first < 2; taps_first++)
        direct_case(kernel, *taps, *run, kernel->mr, kernel->nr, kernel->nr, taps_first, PLAIN);
    usual();
    direct_case(kernel, 9, 32, kernel->mr, kernel->nr, kernel->nr, true, PLAIN);
}

/* Defined on plain values: x is (window, tap, value of a run) and w (filter, tap, value of a run). */
static void integers_definition(int64_t k, int n_rows, int nr, const int16_t *x, const int16_t *w, const int32_t *start,
                                int32_t *c, int64_t ldc) {
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < nr; j++) {
            uint32_t sum = (uint32_t)start[j];
            for (int64_t p = 0; p < k; p++)
                sum += (uint32_t)(x[i * k + p] * w[j * k + p]);
            c[i * ldc + j] = (int32_t)sum;
        }
}

static int16_t *draw_words(int64_t n, integer_kind kind) {
    int16_t *values = items(n, 2);
    for (int64_t i = 0; i < n; i++)
        values[i] = (int16_t)draw_integer(-128, 127, kind);
    return values;
}

/* A row ends with its last tap; taps are stored in any order, with gaps. */
static void direct_integers_case(const hc_kernel *kernel, int64_t taps, int64_t run, int n_rows, int columns,
                                 int64_t ldc, integer_kind x_kind, integer_kind w_kind) {
    const int nr = kernel->nr;
    const bool is_wide = kernel->form == HC_PANEL_S16;
    const int64_t k = taps * run, n = (n_rows - 1) * ldc + nr;
    begin("%" D " taps of %" D ", %d rows, %d columns, ldc %" D ", x %s, w %s", taps, run, n_rows, columns, ldc,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    const int16_t *x = draw_words(n_rows * k, x_kind), *w = draw_words(nr * k, w_kind);
    int64_t tap[64];
    for (int64_t t = 0; t < taps; t++)
        tap[t] = (taps - 1 - t) * (run + 3);
    const void *rows[16];
    for (int i = 0; i < kernel->mr; i++) {
        rows[i] = NULL;
        if (i >= n_rows)
            continue;
        const int64_t length = (taps - 1) * (run + 3) + run;
        uint8_t *bytes = items(length, is_wide ? 2 : 1);
        int16_t *words = is_wide ? (int16_t *)(void *)bytes : NULL;
        rows[i] = bytes;
        for (int64_t p = 0; p < k; p++)
            if (words)
                words[tap[p / run] + p % run] = x[i * k + p];
            else
                bytes[tap[p / run] + p % run] = (uint8_t)(x[i * k + p] + 128);
    }
    int8_t *panel = items(k * nr / 4, 4);
    int32_t *start = items(nr, 4), *init = items(nr, 4), *wanted = items(n, 4);
    for (int j = 0; j < nr; j++) {
        uint32_t sum = 0;
        for (int64_t p = 0; p < k; p++) {
            panel[(p / 4 * nr + j) * 4 + p % 4] = (int8_t)w[j * k + p];
            sum += (uint32_t)w[j * k + p];
        }
        start[j] = (int32_t)draw();
        init[j] = (int32_t)((uint32_t)start[j] - (is_wide ? 0 : 128 * sum));
    }
    for (int64_t i = 0; i < n; i++)
        wanted[i] = (int32_t)draw();
    int32_t *got = copy_of(wanted, n, 4);
    integers_definition(k, n_rows, nr, x, w, start, wanted, ldc);
    kernel->fn.direct_s8(taps, tap, run, rows, panel, init, n_rows, columns, got, ldc);
    for (int i = 0; i < n_rows; i++) /* the kernel may write the rest of the nr columns or not */
        memcpy(got + i * ldc + columns, wanted + i * ldc + columns, (size_t)(nr - columns) * sizeof *got);
    same("c", I32, got, wanted, n);
    BENCH(integers_definition(k, n_rows, nr, x, w, start, wanted, ldc),
          kernel->fn.direct_s8(taps, tap, run, rows, panel, init, n_rows, columns, got, ldc));
}

void check_direct_s8(const hc_kernel *kernel) {
    for (int n_rows = 1; n_rows <= kernel->mr; n_rows++)
        for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
            direct_integers_case(kernel, 3, 8, n_rows, kernel->nr, kernel->nr + 5 * (i % 2),
                                 (integer_kind)(i / N_INTEGER_KINDS), (integer_kind)(i % N_INTEGER_KINDS));
    for (int n_rows = 1; n_rows <= kernel->mr; n_rows++)
        FOR_EACH(int, columns, 1, kernel->nr / 2, kernel->nr / 2 + 1)
    direct_integers_case(kernel, 3, 8, n_rows, *columns, kernel->nr + 5, ANY, ANY);
    FOR_EACH(int64_t, taps, 1, 2, 9)
    FOR_EACH(int64_t, run, 4, 8, 12, 24, 68)
    direct_integers_case(kernel, *taps, *run, kernel->mr, kernel->nr, kernel->nr, ANY, ANY);
    direct_integers_case(kernel, 16, 4096, kernel->mr, kernel->nr, kernel->nr, LEAST, LEAST); /* the largest sum */
    usual();
    direct_integers_case(kernel, 9, 64, kernel->mr, kernel->nr, kernel->nr, ANY, ANY);
}

static void depthwise_integers_case(const hc_kernel *kernel, int64_t pairs, int64_t n, int64_t count,
                                    integer_kind x_kind, integer_kind w_kind) {
    const int64_t ld = count + 3, ldc = count + 5, step = count + 1, answers = (n - 1) * ldc + count;
    begin("%" D " pairs, %" D " answers of %" D ", x %s, w %s", pairs, n, count, integer_kind_name(x_kind),
          integer_kind_name(w_kind));
    int64_t tap[64];
    for (int64_t t = 0; t < 2 * pairs; t++)
        tap[t] = (2 * pairs - 1 - t) * 2;
    const int16_t *x = draw_words((n - 1) * step + tap[0] + count, x_kind);
    const int16_t *panel = draw_words(2 * ((pairs - 1) * ld + count), w_kind);
    int32_t *wanted = items(answers, 4);
    for (int64_t i = 0; i < answers; i++)
        wanted[i] = (int32_t)draw();
    int32_t *got = copy_of(wanted, answers, 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            int64_t sum = 0;
            for (int64_t p = 0; p < pairs; p++)
                for (int u = 0; u < 2; u++)
                    sum += x[i * step + tap[2 * p + u] + j] * panel[(p * ld + j) * 2 + u];
            wanted[i * ldc + j] = (int32_t)sum;
        }
    kernel->fn.depthwise_s16(pairs, tap, step, x, panel, ld, n, count, got, ldc);
    same("c", I32, got, wanted, answers);
    BENCH(hc_depthwise_s16_scalar(pairs, tap, step, x, panel, ld, n, count, wanted, ldc),
          kernel->fn.depthwise_s16(pairs, tap, step, x, panel, ld, n, count, got, ldc));
}

void check_depthwise_s16(const hc_kernel *kernel) {
    FOR_EACH(int64_t, pairs, 1, 2, 5)
    FOR_EACH(int64_t, n, 1, 3, 4, 7, 8, 13)
    FOR_EACH(int64_t, count, 1, 7, 15, 16, 17, 33)
    for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
        depthwise_integers_case(kernel, *pairs, *n, *count, (integer_kind)(i / N_INTEGER_KINDS),
                                (integer_kind)(i % N_INTEGER_KINDS));
    usual();
    depthwise_integers_case(kernel, 5, 16, 64, ANY, ANY);
}

/* Compared with plain values: x is (row, value) and w (value, filter). */
static void pairs_case(const hc_kernel *kernel, int64_t pairs, int n_rows, int64_t ldc, int32_t most,
                       integer_kind x_kind, integer_kind w_kind) {
    const int nr = kernel->nr;
    const int64_t k = 2 * pairs, n = (n_rows - 1) * ldc + nr;
    begin("%" D " pairs, %d rows, ldc %" D ", x %s, w %s", pairs, n_rows, ldc, integer_kind_name(x_kind),
          integer_kind_name(w_kind));
    int16_t *panel = items(k * nr, 2);
    for (int64_t p = 0; p < k * nr; p++)
        panel[p] = (int16_t)draw_integer(-most, most, w_kind);
    const int16_t *rows[16] = {NULL};
    for (int i = 0; i < n_rows; i++) {
        int16_t *row = items(k, 2);
        for (int64_t p = 0; p < k; p++)
            row[p] = (int16_t)draw_integer(-most, most, x_kind);
        rows[i] = row;
    }
    int32_t *wanted = items(n, 4);
    for (int64_t i = 0; i < n; i++)
        wanted[i] = (int32_t)draw();
    int32_t *got = copy_of(wanted, n, 4);
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < nr; j++) {
            uint32_t sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += (uint32_t)(rows[i][p] * panel[(p / 2 * nr + j) * 2 + p % 2]);
            wanted[i * ldc + j] = (int32_t)sum;
        }
    kernel->fn.direct_s16(pairs, rows, panel, n_rows, got, ldc);
    same("c", I32, got, wanted, n);
    BENCH(hc_direct_s16_scalar(pairs, rows, panel, n_rows, wanted, ldc),
          kernel->fn.direct_s16(pairs, rows, panel, n_rows, got, ldc));
}

void check_direct_s16(const hc_kernel *kernel) {
    for (int n_rows = 1; n_rows <= kernel->mr; n_rows++)
        for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)
            pairs_case(kernel, 3 + i, n_rows, kernel->nr + 5 * (i % 2), 32767, (integer_kind)(i / N_INTEGER_KINDS),
                       (integer_kind)(i % N_INTEGER_KINDS));
    pairs_case(kernel, 4096, kernel->mr, kernel->nr, 12800, LEAST, LEAST); /* wraps */
    usual();
    pairs_case(kernel, 64, kernel->mr, kernel->nr, 12800, ANY, ANY);
}

enum { MOST_PLACES = 64, GAP = 3 };

static int power_of(int base, int dims) { return dims == 2 ? base * base : base; }

static void input_case(const hc_kernel *kernel, int n, int dims, int64_t count, float_kind kind) {
    const int places = power_of(n, dims);
    const int64_t full = (count + 15) / 16 * 16, step = full + GAP;
    begin("n %d, %d dims, %" D " channels, %s", n, dims, count, float_kind_name(kind));
    const float *pixel[MOST_PLACES];
    for (int i = 0; i < places; i++)
        pixel[i] = floats(count, kind);
    float *wanted = floats(places * step, kind), *got = copy_of(wanted, places * step, 4);
    hc_winograd_input_f32_scalar(n, dims, pixel, count, wanted, step);
    kernel->fn.winograd_input_f32(n, dims, pixel, count, got, step);
    for (int i = 0; i < places; i++) /* columns from `count` on may hold anything */
        for (int64_t c = count; c < full; c++)
            got[i * step + c] = wanted[i * step + c];
    same("v", F32, got, wanted, places * step);
    BENCH(hc_winograd_input_f32_scalar(n, dims, pixel, count, wanted, step),
          kernel->fn.winograd_input_f32(n, dims, pixel, count, got, step));
}

/* `without`: bit 0 leaves out the last row of taps, bit 1 the last column. */
static void filter_case(const hc_kernel *kernel, int n, int r, int dims, int64_t count, int without, float_kind kind) {
    const int places = power_of(n, dims), across = dims == 2 ? r : 1;
    const int64_t step = count + GAP;
    begin("n %d, r %d, %d dims, %" D " values, without %d, %s", n, r, dims, count, without, float_kind_name(kind));
    const float *tap[16] = {NULL};
    for (int i = 0; i < r; i++)
        for (int j = 0; j < across; j++)
            if (!(without % 2 && i == r - 1) && !(without / 2 && j == across - 1))
                tap[i * across + j] = floats(count, kind);
    float *wanted = floats(places * step, kind), *got = copy_of(wanted, places * step, 4);
    hc_winograd_filter_f32_scalar(n, r, dims, tap, count, wanted, step);
    kernel->fn.winograd_filter_f32(n, r, dims, tap, count, got, step);
    same("u", F32, got, wanted, places * step);
    BENCH(hc_winograd_filter_f32_scalar(n, r, dims, tap, count, wanted, step),
          kernel->fn.winograd_filter_f32(n, r, dims, tap, count, got, step));
}

/* One in `skipped` outputs is left out. */
static void output_case(const hc_kernel *kernel, int n, int r, int dims, int64_t count, bool has_bias, bool relu,
                        int skipped, float_kind kind) {
    const int places = power_of(n, dims), answers = power_of(n - r + 1, dims);
    const int64_t step = count + GAP;
    begin("n %d, r %d, %d dims, %" D " filters, bias %d, relu %d, %s", n, r, dims, count, has_bias, relu,
          float_kind_name(kind));
    const float *y = floats((places - 1) * step + count, kind), *bias = has_bias ? floats(count, kind) : NULL;
    float *wanted = floats(answers * step, kind), *got = copy_of(wanted, answers * step, 4);
    float *wanted_at[MOST_PLACES], *got_at[MOST_PLACES];
    for (int i = 0; i < answers; i++) {
        wanted_at[i] = i % skipped ? wanted + i * step : NULL;
        got_at[i] = i % skipped ? got + i * step : NULL;
    }
    hc_winograd_output_f32_scalar(n, r, dims, y, step, count, bias, relu, wanted_at);
    kernel->fn.winograd_output_f32(n, r, dims, y, step, count, bias, relu, got_at);
    same("answer", F32, got, wanted, answers * step);
    BENCH(hc_winograd_output_f32_scalar(n, r, dims, y, step, count, bias, relu, wanted_at),
          kernel->fn.winograd_output_f32(n, r, dims, y, step, count, bias, relu, got_at));
}

#define FOR_TILES(most)                                                                                                \
    for (int m = 2; m <= (most); m += 2)                                                                               \
        for (int dims = 1; dims <= 2; dims++)                                                                          \
    FOR_EACH(int64_t, count, 1, 7, 8, 15, 16, 17, 33)
#define FOR_TRANSFORMS FOR_TILES(6) for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
/* The numbers of taps that a tile of m + 2 pixels allows. */
#define FOR_TAPS for (int r = dims == 2 ? 2 : 3; r <= (dims == 2 ? (int)hc_min(4, m + 1) : 3); r++)

void check_winograd_input_f32(const hc_kernel *kernel) {
    FOR_TRANSFORMS input_case(kernel, m + 2, dims, *count, (float_kind)kind);
    usual();
    input_case(kernel, 6, 2, 64, PLAIN);
}

void check_winograd_filter_f32(const hc_kernel *kernel) {
    FOR_TRANSFORMS FOR_TAPS for (int without = 0; without < 2 * dims; without++)
        filter_case(kernel, m + 2, r, dims, *count, without, (float_kind)kind);
    usual();
    filter_case(kernel, 6, 3, 2, 64, 0, PLAIN);
}

void check_winograd_output_f32(const hc_kernel *kernel) {
    FOR_TRANSFORMS FOR_TAPS for (int i = 0; i < 4; i++)
        output_case(kernel, m + 2, r, dims, *count, i % 2, i / 2, 2 + i, (float_kind)kind);
    usual();
    output_case(kernel, 6, 3, 2, 32, true, true, 99, PLAIN);
}

/* Integers: the three transforms together compute the convolution with 3 or 3 x 3 taps. One transform is `kernel`, by
 * its family; the other two are scalar. */
static void whole_case(const hc_kernel *kernel, int m, int dims, int64_t count, integer_kind x_kind,
                       integer_kind w_kind) {
    const int n = m + 2, places = power_of(n, dims), answers = power_of(m, dims), taps = power_of(3, dims);
    const int across = dims == 2 ? n : 1, answers_across = dims == 2 ? m : 1, taps_across = dims == 2 ? 3 : 1;
    const int64_t step = count + GAP;
    begin("m %d, %d dims, %" D " values, x %s, w %s", m, dims, count, integer_kind_name(x_kind),
          integer_kind_name(w_kind));
    const int16_t *pixel[MOST_PLACES];
    for (int i = 0; i < places; i++)
        pixel[i] = draw_words(count, x_kind);
    const int16_t *tap = draw_words((taps - 1) * step + count, w_kind);
    int16_t *v = items(places * step, 2), *u = items(places * step, 2);
    int32_t *y = items(places * step, 4), *got = items(answers * step, 4), *answer[MOST_PLACES];
    for (int64_t i = 0; i < answers * step; i++)
        got[i] = (int32_t)draw();
    int32_t *wanted = copy_of(got, answers * step, 4);
    for (int i = 0; i < answers; i++)
        answer[i] = got + i * step;
    const hc_kernel_family family = kernel->family;
    (family == HC_FAMILY_winograd_input_s16 ? kernel->fn.winograd_input_s16
                                            : hc_winograd_input_s16_scalar)(m, dims, pixel, count, v, step);
    (family == HC_FAMILY_winograd_filter_s16 ? kernel->fn.winograd_filter_s16
                                             : hc_winograd_filter_s16_scalar)(m, dims, tap, step, count, u, step);
    for (int i = 0; i < places; i++)
        for (int64_t c = 0; c < count; c++)
            y[i * step + c] = v[i * step + c] * u[i * step + c];
    (family == HC_FAMILY_winograd_output_s32 ? kernel->fn.winograd_output_s32
                                             : hc_winograd_output_s32_scalar)(m, dims, y, step, count, answer);
    for (int i = 0; i < answers; i++)
        for (int64_t c = 0; c < count; c++) {
            int32_t sum = 0;
            for (int t = 0; t < taps; t++)
                sum +=
                    pixel[(i / answers_across + t / taps_across) * across + i % answers_across + t % taps_across][c] *
                    tap[t * step + c];
            wanted[i * step + c] = sum;
        }
    same("answer", I32, got, wanted, answers * step);
}

#define CHECK_OF_INTEGERS(family)                                                                                      \
    void check_##family(const hc_kernel *kernel) {                                                                     \
        FOR_TILES(4)                                                                                                   \
        for (int i = 0; i < N_INTEGER_KINDS * N_INTEGER_KINDS; i++)                                                    \
            whole_case(kernel, m, dims, *count, (integer_kind)(i / N_INTEGER_KINDS),                                   \
                       (integer_kind)(i % N_INTEGER_KINDS));                                                           \
    }
CHECK_OF_INTEGERS(winograd_input_s16)
CHECK_OF_INTEGERS(winograd_filter_s16)
CHECK_OF_INTEGERS(winograd_output_s32)

_Alignas(64) static float work[64 * 65 * 16 + 64 * 32]; /* for 64 x 64 */

static void forward_case(const hc_kernel *kernel, int height, int width, bool filter, const hc_fft_pixels *shape,
                         int64_t count, float_kind kind) {
    const int64_t step = count + GAP, n = 3 * hc_fft_places(height, width) * step;
    begin("%d x %d, %d x %d of %" D " values, filter %d, %s", height, width, shape->rows, shape->columns, count, filter,
          float_kind_name(kind));
    hc_fft_pixels pixels = *shape;
    pixels.pixel_step = count + 1;
    pixels.row_step = (shape->columns + 1) * pixels.pixel_step;
    if (pixels.rows && pixels.columns)
        pixels.values =
            floats((pixels.rows - 1) * pixels.row_step + (pixels.columns - 1) * pixels.pixel_step + count, kind);
    float *wanted = floats(n, kind), *got = copy_of(wanted, n, 4);
    hc_fft_forward_f32_scalar(height, width, filter, &pixels, count, wanted, step, work);
    kernel->fn.fft_forward_f32(height, width, filter, &pixels, count, got, step, work);
    same("to", F32, got, wanted, n);
    BENCH(hc_fft_forward_f32_scalar(height, width, filter, &pixels, count, wanted, step, work),
          kernel->fn.fft_forward_f32(height, width, filter, &pixels, count, got, step, work));
}

static void back_case(const hc_kernel *kernel, int height, int width, const hc_fft_answers *shape, int64_t count,
                      bool has_bias, bool relu, float_kind kind) {
    const int64_t step = count + GAP, n = 3 * hc_fft_places(height, width) * step;
    begin("%d x %d, %d x %d of %" D " filters, bias %d, relu %d, %s", height, width, shape->rows, shape->columns, count,
          has_bias, relu, float_kind_name(kind));
    const float *y = floats(n, kind), *bias = has_bias ? floats(count, kind) : NULL;
    hc_fft_answers to = *shape, at = *shape;
    to.pixel_step = at.pixel_step = step;
    to.row_step = at.row_step = (shape->columns + 1) * step;
    const int64_t answers = shape->rows * to.row_step;
    to.to = floats(answers, kind), at.to = copy_of(to.to, answers, 4);
    hc_fft_back_f32_scalar(height, width, y, step, count, bias, relu, &to, work);
    kernel->fn.fft_back_f32(height, width, y, step, count, bias, relu, &at, work);
    same("answers", F32, at.to, to.to, answers);
    BENCH(hc_fft_back_f32_scalar(height, width, y, step, count, bias, relu, &to, work),
          kernel->fn.fft_back_f32(height, width, y, step, count, bias, relu, &at, work));
}

static const int FFT_SIZES[][2] = {{1, 8}, {1, 64}, {8, 8}, {8, 16}, {16, 8}, {32, 16}, {16, 64}};
enum { N_FFT_SIZES = sizeof FFT_SIZES / sizeof *FFT_SIZES };

void check_fft_forward_f32(const hc_kernel *kernel) {
    for (int i = 0; i < N_FFT_SIZES; i++)
        FOR_EACH(int64_t, count, 1, 8, 17, 33)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        const int height = FFT_SIZES[i][0], width = FFT_SIZES[i][1];
        const hc_fft_pixels all = {.rows = height, .columns = width, .down = 1, .across = 1};
        const hc_fft_pixels some = {
            .top = height / 2, .left = 3, .rows = (height + 3) / 4, .columns = 2, .down = 2, .across = 4};
        forward_case(kernel, height, width, kind % 2, &all, *count, (float_kind)kind);
        forward_case(kernel, height, width, !(kind % 2), &some, *count, (float_kind)kind);
        forward_case(kernel, height, width, false, &(hc_fft_pixels){.down = 1, .across = 1}, *count, (float_kind)kind);
    }
    usual();
    forward_case(kernel, 16, 16, false, &(hc_fft_pixels){.rows = 16, .columns = 16, .down = 1, .across = 1}, 64, PLAIN);
}

void check_fft_back_f32(const hc_kernel *kernel) {
    for (int i = 0; i < N_FFT_SIZES; i++)
        FOR_EACH(int64_t, count, 1, 8, 17, 33)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        const int height = FFT_SIZES[i][0], width = FFT_SIZES[i][1];
        const hc_fft_answers all = {.rows = height, .columns = width, .down = 1, .across = 1};
        const hc_fft_answers some = {.rows = (height + 2) / 3, .columns = 2, .down = 3, .across = 5};
        back_case(kernel, height, width, &all, *count, kind % 2, kind / 2 % 2, (float_kind)kind);
        back_case(kernel, height, width, &some, *count, !(kind % 2), !(kind / 2 % 2), (float_kind)kind);
    }
    usual();
    back_case(kernel, 16, 16, &(hc_fft_answers){.rows = 12, .columns = 12, .down = 1, .across = 1}, 16, true, true,
              PLAIN);
}
