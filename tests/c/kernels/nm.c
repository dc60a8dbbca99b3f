/* N:M sparse floats: GEMV and GEMM against the scalar kernels; choosing and expanding against sparsity/nm.h. */
#include "kernels.h"

#include "sparsity/nm.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

/* Masks of 64 columns with about eighths / 8 of the bits set; with 8 eighths all are set. */
static uint64_t draw_mask(int eighths) {
    uint64_t mask = 0;
    for (int i = 0; i < 64; i++)
        mask |= (uint64_t)(draw_below(8) < eighths) << i;
    return mask;
}

static uint64_t *draw_masks(int64_t words, int eighths, int64_t *kept) {
    uint64_t *masks = items(words, 8);
    *kept = 0;
    for (int64_t i = 0; i < words; i++)
        *kept += __builtin_popcountll(masks[i] = draw_mask(eighths));
    return masks;
}

static void nm_case(const hc_kernel *kernel, int64_t words, int eighths, int n_vectors, int64_t behind,
                    float_kind kind) {
    begin("%" D " words, %d of 8 kept, %d vectors, %" D " codes behind, %s", words, eighths, n_vectors, behind,
          float_kind_name(kind));
    int64_t kept;
    const uint64_t *masks = draw_masks(words, eighths, &kept), last = words ? masks[words - 1] : 0;
    const float *codes = floats(kept + behind, kind), *end = codes + kept + behind;
    const int64_t ldx = words * 64 + n_vectors - 1; /* a single vector ends at the last kept column */
    const int64_t n_last = n_vectors > 1 ? 64 : last ? 64 - __builtin_clzll(last) : 0;
    const float *x = floats(words ? (n_vectors - 1) * ldx + (words - 1) * 64 + n_last : 0, kind);
    float *wanted = floats(n_vectors * 64, kind), *got = copy_of(wanted, n_vectors * 64, 4);
    hc_gemv_nm_scalar(words, masks, codes, end, x, ldx, n_vectors, wanted);
    const int64_t done = kernel->fn.gemv_nm(words, masks, codes, end, x, ldx, n_vectors, got) - codes;
    same("sums", F32, got, wanted, n_vectors * 64);
    same("the number of codes", I64, &done, &kept, 1);
    BENCH(hc_gemv_nm_scalar(words, masks, codes, end, x, ldx, n_vectors, wanted),
          kernel->fn.gemv_nm(words, masks, codes, end, x, ldx, n_vectors, got));
}

void check_gemv_nm(const hc_kernel *kernel) {
    int i = 0;
    FOR_EACH(int64_t, words, 0, 1, 2, 3, 7, 8, 9, 17)
    FOR_EACH(int, eighths, 0, 1, 4, 7, 8)
    for (int n_vectors = 1; n_vectors <= 8; n_vectors *= 2)
        FOR_EACH(int64_t, behind, 0, 1, 8, 16, 600)
    nm_case(kernel, *words, *eighths, n_vectors, *behind, (float_kind)(i++ % N_FLOAT_KINDS));
    usual();
    nm_case(kernel, 64, 4, 1, 0, PLAIN);
}

static const uint8_t PAIRS[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe}; /* two ascending 2-bit positions */

static void quads_case(const hc_kernel *kernel, int64_t words, int n_vectors, float_kind kind) {
    begin("%" D " words, %d vectors, %s", words, n_vectors, float_kind_name(kind));
    uint8_t *metadata = items(words * 8, 1);
    uint64_t *masks = items(words, 8);
    for (int64_t quad = 0; quad < words * 16; quad++)
        put_bits(metadata, quad, 4, PAIRS[draw_below(6)]);
    hc_nm_masks(metadata, words * 32, 2, 4, 0, words * 64, masks);
    const int64_t ldx = words * 64 + n_vectors - 1;
    const float *codes = floats(words * 32, kind), *x = floats(words ? n_vectors * ldx - n_vectors + 1 : 0, kind);
    float *wanted = floats(n_vectors * 64, kind), *got = copy_of(wanted, n_vectors * 64, 4);
    hc_gemv_nm_scalar(words, masks, codes, codes + words * 32, x, ldx, n_vectors, wanted);
    kernel->fn.gemv_24(words, metadata, codes, x, ldx, n_vectors, got);
    same("sums", F32, got, wanted, n_vectors * 64);
    BENCH(hc_gemv_nm_scalar(words, masks, codes, codes + words * 32, x, ldx, n_vectors, wanted),
          kernel->fn.gemv_24(words, metadata, codes, x, ldx, n_vectors, got));
}

void check_gemv_24(const hc_kernel *kernel) {
    FOR_EACH(int64_t, words, 0, 1, 2, 3, 8, 13)
    for (int n_vectors = 1; n_vectors <= 4; n_vectors *= 2)
        for (int i = 0; i < 4 * N_FLOAT_KINDS; i++)
            quads_case(kernel, *words, n_vectors, (float_kind)(i % N_FLOAT_KINDS));
    usual();
    quads_case(kernel, 64, 1, PLAIN);
}

static void batch_case(const hc_kernel *kernel, int64_t kept, int64_t group, int n_vectors, float_kind kind) {
    enum { COLUMNS = 137 };
    begin("%" D " codes, group %" D ", %d vectors, %s", kept, group, n_vectors, float_kind_name(kind));
    const int64_t groups = group ? hc_ceil_div(kept, group) : 0, lanes = group ? 16 : 64;
    const int64_t n = HC_GEMV_ROWS * lanes * HC_GEMV_BATCH;
    hc_gemv_nm_batch_args args = {.n_vectors = n_vectors, .kept = kept, .group = group}, other;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        uint16_t *at = items(kept, 2);
        for (int64_t t = 0; t < kept; t++)
            at[t] = (uint16_t)draw_below(COLUMNS);
        args.at[r] = at;
        args.codes[r] = floats(kept, kind);
        args.scales[r] = floats(groups, kind);
    }
    args.panel = floats(COLUMNS * HC_GEMV_BATCH, kind);
    other = args;
    other.sums = floats(n, kind);
    args.sums = copy_of(other.sums, n, 4);
    hc_gemv_nm_batch_scalar(&other);
    kernel->fn.gemv_nm_batch(&args);
    for (int64_t i = 0; i < n; i += HC_GEMV_BATCH)
        same("sums", F32, args.sums + i, other.sums + i, n_vectors);
    BENCH(hc_gemv_nm_batch_scalar(&other), kernel->fn.gemv_nm_batch(&args));
}

void check_gemv_nm_batch(const hc_kernel *kernel) {
    int i = 0;
    FOR_EACH(int64_t, kept, 0, 1, 2, 7, 16, 33, 150)
    FOR_EACH(int64_t, group, 0, 1, 3, 8, 16, 200)
    for (int n_vectors = 1; n_vectors <= 8; n_vectors++)
        batch_case(kernel, *kept, *group, n_vectors, (float_kind)(i++ % N_FLOAT_KINDS));
    usual();
    batch_case(kernel, 1024, 16, 8, PLAIN);
}

static void f32_definition(int64_t rows, int64_t count, const float *values, const uint16_t *at, const float *panel,
                           int lanes, const float *from, int64_t ld_from, float *to, int64_t ld_to) {
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < lanes; j++) {
            float sum = from ? from[i * ld_from + j] : 0.0f;
            for (int64_t t = i * count; t < (i + 1) * count; t++)
                sum = fmaf(values[t], panel[at[t] * lanes + j], sum);
            to[i * ld_to + j] = sum;
        }
}

/* in_place: the sums are read from and written to the same memory. */
static void f32_case(const hc_kernel *kernel, int64_t rows, int64_t count, int lanes, bool has_from, bool in_place,
                     float_kind kind) {
    enum { PANEL_ROWS = 61 };
    const int64_t ld = lanes + rows % 3, n = (rows - 1) * ld + lanes;
    begin("%" D " rows, %" D " kept, lanes %d, from %s, %s", rows, count, lanes,
          in_place   ? "to"
          : has_from ? "others"
                     : "0",
          float_kind_name(kind));
    const float *values = floats(rows * count, kind), *panel = floats(PANEL_ROWS * lanes, kind);
    uint16_t *at = items(rows * count, 2);
    for (int64_t t = 0; t < rows * count; t++)
        at[t] = (uint16_t)draw_below(PANEL_ROWS);
    float *wanted = in_place ? floats(n, kind) : items(n, 4), *got = copy_of(wanted, n, 4);
    const float *from = has_from ? floats((rows - 1) * lanes + lanes, kind) : NULL;
    const int64_t ld_from = in_place ? ld : lanes, next_bytes = draw_below(1000);
    f32_definition(rows, count, values, at, panel, lanes, in_place ? wanted : from, ld_from, wanted, ld);
    kernel->fn.gemm_nm_f32(rows, count, values, at, panel, lanes, in_place ? got : from, ld_from, got, ld,
                           (const char *)panel, next_bytes);
    same("to", F32, got, wanted, n);
    BENCH(
        f32_definition(rows, count, values, at, panel, lanes, from, ld_from, wanted, ld),
        kernel->fn.gemm_nm_f32(rows, count, values, at, panel, lanes, from, ld_from, got, ld, (const char *)panel, 0));
}

void check_gemm_nm_f32(const hc_kernel *kernel) {
    int i = 0;
    for (int lanes = kernel->mr; lanes <= kernel->nr; lanes += kernel->mr)
        FOR_EACH(int64_t, rows, 1, 2, 3, 4, 5, 7, 9)
    FOR_EACH(int64_t, count, 0, 1, 3, 4, 5, 15, 16, 17, 23, 50)
    for (int from = 0; from < 3; from++)
        f32_case(kernel, *rows, *count, lanes, from == 1, from == 2, (float_kind)(i++ % N_FLOAT_KINDS));
    usual();
    f32_case(kernel, 32, 64, kernel->kr, false, false, PLAIN);
}

static void expand_case(hc_expand_fn *definition, hc_expand_fn *fn, int bits, int64_t words, int eighths) {
    begin("%" D " words, %d of 8 kept", words, eighths);
    int64_t count;
    const uint64_t *masks = draw_masks(words, eighths, &count);
    const int64_t bytes = hc_ceil_div(count * bits, 8), n = words * 8 * bits;
    const void *random = random_bytes(bytes), *kept = bits == 32 ? copy_of(random, bytes / 4, 4) : random;
    void *wanted = items(words * 64 * bits / 32, 4), *got = items(words * 64 * bits / 32, 4);
    definition(words, masks, kept, wanted);
    fn(words, masks, kept, got);
    same("out, byte", U8, got, wanted, n);
    BENCH(definition(words, masks, kept, wanted), fn(words, masks, kept, got));
}

static void check_expand(hc_expand_fn *definition, hc_expand_fn *fn, int bits) {
    FOR_EACH(int64_t, words, 0, 1, 2, 3, 8, 11)
    for (int i = 0; i < 3 * 9; i++)
        expand_case(definition, fn, bits, *words, i % 9);
    usual();
    expand_case(definition, fn, bits, 64, 4);
}

void check_expand_x4(const hc_kernel *kernel) { check_expand(hc_expand_x4_scalar, kernel->fn.expand_x4, 4); }
void check_expand_x8(const hc_kernel *kernel) { check_expand(hc_expand_x8_scalar, kernel->fn.expand_x8, 8); }
void check_expand_x32(const hc_kernel *kernel) { check_expand(hc_expand_x32_scalar, kernel->fn.expand_x32, 32); }

/* Random metadata, `behind` bytes longer than the words need. */
static void masks_case(const hc_kernel *kernel, int n, int m, int64_t words, int64_t behind) {
    const int64_t kept = words * 64 / m * n, bytes = hc_ceil_div(kept * hc_position_bits(m), 8) + behind;
    begin("%d:%d, %" D " words, %" D " bytes", n, m, words, bytes);
    const uint8_t *metadata = random_bytes(bytes);
    uint64_t *wanted = items(words, 8), *got = items(words, 8);
    const int64_t answer = kernel->fn.masks_nm(n, m, metadata, bytes, words, got);
    if (answer < 0 || answer > words)
        fail("the answer is %" D, answer);
    hc_nm_masks(metadata, kept, n, m, 0, answer * 64, wanted);
    same("masks", U64, got, wanted, words);
    if (answer > 0)
        BENCH(hc_nm_masks(metadata, kept, n, m, 0, answer * 64, wanted),
              kernel->fn.masks_nm(n, m, metadata, bytes, words, got));
}

void check_masks_nm(const hc_kernel *kernel) {
    for (int m = 1; m <= HC_MAX_M; m *= 2)
        for (int n = 1; n <= m; n++)
            FOR_EACH(int64_t, words, 0, 1, 2, 3, 4, 7, 8, 9, 17)
    FOR_EACH(int64_t, behind, 0, 1, 5, 16)
    masks_case(kernel, n, m, *words, *behind);
    usual();
    masks_case(kernel, 2, 4, 64, 0);
}

static void choose_case(const hc_kernel *kernel, int n, int m, int64_t blocks, float_kind kind, bool scored) {
    begin("%d:%d, %" D " blocks, %s, %s", n, m, blocks, float_kind_name(kind), scored ? "scores" : "|x|");
    const float *x = floats(blocks * m, kind);
    float *scores = scored ? floats(blocks * m, kind) : NULL;
    for (int64_t i = 0; scored && i < blocks * m; i++) /* as in columns that pad a block */
        scores[i] = i % 7 == 6 && kind != SPECIAL ? -INFINITY : scores[i];
    if (kind == SPECIAL && draw_below(2)) /* leaves at most a few NaNs */
        for (int64_t i = 0; i < blocks * m; i++)
            if (isnan((scored ? scores : x)[i]) && draw_below(blocks * m) > 1)
                (scored ? scores : (float *)x)[i] = 0;
    const int64_t bytes = hc_ceil_div(blocks * n * hc_position_bits(m), 8);
    float *wanted = items(blocks * n, 4), *got = items(blocks * n, 4);
    uint8_t *wanted_metadata = items(bytes, 1), *got_metadata = items(bytes, 1);
    const int64_t answer = kernel->fn.choose_nm(n, m, blocks, x, scores, got, got_metadata);
    if (answer == HC_DECLINED) {
        same("values of what it declined", I32, got, wanted, blocks * n);
        same("metadata of what it declined", U8, got_metadata, wanted_metadata, bytes);
        return;
    }
    const int64_t done = hc_nm_choose(n, m, blocks, x, scores, wanted, wanted_metadata);
    same("the answer", I64, &answer, &done, 1);
    if (done == HC_DONE) {
        same("values", F32, got, wanted, blocks * n);
        same("metadata", U8, got_metadata, wanted_metadata, bytes);
    }
    BENCH(hc_nm_choose(n, m, blocks, x, scores, wanted, wanted_metadata),
          kernel->fn.choose_nm(n, m, blocks, x, scores, got, got_metadata));
}

void check_choose_nm(const hc_kernel *kernel) {
    int i = 0;
    for (int m = 1; m <= HC_MAX_M; m++)
        for (int n = 1; n <= m; n++)
            FOR_EACH(int64_t, blocks, 0, 1, 7, 8, 9, 16, 17, 31, 33, 67)
    for (int j = 0; j < (m <= 8 ? 6 : 1); j++, i++)
        choose_case(kernel, n, m, *blocks, (float_kind)(i % N_FLOAT_KINDS), i / N_FLOAT_KINDS % 2);
    usual();
    choose_case(kernel, 2, 4, 1024, PLAIN, false);
}

static int64_t indices_definition(int m, const uint8_t *metadata, const uint16_t *base, int64_t count, uint16_t *at) {
    uint8_t position[4096];
    hc_nm_positions(metadata, count, m, 0, count, position);
    for (int64_t t = 0; t < count; t++)
        at[t] = (uint16_t)(base[t] + position[t]);
    return count;
}

static void indices_case(const hc_kernel *kernel, int m, int64_t count, int64_t behind) {
    const int64_t bytes = hc_ceil_div(count * hc_position_bits(m), 8) + behind;
    begin("m %d, count %" D ", %" D " bytes", m, count, bytes);
    const uint8_t *metadata = random_bytes(bytes);
    uint16_t *base = items(count, 2), *wanted = items(count, 2), *got = items(count, 2);
    for (int64_t t = 0; t < count; t++)
        base[t] = (uint16_t)draw();
    const int64_t answer = kernel->fn.indices_nm(m, metadata, bytes, base, count, got);
    if (answer < 0 || answer > count || answer % 8 != 0)
        fail("the answer is %" D, answer);
    indices_definition(m, metadata, base, answer, wanted);
    same("at", U16, got, wanted, count);
    BENCH(indices_definition(m, metadata, base, count, wanted),
          kernel->fn.indices_nm(m, metadata, bytes, base, count, got));
}

void check_indices_nm(const hc_kernel *kernel) {
    for (int m = 2; m <= HC_MAX_M; m++)
        FOR_EACH(int64_t, count, 0, 1, 7, 8, 9, 16, 23, 64, 101)
    FOR_EACH(int64_t, behind, 0, 1, 8)
    indices_case(kernel, m, *count, *behind);
    usual();
    indices_case(kernel, 4, 4096, 0);
}
