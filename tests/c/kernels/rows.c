/* Products of rows as they lie, or with those of x side by side, against the scalar kernels. */
#include "kernels.h"

#include <inttypes.h>

#define D PRId64

/* Padding of rows and gaps between them; x is 0 up to a whole step, and w may end with its last column. */
static void rows_case(const hc_kernel *kernel, int n_x, int64_t n_w, int64_t columns, int64_t gap, int hints,
                      integer_kind x_kind, integer_kind w_kind) {
    const int64_t ld_x = (columns + HC_ROWS_STEP - 1) / HC_ROWS_STEP * HC_ROWS_STEP + gap, ld_w = columns + gap;
    const int64_t ldc = n_w + gap, n_c = (n_x - 1) * ldc + n_w, w_bytes = n_w ? (n_w - 1) * ld_w + columns : 0;
    begin("%d x %" D " rows of %" D ", gap %" D ", hints %d, x %s, w %s", n_x, n_w, columns, gap, hints,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    int8_t *x = items(n_x * ld_x - gap, 1), *w = items(w_bytes, 1);
    int32_t *sums = items(n_x, 4), *wanted = items(n_c, 4);
    for (int64_t i = 0; i < n_x * ld_x - gap; i++)
        x[i] = (int8_t)(i % ld_x < columns ? draw_integer(-128, 127, x_kind) : i % ld_x < ld_x - gap ? 0 : 77);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (int8_t)(hints & 4 ? draw_integer(-8, 8, w_kind) : draw_integer(-128, 127, w_kind));
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    for (int64_t i = 0; i < n_x; i++) {
        uint32_t sum = 0;
        for (int64_t k = 0; k < columns; k++)
            sum += (uint32_t)x[i * ld_x + k];
        sums[i] = (int32_t)sum;
    }
    hc_rows_s8_args args = {.n_x = n_x, .n_w = n_w, .columns = columns, .ld_x = ld_x, .ld_w = ld_w, .ldc = ldc};
    args.x = x;
    args.w = w;
    args.x_sums = sums;
    args.accumulate = hints % 2;
    args.next = hints & 2 ? w + ld_w : NULL;
    args.part = 1;
    args.parts = 2;
    args.is_small = hints & 4;
    hc_rows_s8_args other = args;
    int32_t *got = copy_of(wanted, n_c, 4);
    args.c = wanted;
    other.c = got;
    hc_rows_s8_scalar(&args);
    kernel->fn.rows_s8(&other);
    same("c", I32, got, wanted, n_c);
    BENCH(hc_rows_s8_scalar(&args), kernel->fn.rows_s8(&other));
}

void check_rows_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200, 223, 225, 449)
    for (int n_x = 1; n_x <= HC_ROWS_X; n_x++)
        for (int i = 0; i < 8; i++)
            rows_case(kernel, n_x, 1 + (n_x * 3 + i) % 7, *columns, i % 3 * 5, i, (integer_kind)(i % N_INTEGER_KINDS),
                      (integer_kind)(n_x % N_INTEGER_KINDS));
    rows_case(kernel, 3, 0, 64, 0, 0, ANY, ANY);
    for (int i = 0; i < 16; i++) /* the whole budget */
        rows_case(kernel, 2, 2, 65536, 0, i % 8, i & 1 ? LEAST : MOST, i & 8 ? LEAST : MOST);
    usual();
    rows_case(kernel, 8, 24, 1024, 0, 0, ANY, ANY);
    rows_case(kernel, 8, 24, 1024, 0, 4, ANY, ANY);
}

/* Rows of x side by side, plus 128; w may end with its last column. */
static void lanes_case(const hc_kernel *kernel, int lanes, int64_t n_w, int64_t columns, int64_t gap, int hints,
                       integer_kind x_kind, integer_kind w_kind) {
    const int64_t ld_w = columns + gap, ldc = lanes + gap, n_c = n_w ? (n_w - 1) * ldc + lanes : 0;
    const int64_t width = lanes == HC_LANES_FEW ? 8 : 4;
    const int64_t n_x = hc_round_up(columns, width) * lanes, w_bytes = n_w ? (n_w - 1) * ld_w + columns : 0;
    begin("%d lanes x %" D " rows of %" D ", gap %" D ", hints %d, x %s, w %s", lanes, n_w, columns, gap, hints,
          integer_kind_name(x_kind), integer_kind_name(w_kind));
    uint8_t *x = items(n_x, 1);
    int8_t *w = items(w_bytes, 1);
    int32_t *wanted = items(n_c, 4);
    for (int64_t i = 0; i < n_x; i++)
        x[i] = (uint8_t)draw_integer(0, 255, x_kind);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (int8_t)draw_integer(-128, 127, w_kind);
    for (int64_t i = 0; i < n_c; i++)
        wanted[i] = (int32_t)draw();
    hc_lanes_s8_args args = {.lanes = lanes, .n_w = n_w, .columns = columns, .ld_w = ld_w, .ldc = ldc, .x = x, .w = w};
    args.accumulate = hints % 2;
    args.next = hints / 2 ? w + ld_w : NULL;
    args.part = 1;
    args.parts = 2;
    hc_lanes_s8_args other = args;
    int32_t *got = copy_of(wanted, n_c, 4);
    args.c = wanted;
    other.c = got;
    hc_lanes_s8_scalar(&args);
    kernel->fn.lanes_s8(&other);
    same("c", I32, got, wanted, n_c);
    BENCH(hc_lanes_s8_scalar(&args), kernel->fn.lanes_s8(&other));
}

void check_lanes_s8(const hc_kernel *kernel) {
    FOR_EACH(int64_t, columns, 0, 1, 2, 3, 4, 5, 63, 64, 65, 130)
    for (int n = 0; n <= HC_LANES_X; n++)
        for (int i = 0; i < 4; i++)
            lanes_case(kernel, n ? n * kernel->mr : HC_LANES_FEW, 1 + (n * 7 + i * 5) % 19, *columns, i % 3 * 5, i,
                       (integer_kind)(i % N_INTEGER_KINDS), (integer_kind)(n % N_INTEGER_KINDS));
    lanes_case(kernel, kernel->mr, 0, 64, 0, 0, ANY, ANY);
    for (int i = 0; i < 8; i++) /* the whole budget */
        lanes_case(kernel, i < 4 ? kernel->mr : HC_LANES_FEW, 2, 65536, 0, i % 4, i % 2 ? LEAST : MOST,
                   i / 2 % 2 ? LEAST : MOST);
    usual();
    lanes_case(kernel, HC_LANES_X * kernel->mr, 24, 1024, 0, 0, ANY, ANY);
}
