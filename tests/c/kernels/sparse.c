/* CSR rows, EIE entries, lists of activations and bitmaps, against the scalar kernels. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

/* The starts of CSR rows; some rows are empty. */
static int64_t *draw_starts(int64_t rows, int64_t most) {
    int64_t *starts = items(rows + 1, 8);
    starts[0] = 0;
    for (int64_t i = 0; i < rows; i++)
        starts[i + 1] = starts[i] + (draw_below(4) ? draw_below(most + 1) : 0);
    return starts;
}

static int32_t *draw_columns(int64_t rows, const int64_t *starts, int64_t n_columns, int64_t first) {
    int32_t *indices = items(starts[rows], 4);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t n = starts[i + 1] - starts[i];
        for (int64_t t = 0; t < n; t++) /* one column from each of n parts, so they ascend */
            indices[starts[i] + t] = (int32_t)(first + t * n_columns / n + draw_below(n_columns / n));
    }
    return indices;
}

static void spmm_definition(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices,
                            int64_t first, const float *panel, int lanes, bool accumulate, float *tile) {
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < lanes; j++) {
            float sum = accumulate ? tile[i * lanes + j] : 0.0f;
            for (int64_t t = starts[i]; t < starts[i + 1]; t++)
                sum = fmaf(values[t], panel[(indices[t] - first) * lanes + j], sum);
            tile[i * lanes + j] = sum;
        }
}

static void spmm_case(const hc_kernel *kernel, int64_t rows, int64_t most, int lanes, bool accumulate,
                      float_kind kind) {
    const int64_t n_columns = 53, first = rows % 2 * 100, n = rows * lanes;
    begin("%" D " rows of up to %" D " values, lanes %d, accumulate %d, %s", rows, most, lanes, accumulate,
          float_kind_name(kind));
    const int64_t *starts = draw_starts(rows, most);
    const int32_t *indices = draw_columns(rows, starts, n_columns, first);
    const int64_t *begins = copy_of(starts, rows, 8), *ends = copy_of(starts + 1, rows, 8);
    const float *values = floats(starts[rows], kind), *panel = floats(n_columns * lanes, kind);
    float *wanted = floats(n, kind), *got = copy_of(wanted, n, 4);
    spmm_definition(rows, starts, values, indices, first, panel, lanes, accumulate, wanted);
    kernel->fn.csr_spmm(rows, begins, ends, values, indices, first, panel, lanes, accumulate, got);
    same("tile", F32, got, wanted, n);
    BENCH(spmm_definition(rows, starts, values, indices, first, panel, lanes, accumulate, wanted),
          kernel->fn.csr_spmm(rows, begins, ends, values, indices, first, panel, lanes, accumulate, got));
}

void check_csr_spmm(const hc_kernel *kernel) {
    for (int lanes = kernel->nr / 4; lanes <= kernel->nr; lanes *= 2)
        FOR_EACH(int64_t, rows, 0, 1, 2, 5, 9)
    FOR_EACH(int64_t, most, 0, 1, 2, 9, 40)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        spmm_case(kernel, *rows, *most, lanes, i % 2, (float_kind)(i / 2));
    usual();
    spmm_case(kernel, 64, 40, kernel->nr, false, PLAIN);
}

static void spmv_case(const hc_kernel *kernel, int64_t rows, int64_t most, float_kind kind) {
    const int64_t n_columns = 300;
    begin("%" D " rows of up to %" D " values, %s", rows, most, float_kind_name(kind));
    const int64_t *starts = draw_starts(rows, most);
    const int32_t *indices = draw_columns(rows, starts, n_columns, 0);
    const float *values = floats(starts[rows], kind), *x = floats(n_columns, kind);
    float *wanted = items(rows, 4), *got = items(rows, 4);
    hc_csr_spmv_scalar(rows, starts, values, indices, x, wanted);
    kernel->fn.csr_spmv(rows, starts, values, indices, x, got);
    same("out", F32, got, wanted, rows);
    BENCH(hc_csr_spmv_scalar(rows, starts, values, indices, x, wanted),
          kernel->fn.csr_spmv(rows, starts, values, indices, x, got));
}

void check_csr_spmv(const hc_kernel *kernel) {
    FOR_EACH(int64_t, rows, 0, 1, 3, 20, 130)
    FOR_EACH(int64_t, most, 0, 1, 7, 8, 9, 17, 100)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        spmv_case(kernel, *rows, *most, (float_kind)(i / 2));
    usual();
    spmv_case(kernel, 64, 100, PLAIN);
}

static void copy_case(const hc_kernel *kernel, int64_t n, int64_t columns, bool falls) {
    begin("%" D " indices below %" D ", falls %d", n, columns, falls);
    int32_t *indices = items(n, 4), *wanted = items(n, 4), *got = copy_of(wanted, n, 4);
    int64_t count = 0;
    bool inside = true;
    for (int64_t t = 0; t < n; t++) {
        indices[t] = falls ? (int32_t)draw_below((uint32_t)columns + 2) - (int32_t)draw_below(2) : (int32_t)t;
        wanted[t] = indices[t];
        inside = inside && indices[t] >= 0 && indices[t] < columns;
        count += t > 0 && indices[t] < indices[t - 1];
    }
    bool is_inside;
    const int64_t found[2] = {kernel->fn.csr_copy(n, indices, columns, got, &is_inside), is_inside};
    const int64_t expected[2] = {count, inside};
    same("to", I32, got, wanted, n);
    same("falls, inside", I64, found, expected, 2);
    BENCH(hc_csr_copy_scalar(n, indices, columns, wanted, &is_inside),
          kernel->fn.csr_copy(n, indices, columns, got, &is_inside));
}

void check_csr_copy(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++) {
        FOR_EACH(int64_t, columns, 0, 1, 39, 40, 1000)
        for (int falls = 0; falls < 2; falls++)
            copy_case(kernel, n, *columns, falls);
    }
    usual();
    copy_case(kernel, 4096, 4096, false);
}

static void chain_case(const hc_kernel *kernel, int64_t rows, int64_t most, float_kind kind) {
    const int64_t n_columns = 300;
    begin("%" D " rows of up to %" D " values, %s", rows, most, float_kind_name(kind));
    const int64_t *starts = draw_starts(rows, most);
    const int32_t *indices = draw_columns(rows, starts, n_columns, 0);
    const float *values = floats(starts[rows], kind), *x = floats(n_columns, kind);
    float *wanted = items(rows, 4), *got = items(rows, 4);
    for (int64_t i = 0; i < rows; i++) {
        wanted[i] = 0;
        for (int64_t t = starts[i]; t < starts[i + 1]; t++)
            wanted[i] = fmaf(values[t], x[indices[t]], wanted[i]);
    }
    kernel->fn.csr_chain(rows, starts, values, indices, x, got);
    same("out", F32, got, wanted, rows);
    BENCH(hc_csr_chain_scalar(rows, starts, values, indices, x, wanted),
          kernel->fn.csr_chain(rows, starts, values, indices, x, got));
}

void check_csr_chain(const hc_kernel *kernel) {
    FOR_EACH(int64_t, rows, 0, 1, 3, 4, 5, 20)
    FOR_EACH(int64_t, most, 0, 1, 7, 100)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        chain_case(kernel, *rows, *most, (float_kind)(i / 2));
    usual();
    chain_case(kernel, 64, 100, PLAIN);
}

/* An entry of a column: the number of rows to skip, then a code; 15 rows and code 0 are padding. */
static void eie_case(const hc_kernel *kernel, int64_t n, int64_t n_columns, int64_t rows, int lanes, float_kind kind) {
    begin("%" D " of %" D " columns, %" D " rows, %d vectors, %s", n, n_columns, rows, lanes, float_kind_name(kind));
    uint32_t *pointers = items(n_columns + 1, 4);
    uint8_t *all = items(n_columns * rows, 1);
    int64_t count = 0;
    pointers[0] = 0;
    for (int64_t j = 0; j < n_columns; j++) {
        for (int64_t row = -1, run; (run = draw_below(16), row += run + 1) < rows;)
            all[count++] = (uint8_t)(run << 4 | (run == 15 && draw_below(2) ? 0 : 1 + draw_below(15)));
        pointers[j + 1] = (uint32_t)count;
    }
    const uint8_t *entries = copy_of(all, count, 1);
    int32_t *columns = items(n, 4);
    for (int64_t i = 0; i < n; i++)
        columns[i] = (int32_t)draw_below(n_columns);
    float *codebook = floats(16, kind), *x = floats(n * lanes, kind);
    codebook[0] = 0;
    float *wanted = floats(rows * lanes, kind), *got = copy_of(wanted, rows * lanes, 4);
    hc_eie_columns_scalar(n, columns, x, lanes, pointers, entries, count, codebook, wanted);
    kernel->fn.eie_columns(n, columns, x, lanes, pointers, entries, count, codebook, got);
    same("sums", F32, got, wanted, rows * lanes);
    BENCH(hc_eie_columns_scalar(n, columns, x, lanes, pointers, entries, count, codebook, wanted),
          kernel->fn.eie_columns(n, columns, x, lanes, pointers, entries, count, codebook, got));
}

void check_eie_columns(const hc_kernel *kernel) {
    FOR_EACH(int64_t, n, 0, 1, 2, 7, 20)
    FOR_EACH(int64_t, rows, 0, 1, 15, 16, 17, 100)
    FOR_EACH(int, lanes, 1, 8)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        eie_case(kernel, *n, 11, *rows, *lanes, (float_kind)kind);
    for (int lanes = 1; lanes <= 8; lanes += 7) { /* more entries than are copied together */
        eie_case(kernel, 900, 400, 40, lanes, PLAIN);
        eie_case(kernel, 300, 400, 700, lanes, PLAIN);
    }
    usual();
    eie_case(kernel, 64, 64, 256, 1, PLAIN);
}

/* Without `guarded`, values must be finite and sums not -0. */
static void outer_case(const hc_kernel *kernel, int64_t count, int64_t step, int lanes, bool guarded, int64_t most,
                       float_kind kind) {
    const int64_t n = count * lanes, n_starts = count ? (count - 1) * step + 2 : 0;
    begin("%" D " pixels, step %" D ", lanes %d, guarded %d, lists of up to %" D ", %s", count, step, lanes, guarded,
          most, float_kind_name(kind));
    int32_t *starts = items(n_starts, 4);
    for (int64_t i = 0; i < n_starts; i++)
        starts[i] = (int32_t)(i ? starts[i - 1] + (draw_below(3) ? draw_below(most + 1) : 0) : 0);
    const int64_t n_values = n_starts ? starts[n_starts - 1] : 0, panel_rows = most < 9 ? 19 : 256;
    const float *values = floats(n_values, kind);
    float *panel = floats(panel_rows * lanes, kind);
    for (int64_t i = 0; i < panel_rows * lanes; i++)
        panel[i] = i % 5 == 0 ? 0.0f : i % 5 == 1 ? -0.0f : panel[i];
    uint8_t *at = items(n_values, 1);
    for (int64_t t = 0; t < n_values; t++)
        at[t] = (uint8_t)draw_below(panel_rows);
    float *wanted = floats(n, kind);
    for (int64_t i = 0; i < n && !guarded; i++)
        wanted[i] = wanted[i] + 0.0f;
    float *got = copy_of(wanted, n, 4);
    hc_outer_f32_scalar(count, starts, step, values, at, panel, lanes, guarded, wanted);
    kernel->fn.outer_f32(count, starts, step, values, at, panel, lanes, guarded, got);
    same("to", F32, got, wanted, n);
    BENCH(hc_outer_f32_scalar(count, starts, step, values, at, panel, lanes, guarded, wanted),
          kernel->fn.outer_f32(count, starts, step, values, at, panel, lanes, guarded, got));
}

void check_outer_f32(const hc_kernel *kernel) {
    for (int lanes = 16; lanes <= HC_OUTER_LANES; lanes += 16)
        FOR_EACH(int64_t, count, 0, 1, 2, 5, 11)
    FOR_EACH(int64_t, most, 0, 1, 3, 20)
    for (int i = 0; i < 2 * N_FLOAT_KINDS; i++)
        outer_case(kernel, *count, 1 + i / 2 % 3, lanes, i % 2, *most,
                   (float_kind)(i / 2 % (i % 2 ? N_FLOAT_KINDS : N_FINITE_KINDS)));
    usual();
    outer_case(kernel, 64, 1, 64, false, 32, PLAIN);
}

/* Items of which eighths / 8 are not 0, half of those with a single bit. */
static uint8_t *draw_items(int bytes, int64_t n, int eighths) {
    uint8_t *all = items(n * bytes, 1);
    memset(all, 0, (size_t)(n * bytes));
    for (int64_t i = 0; i < n; i++)
        if (draw_below(8) < eighths) {
            const uint64_t item = draw_below(2) ? (uint64_t)1 << draw_below(8 * bytes) : draw() | 1;
            memcpy(all + i * bytes, &item, (size_t)bytes);
        }
    return all;
}

/* The bitmap of the items, and the items that it keeps. */
static void bitmap_case(const hc_kernel *kernel, int bytes, int64_t words, int eighths) {
    begin("items of %d bytes, %" D " words, %d of 8 kept", bytes, words, eighths);
    const uint8_t *all = draw_items(bytes, words * 64, eighths);
    uint64_t *bits = items(words, 8);
    int64_t count = 0;
    hc_bitmap_mark_scalar(bytes, words, all, bits);
    for (int64_t i = 0; i < words; i++)
        count += __builtin_popcountll(bits[i]);
    uint8_t *kept = items(count * bytes, 1);
    hc_bitmap_compress_scalar(bytes, words, bits, all, kept);
    if (kernel->family == HC_FAMILY_bitmap_mark) {
        uint64_t *got = items(words, 8);
        kernel->fn.bitmap_mark(bytes, words, all, got);
        same("bits", U64, got, bits, words);
        BENCH(hc_bitmap_mark_scalar(bytes, words, all, bits), kernel->fn.bitmap_mark(bytes, words, all, got));
    } else if (kernel->family == HC_FAMILY_bitmap_compress) {
        uint8_t *got = items(count * bytes, 1);
        kernel->fn.bitmap_compress(bytes, words, bits, all, got);
        same("kept, byte", U8, got, kept, count * bytes);
        BENCH(hc_bitmap_compress_scalar(bytes, words, bits, all, kept),
              kernel->fn.bitmap_compress(bytes, words, bits, all, got));
    } else {
        uint8_t *got = items(words * 64 * bytes, 1), *wanted = items(words * 64 * bytes, 1);
        hc_bitmap_expand_scalar(bytes, words, bits, kept, wanted);
        kernel->fn.bitmap_expand(bytes, words, bits, kept, got);
        same("what came back, byte", U8, wanted, all, words * 64 * bytes);
        same("items, byte", U8, got, wanted, words * 64 * bytes);
        BENCH(hc_bitmap_expand_scalar(bytes, words, bits, kept, wanted),
              kernel->fn.bitmap_expand(bytes, words, bits, kept, got));
    }
}

static void check_bitmap(const hc_kernel *kernel) {
    for (int bytes = 1; bytes <= 8; bytes *= 2)
        FOR_EACH(int64_t, words, 0, 1, 2, 3, 7)
    for (int i = 0; i < 4 * 9; i++)
        bitmap_case(kernel, bytes, *words, i % 9);
    usual();
    bitmap_case(kernel, 4, 64, 4);
}

void check_bitmap_mark(const hc_kernel *kernel) { check_bitmap(kernel); }
void check_bitmap_compress(const hc_kernel *kernel) { check_bitmap(kernel); }
void check_bitmap_expand(const hc_kernel *kernel) { check_bitmap(kernel); }
