#include "operations.h"

#include "arrays.h"
#include "guard.h"

#include <math.h>
#include <string.h>

/* Weights of which about one in `one_in` is nonzero. */
static float *sparse_values(int64_t n, uint32_t seed, int one_in) {
    const double *values = random_values(n, seed);
    float *sparse = guard_alloc((size_t)n * 4);
    uint32_t state = seed;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        sparse[i] = (state >> 16) % (uint32_t)one_in ? 0 : (float)values[i];
    }
    return sparse;
}

/* Patterns of every kind, rows that end inside a block, pruning by magnitude and by scores of any sign. */
static hc_status prune(const hc_run *run, uint64_t *hash, hc_error *error) {
    static const int PATTERNS[][2] = {{1, 1},  {1, 2},  {2, 4},  {1, 4},  {3, 4},  {4, 4},   {1, 3},  {2, 5},
                                      {5, 7},  {1, 8},  {2, 8},  {4, 8},  {3, 8},  {7, 8},   {1, 16}, {2, 16},
                                      {8, 16}, {9, 13}, {1, 32}, {2, 31}, {5, 31}, {16, 32}, {31, 32}};
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++)
        for (int part = 0; part < 4; part++) {
            const int n = PATTERNS[i][0], m = PATTERNS[i][1], axis = part % 2;
            const int64_t shape[2] = {3, part < 2 ? 611 : 32 * m}, size = 3 * shape[1];
            float *x = converted(random_values(size, 41), size, HC_F32), *scores = guard_alloc((size_t)size * 4);
            for (int64_t j = 0; j < size; j++) /* many ties, zeros of both signs, infinities */
                scores[j] = j % 37 == 0 ? (j % 2 ? INFINITY : -INFINITY) : roundf(x[j]);
            const hc_view x_view = view_of(x, HC_F32, 2, shape), score_view = view_of(scores, HC_F32, 2, shape);
            for (int scored = 0; scored < 3; scored++) {
                const hc_view *w = scored == 2 ? &score_view : &x_view, *by = scored == 1 ? &score_view : NULL;
                int64_t kept, bytes;
                hc_status status = hc_prune_sizes(w, n, m, 1, &axis, &kept, &bytes, error);
                if (status != HC_OK)
                    return status;
                float *values = guard_alloc((size_t)kept * 4);
                uint8_t *metadata = guard_alloc((size_t)bytes);
                status = hc_prune(run, w, by, n, m, 1, &axis, values, metadata, error);
                if (status != HC_OK)
                    return status;
                add_bytes(hash, values, kept * 4);
                add_bytes(hash, metadata, bytes);
            }
        }
    return HC_OK;
}

/* The nonzeros of w as CSR. */
static hc_csr csr_of(const float *w, int64_t rows, int64_t columns) {
    int64_t *starts = guard_alloc((size_t)(rows + 1) * sizeof *starts), stored = 0;
    int32_t *indices = guard_alloc((size_t)(rows * columns) * sizeof *indices);
    float *values = guard_alloc((size_t)(rows * columns) * sizeof *values);
    for (int64_t i = 0; i < rows; i++) {
        starts[i] = stored;
        for (int64_t j = 0; j < columns; j++)
            if (w[i * columns + j] != 0) {
                indices[stored] = (int32_t)j;
                values[stored++] = w[i * columns + j];
            }
    }
    starts[rows] = stored;
    return (hc_csr){rows, columns, stored, starts, indices, values};
}

static hc_status csr(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { ROWS = 70, COLUMNS = 331 };
    for (int one_in = 1; one_in <= 50; one_in *= 7) {
        hc_csr w = csr_of(sparse_values(ROWS * COLUMNS, 51, one_in), ROWS, COLUMNS);
        for (int64_t vectors = 1; vectors <= 40; vectors += 13) {
            const int64_t x_shape[2] = {vectors, COLUMNS}, y_shape[2] = {vectors, ROWS};
            const hc_view x =
                view_of(converted(random_values(vectors * COLUMNS, 52), vectors * COLUMNS, HC_F32), HC_F32, 2, x_shape);
            float *y = guard_alloc((size_t)(vectors * ROWS) * 4);
            const hc_view out = view_of(y, HC_F32, 2, y_shape);
            const hc_operand left = {.dense = &x};
            bool ascending;
            const hc_status status = hc_csr_matmul(run, &left, &w, &out, &ascending, error);
            if (status != HC_OK || !ascending)
                return status == HC_OK ? hc_fail(error, HC_VALUE, "csr: columns do not ascend") : status;
            add_bytes(hash, y, vectors * ROWS * 4);
        }
        int64_t *starts = guard_alloc((COLUMNS + 1) * sizeof *starts);
        int32_t *indices = guard_alloc((size_t)w.stored * sizeof *indices);
        float *values = guard_alloc((size_t)w.stored * sizeof *values);
        const hc_status status = hc_csr_transpose(&w, starts, indices, values, error);
        if (status != HC_OK)
            return status;
        add_bytes(hash, starts, (COLUMNS + 1) * (int64_t)sizeof *starts);
        add_bytes(hash, indices, w.stored * (int64_t)sizeof *indices);
        add_bytes(hash, values, w.stored * (int64_t)sizeof *values);
    }
    return HC_OK;
}

static hc_status eie(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { ROWS = 150, COLUMNS = 83 };
    float *x = sparse_values(COLUMNS, 61, 3), *y = guard_alloc(ROWS * 4), *dense = guard_alloc(ROWS * COLUMNS * 4);
    for (int64_t elements = 1; elements <= 64; elements *= 8)
        for (int one_in = 2; one_in <= 50; one_in *= 5) {
            const float *w = sparse_values(ROWS * COLUMNS, 62, one_in);
            float *learned = guard_alloc(ROWS * COLUMNS * 4), codebook[HC_EIE_CODES];
            int64_t count = 0, n_entries;
            for (int64_t i = 0; i < ROWS * COLUMNS; i++)
                if (w[i] != 0)
                    learned[count++] = w[i];
            uint32_t *pointers = guard_alloc((size_t)(elements * (COLUMNS + 1)) * 4);
            hc_status status = hc_eie_codebook(count, learned, codebook, error);
            if (status == HC_OK)
                status = hc_eie_count_entries(run, w, ROWS, COLUMNS, elements, pointers, &n_entries, error);
            if (status != HC_OK)
                return status;
            uint8_t *entries = guard_alloc((size_t)n_entries);
            const hc_eie stored = {ROWS, COLUMNS, elements, n_entries, codebook, pointers, entries};
            int64_t *busy = guard_alloc((size_t)elements * 8);
            hc_eie_cycles cycles;
            if ((status = hc_eie_encode(run, w, &stored, entries, error)) != HC_OK ||
                (status = hc_eie_check(&stored, error)) != HC_OK ||
                (status = hc_eie_multiply(run, &stored, 1, x, y, error)) != HC_OK ||
                (status = hc_eie_load(&stored, x, 4, busy, &cycles, error)) != HC_OK)
                return status;
            hc_eie_decode(run, &stored, dense);
            add_bytes(hash, codebook, sizeof codebook);
            add_bytes(hash, pointers, elements * (COLUMNS + 1) * 4);
            add_bytes(hash, entries, n_entries);
            add_bytes(hash, dense, ROWS * COLUMNS * 4);
            add_bytes(hash, y, ROWS * 4);
            add_bytes(hash, busy, elements * 8);
            add_bytes(hash, &cycles, sizeof cycles);
        }
    return HC_OK;
}

/* Items of each size, from none to nearly all of them zero, up to more than one block per thread. */
static hc_status bitmap(const hc_run *run, uint64_t *hash, hc_error *error) {
    static const int64_t COUNTS[] = {0, 1, 63, 64, 200, 70001};
    for (int bytes = 1; bytes <= 8; bytes *= 2)
        for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
            for (int one_in = 1; one_in <= 30; one_in += 7) {
                const int64_t count = COUNTS[i], marks = (count + 7) / 8;
                unsigned char *items = guard_alloc((size_t)(count * bytes));
                unsigned char *back = guard_alloc((size_t)(count * bytes));
                uint32_t state = 71;
                for (int64_t j = 0; j < count; j++) {
                    state = state * 1664525u + 1013904223u;
                    memset(items + j * bytes, 0, (size_t)bytes);
                    if (state >> 24 < 256u / (unsigned)one_in) /* one nonzero byte is enough */
                        items[j * bytes + (state >> 16) % (unsigned)bytes] = (unsigned char)(state >> 8);
                }
                uint8_t *bits = guard_alloc((size_t)marks);
                int64_t kept;
                hc_status status = hc_bitmap_mark(run, bytes, count, items, bits, &kept, error);
                if (status != HC_OK)
                    return status;
                unsigned char *values = guard_alloc((size_t)(kept * bytes));
                if ((status = hc_bitmap_compress(run, bytes, count, items, bits, kept, values, error)) != HC_OK ||
                    (status = hc_bitmap_expand(run, bytes, count, bits, kept, values, back, error)) != HC_OK)
                    return status;
                if (memcmp(items, back, (size_t)(count * bytes)) != 0)
                    return hc_fail(error, HC_VALUE, "items do not come back");
                add_bytes(hash, bits, marks);
                add_bytes(hash, values, kept * bytes);
            }
    return HC_OK;
}

static hc_status outer(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { N = 2, C = 70, H = 9, W = 11, K = 67, R = 3, S = 3 };
    const int64_t x_shape[4] = {N, C, H, W}, w_shape[4] = {K, C, R, S};
    for (int64_t stride = 1; stride <= 2; stride++)
        for (int one_in = 1; one_in <= 12; one_in += 9) {
            const hc_window window = {{stride, stride}, {1, 1}, {1, 1}, 1};
            const int64_t out_size[2] = {(H - 1) / stride + 1, (W - 1) / stride + 1};
            const int64_t out_shape[4] = {N, K, out_size[0], out_size[1]}, size = N * K * out_size[0] * out_size[1];
            const hc_view x = view_of(sparse_values(N * C * H * W, 81, one_in), HC_F32, 4, x_shape);
            const hc_view w = view_of(sparse_values(K * C * R * S, 82, one_in), HC_F32, 4, w_shape);
            const hc_outer_machine machine = {4, 4, 4, 4, 32, 1024};
            hc_outer_counts counts;
            float *y = guard_alloc((size_t)size * 4);
            const hc_view out = view_of(y, HC_F32, 4, out_shape);
            hc_status status = hc_conv2d_outer(run, &x, &w, &window, &out, error);
            if (status == HC_OK)
                status = hc_count_outer(run, &x, &w, &window, out_size, &machine, &counts, error);
            if (status != HC_OK)
                return status;
            add_bytes(hash, y, size * 4);
            add_bytes(hash, &counts, sizeof counts);
        }
    return HC_OK;
}

/* Three sweeps of the search for a column permutation. */
static hc_status permute(const hc_run *run, uint64_t *hash, hc_error *error) {
    enum { ROWS = 40, LD = 64, COLUMNS = 30 };
    int16_t *scores = guard_alloc(COLUMNS * LD * sizeof *scores);
    memset(scores, 0, COLUMNS * LD * sizeof *scores);
    const double *x = random_values(COLUMNS * ROWS, 91);
    for (int i = 0; i < COLUMNS * ROWS; i++)
        scores[i / ROWS * LD + i % ROWS] = (int16_t)(fabs(x[i]) * 1024);
    for (int m = 2; m <= 8; m *= 2)
        for (int n = 1; n < m; n++) {
            const int64_t groups = (COLUMNS + m - 1) / m;
            int32_t *order = guard_alloc((size_t)(groups * m) * sizeof *order);
            for (int32_t i = 0; i < groups * m; i++)
                order[i] = i < COLUMNS ? i : -1;
            for (int sweep = 0; sweep < 3; sweep++) {
                int64_t exchanges;
                const hc_status status =
                    hc_permute(run, ROWS, COLUMNS, LD, scores, n, m, groups, order, &exchanges, error);
                if (status != HC_OK)
                    return status;
                add_bytes(hash, &exchanges, sizeof exchanges);
            }
            add_bytes(hash, order, groups * m * (int64_t)sizeof *order);
        }
    return HC_OK;
}

const operation OPERATIONS[] = {
    {"prune", prune},
    {"csr", csr},
    {"eie", eie},
    {"bitmap", bitmap},
    {"outer", outer},
    {"permute", permute},
    {"dense", take_dense},
    {"compare", take_compare},
    {"emulate", take_emulated},
    {"systolic", take_systolic},
    {NULL, NULL},
};
