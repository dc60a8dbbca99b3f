/* Estimates: nanoseconds that were measured, for each path and class of machines. They need not be right, only tell paths
 * apart that give the same bits. `heterocompute bench plan` measures them, holds the plan against the clock and prints the
 * lines of a class.
 *
 * Decoded tiles against kept values alone: which is faster depends on the pattern, the shapes and the machine, so both are
 * measured once on a part of the operands, in one thread, and remembered by kind and size.
 */
#include "ops/product/measure.h"
#include "ops/product/pack.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct {
    double call, code, decoded, product, value; /* ns: of a call, and of each count of hc_work */
} hc_cost;

typedef struct {
    uint32_t any;
    hc_cost of[HC_N_PATHS];
} hc_measures;

/* Best first. */
static const hc_measures MEASURES[] = {
#include "ops/product/measures.def"
};

double hc_estimate(const hc_run *run, hc_path_number path, const hc_work *work) {
    const hc_measures *found = MEASURES;
    while (found->any && !(found->any & run->isa))
        found++;
    const hc_cost *ns = &found->of[path];
    if (ns->call == 0) /* not measured: taken where it is forced, or alone */
        return 1e6;
    return 1e-9 * (ns->call + ns->code * work->codes + ns->decoded * work->decoded + ns->product * work->products +
                   ns->value * work->values);
}

/* Zen 4: int3-g32, q4_k and q6_k of 2048 x 2048; vsq6-g16-s6, whose integer scales multiply sums (lanes_groups.c). */
#define UNPACKING_SHARE 1.6
#define UNPACKING_SPLIT_SHARE 3.5
/* Of integers that become several digits (vsq8-g64-s8, vsq6-g16-s6), of a pattern, and of both: int8+2:4, vsq4-g16-s4+2:4,
 * int8+3:4, int8+1:8 and vsq8-g64-s8+2:4 of 512 x 512 to 2048 x 2048 (Zen 3 by AVX2 4 to 6; Zen 4 by AVX-512 VNNI 3.8 to 8,
 * and 9 to 13 of digits; where VBMI spreads bytes, 2.8 to 3.4, and 7 to 9). */
#define DIGITS_SHARE 5
#define PATTERN_SHARE 5
#define PATTERN_DIGITS_SHARE 11
#define SPREAD_SHARE 3
#define SPREAD_DIGITS_SHARE 8
#define SCALAR_PATTERN_SHARE 2
/* int4-g32-f16+2:4 by gemm_grouped, Zen 3. */
#define GROUPED_PATTERN_SHARE 2.5

double hc_integers_share(const hc_product *product) {
    const uint32_t isa = product->run->isa;
    const bool has_digits = product->order == HC_ORDER_FOLDED && hc_signed_limbs(&product->w->form[HC_INT_FOLDED]) > 1;
    if (!product->w->sparse)
        return has_digits ? DIGITS_SHARE : 1;
    if (!isa)
        return SCALAR_PATTERN_SHARE;
    if (product->order == HC_ORDER_GROUPED && !(isa & HC_ISA_AVX512VNNI))
        return GROUPED_PATTERN_SHARE;
    if (isa & HC_ISA_AVX512VBMI)
        return has_digits ? SPREAD_DIGITS_SHARE : SPREAD_SHARE;
    return has_digits ? PATTERN_DIGITS_SHARE : PATTERN_SHARE;
}

double hc_decoding_share(const hc_product *product) {
    const hc_format *format = product->w_packed ? product->w_packed->format : NULL;
    const bool unpacks = format && format->bits != 4 && format->bits != 8;
    const double unpacking = product->order == HC_ORDER_FOLDED ? UNPACKING_SPLIT_SHARE : UNPACKING_SHARE;
    const double share = unpacks || product->w->form[HC_INT_GROUPED].has_minima ? unpacking : 1;
    /* Integers that scales of groups multiply are of one digit, which hc_integers_share would not say of a folded product. */
    return product->w->sparse ? share * hc_integers_share(product) : share;
}

enum {
    SAMPLE_X = 384, /* rows of either side that are measured */
    SAMPLE_W = 192,
    ALIKE_ROWS = 16,
    REPEATS = 3,
    MOST_REPEATS = 24,
    SURE = 4,                 /* one of so many kept: skipping is faster wherever it was measured */
    LEAST_PRODUCTS = 1 << 20, /* below, a product takes some 20 us: less than to choose */
    N_KNOWN = 64,
};

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

/* Another thread may have held it when the process was forked. */
static void restart_in_child(void) {
    pthread_mutex_init(&table.mutex, NULL);
    table.count = 0;
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, restart_in_child); }

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
static bool measure(const hc_product *p, hc_run_path *gemm, hc_run_path *nonzeros, hc_known *known) {
    const hc_run one = {.isa = p->run->isa, .n_threads = 1};
    hc_source some_x = *p->x, some_w = *p->w;
    some_x.rows = hc_min(some_x.rows, SAMPLE_X);
    some_w.rows = hc_min(some_w.rows, SAMPLE_W);
    hc_rows out = {.n_dims = 1, .shape = {some_x.rows}, .rows = some_x.rows};
    out.stride[0] = (known->transposed ? 1 : some_w.rows) * (int64_t)sizeof(float);
    out.column_stride = (known->transposed ? some_x.rows : 1) * (int64_t)sizeof(float);
    out.data = hc_alloc_aligned(some_x.rows * some_w.rows * (int64_t)sizeof(float));
    if (!out.data)
        return false;
    const hc_product sample = {.run = &one, .order = p->order, .x = &some_x, .w = &some_w, .out = out};
    known->skip = known->tiles = 1e300;
    bool done = true;
    double spent = 0;
    for (int i = 0; (i < REPEATS || (i < MOST_REPEATS && spent < ENOUGH)) && done; i++) {
        hc_error error;
        const double start = seconds_now();
        done = nonzeros(&sample, &error) == HC_OK;
        const double middle = seconds_now();
        hc_zeros_differ(&one, &some_x, &some_w); /* a part of its cost */
        done = done && gemm(&sample, &error) == HC_OK;
        const double end = seconds_now();
        known->skip = middle - start < known->skip ? middle - start : known->skip;
        known->tiles = end - middle < known->tiles ? end - middle : known->tiles;
        spent += end - start;
    }
    hc_free_aligned(out.data);
    const double products = products_of(&some_x, &some_w);
    known->skip /= products;
    known->tiles /= products;
    return done;
}

static bool recall(const hc_product *p, hc_run_path *gemm, hc_run_path *nonzeros, hc_known *known) {
    const hc_source *x = p->x, *w = p->w;
    const hc_packed_context *packed = w->sparse;
    *known = (hc_known){.isa = p->run->isa,
                        .x_rows = (int32_t)hc_ceil_div(hc_min(x->rows, SAMPLE_X), ALIKE_ROWS),
                        .w_rows = (int32_t)hc_ceil_div(hc_min(w->rows, SAMPLE_W), ALIKE_ROWS),
                        .along = x->side != NULL,
                        .transposed = p->out.n_dims == 1 && p->out.stride[0] == sizeof(float),
                        .floats = x->floats};
    memcpy(&known->format, packed->format, sizeof known->format);
    for (int64_t columns = x->columns; columns > 0; columns /= 2)
        known->column_bits++;
    bool found = false;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handler);
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < N_KNOWN && i < table.count && !found; i++)
        if ((found = is_of(&table.known[i], known)))
            *known = table.known[i];
    pthread_mutex_unlock(&table.mutex);
    if (found)
        return true;
    if (!measure(p, gemm, nonzeros, known))
        return false;
    pthread_mutex_lock(&table.mutex);
    table.known[table.count++ % N_KNOWN] = *known;
    pthread_mutex_unlock(&table.mutex);
    return true;
}

bool hc_measure_nm(const hc_product *p, hc_run_path *gemm, hc_run_path *nonzeros, double seconds[2]) {
    const hc_packed_context *packed = p->w->sparse;
    const double products = products_of(p->x, p->w);
    hc_known known;
    if ((int64_t)packed->format->n * SURE <= packed->format->m || products * (double)p->x->columns < LEAST_PRODUCTS ||
        !recall(p, gemm, nonzeros, &known))
        return false;
    seconds[0] = known.tiles * products * MUCH;
    seconds[1] = known.skip * products;
    return true;
}
