/* The choice between skipping and decoded tiles, and hc_explain, which lets hc_matmul run up to its drivers. */
#include "ops/product/choose.h"

#include "base/threads.h"
#include "ops/product/sparse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum {
    SAMPLE_X = 384, /* rows of either side that are measured */
    SAMPLE_W = 192,
    ALIKE_ROWS = 16,
    REPEATS = 3,
    MOST_REPEATS = 24,
    SURE = 4,                 /* one of so many kept: skipping is faster wherever it was measured */
    LEAST_PRODUCTS = 1 << 20, /* below, a product takes some 20 us: less than to choose */
    N_KNOWN = 64,
    TASK_ROWS = 64,
    PIECE_ROWS = 16,
    PIECE_COLUMNS = 256,
};

/* Explaining. */

static _Thread_local hc_explanation *explained;

static const char *const NAMES[HC_N_PATHS] = {NULL,    "few",    "few integers", "skip", "skip integers",
                                              "tiles", "folded", "grouped"};

bool hc_only_explains(hc_path path) {
    if (explained && !explained->path)
        explained->path = NAMES[path];
    return explained != NULL;
}

hc_status hc_explain(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                     const hc_view *out, hc_explanation *explanation, hc_error *error) {
    *explanation = (hc_explanation){.path = NULL};
    explained = explanation;
    const hc_status status = hc_matmul(run, a, b, activations, NULL, out, error);
    explained = NULL;
    return status;
}

/* Whether both ways give the same bits.
 *
 * Both are fmaf chains over ascending k from +0; decoded tiles add products with +0. Such a product is a zero if x is
 * finite, and adding it changes nothing unless the sum so far is -0. A sum becomes -0 only where a value other than 0
 * rounds to it; if all x and w are 0 or at least 2^ex and 2^ew, every exact sum is a multiple of 2^(ex + ew - 46), and
 * with ex + ew >= -103 none is too small for a float.
 */

enum { LEAST_EXPONENTS = -103 };

typedef struct {
    const hc_source *source;
    bool kept; /* only what is kept is read */
    int64_t columns;
    uint32_t least[HC_MAX_THREADS],
        most[HC_MAX_THREADS]; /* magnitudes as integers; `least` of those that are not 0, - 1 */
} hc_range_job;

static void range_task(void *context, int64_t task, int thread) {
    hc_range_job *job = context;
    const int64_t end = hc_min((task + 1) * TASK_ROWS, job->source->rows);
    uint32_t least = job->least[thread], most = job->most[thread];
    float piece[PIECE_ROWS * PIECE_COLUMNS];
    uint32_t bits[PIECE_COLUMNS];
    for (int64_t row = task * TASK_ROWS; row < end; row += PIECE_ROWS)
        for (int64_t column = 0; column < job->columns; column += PIECE_COLUMNS) {
            const int64_t rows = hc_min(PIECE_ROWS, end - row);
            const int64_t columns = hc_min(PIECE_COLUMNS, job->columns - column);
            if (job->kept)
                hc_packed_floats(job->source, row, rows, column, columns, piece, PIECE_COLUMNS);
            else
                job->source->floats(job->source, row, rows, column, columns, piece, PIECE_COLUMNS);
            for (int64_t r = 0; r < rows; r++) {
                memcpy(bits, piece + r * PIECE_COLUMNS, (size_t)columns * sizeof *bits);
                for (int64_t c = 0; c < columns; c++) {
                    const uint32_t magnitude = bits[c] & 0x7fffffff;
                    most = magnitude > most ? magnitude : most;
                    least = magnitude - 1 < least ? magnitude - 1 : least;
                }
            }
        }
    job->least[thread] = least;
    job->most[thread] = most;
}

/* The exponent of the least value that is not 0; false where one is not finite. */
static bool range(const hc_run *run, const hc_source *source, bool kept, int *exponent) {
    const hc_packed_context *packed = source->context;
    hc_range_job job = {.source = source, .kept = kept, .columns = kept ? packed->geometry->columns : source->columns};
    memset(job.least, 0xff, sizeof job.least);
    hc_parallel(run->n_threads, hc_ceil_div(source->rows, TASK_ROWS), range_task, &job);
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < HC_MAX_THREADS; i++) {
        least = job.least[i] < least ? job.least[i] : least;
        most = job.most[i] > most ? job.most[i] : most;
    }
    const int field = least == UINT32_MAX ? 254 : (int)((least + 1) >> 23); /* none: all are 0 */
    *exponent = field > 0 ? field - 127 : -149;
    return most < 0x7f800000;
}

static bool has_same_bits(const hc_run *run, const hc_source *x, const hc_source *w, const char **why) {
    int ex, ew;
    *why = "x has a value that is not finite";
    if (!range(run, x, false, &ex))
        return false;
    *why = "w has a value that is not finite";
    if (!range(run, w, true, &ew))
        return false;
    *why = ex + ew < LEAST_EXPONENTS ? "values so small that a zero might change its sign" : NULL;
    return *why == NULL;
}

/* Measuring. */

static const double ENOUGH = 8e-3; /* seconds to spend on short samples: the first calls of a process are slow */
static const double MUCH = 1.05;   /* what is not slower than this is not worth looking at every value for */

typedef struct {
    hc_format format;
    uint32_t isa;
    int32_t x_rows, w_rows, column_bits; /* rows in steps of ALIKE_ROWS, columns by their highest bit */
    bool along, transposed;              /* how x and `out` lie */
    void (*floats)(const hc_source *, int64_t, int64_t, int64_t, int64_t, float *, int64_t);
    double skip, tiles; /* seconds a product of one value of x and one of w */
} hc_known;

static struct {
    pthread_mutex_t mutex;
    hc_known known[N_KNOWN];
    int count;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_of(const hc_known *a, const hc_known *b) {
    return memcmp(&a->format, &b->format, sizeof a->format) == 0 && a->isa == b->isa && a->x_rows == b->x_rows &&
           a->w_rows == b->w_rows && a->column_bits == b->column_bits && a->along == b->along &&
           a->transposed == b->transposed && a->floats == b->floats;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Time goes by steps of rows of x. */
static double products_of(const hc_source *x, const hc_source *w) {
    return (double)hc_round_up(x->rows, ALIKE_ROWS) * (double)w->rows;
}

/* Both ways on the first rows of either side, in turn; false without memory. */
static bool measure(const hc_run *run, const hc_source *x, const hc_source *w, hc_known *known) {
    const hc_run one = {run->isa, 1};
    hc_source some_x = *x, skipped = *w, decoded;
    some_x.rows = hc_min(x->rows, SAMPLE_X);
    skipped.rows = hc_min(w->rows, SAMPLE_W);
    decoded = skipped;
    decoded.sparse = NULL;
    hc_rows out = {.n_dims = 1, .shape = {some_x.rows}, .rows = some_x.rows};
    out.stride[0] = (known->transposed ? 1 : skipped.rows) * (int64_t)sizeof(float);
    out.column_stride = (known->transposed ? some_x.rows : 1) * (int64_t)sizeof(float);
    out.data = hc_alloc_aligned(some_x.rows * skipped.rows * (int64_t)sizeof(float));
    if (!out.data)
        return false;
    hc_explanation *const asked = explained;
    explained = NULL; /* these products are made */
    known->skip = known->tiles = 1e300;
    bool done = true;
    double spent = 0;
    for (int i = 0; (i < REPEATS || (i < MOST_REPEATS && spent < ENOUGH)) && done; i++) {
        hc_error error;
        const char *why;
        const double start = seconds_now();
        done = hc_sparse_gemm(&one, &some_x, &skipped, &out, &error) == HC_OK;
        const double middle = seconds_now();
        has_same_bits(&one, &some_x, &skipped, &why);
        done = done && hc_gemm(&one, HC_PRODUCT_FLOATS, &some_x, &decoded, &out, &error) == HC_OK;
        const double end = seconds_now();
        known->skip = middle - start < known->skip ? middle - start : known->skip;
        known->tiles = end - middle < known->tiles ? end - middle : known->tiles;
        spent += end - start;
    }
    explained = asked;
    hc_free_aligned(out.data);
    const double products = products_of(&some_x, &skipped);
    known->skip /= products;
    known->tiles /= products;
    return done;
}

static bool recall(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out, hc_known *known) {
    const hc_packed_context *packed = w->sparse;
    *known = (hc_known){.isa = run->isa,
                        .x_rows = (int32_t)hc_ceil_div(hc_min(x->rows, SAMPLE_X), ALIKE_ROWS),
                        .w_rows = (int32_t)hc_ceil_div(hc_min(w->rows, SAMPLE_W), ALIKE_ROWS),
                        .along = x->side != NULL,
                        .transposed = out->n_dims == 1 && out->stride[0] == sizeof(float),
                        .floats = x->floats};
    memcpy(&known->format, packed->format, sizeof known->format);
    for (int64_t columns = x->columns; columns > 0; columns /= 2)
        known->column_bits++;
    bool found = false;
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < N_KNOWN && i < table.count && !found; i++)
        if ((found = is_of(&table.known[i], known)))
            *known = table.known[i];
    pthread_mutex_unlock(&table.mutex);
    if (found)
        return true;
    if (!measure(run, x, w, known))
        return false;
    pthread_mutex_lock(&table.mutex);
    table.known[table.count++ % N_KNOWN] = *known;
    pthread_mutex_unlock(&table.mutex);
    return true;
}

static atomic_int preferred = HC_MEASURED;

void hc_prefer(hc_preference preference) { atomic_store(&preferred, (int)preference); }

/* Why tiles are not taken, or NULL where they are as fast. */
static const char *refusal(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out) {
    const hc_packed_context *packed = w->sparse;
    const double products = products_of(x, w);
    const int preference = atomic_load(&preferred);
    const char *why = NULL;
    hc_known known;
    if (preference == HC_PREFER_SKIP)
        return "not preferred";
    if (preference == HC_PREFER_TILES) {
        has_same_bits(run, x, w, &why);
        return why;
    }
    if ((int64_t)packed->format->n * SURE <= packed->format->m)
        return "so little is kept that skipping is faster in any case";
    if (products * (double)x->columns < LEAST_PRODUCTS)
        return "too small a product to compare";
    if (!recall(run, x, w, out, &known))
        return "no memory to measure";
    if (explained) {
        explained->skip_seconds = known.skip * products;
        explained->tiles_seconds = known.tiles * products;
    }
    if (known.skip <= known.tiles * MUCH)
        return "not faster";
    has_same_bits(run, x, w, &why);
    return why;
}

bool hc_choose_skip(const hc_run *run, const hc_source *x, const hc_source *w, const hc_rows *out) {
    const char *why = refusal(run, x, w, out);
    if (explained)
        explained->tiles_refused = why;
    return why != NULL;
}
