/* Dense float32 matmuls by cblas_sgemm and cblas_sgemv of a library that the binding opened: nothing is linked. A BLAS
 * needs a stride of one element in one of two dimensions. An operand without such a stride is copied, one matrix at a
 * time.
 */
#include "base/float_env.h"
#include "base/platform/platform.h"
#include "ops/route/route.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* State of the process: the first library is used and stays open. */
static hc_blas blas;
enum { UNKNOWN = 0, SETTING, NONE, OPEN };
static atomic_int state;

/* The library's number of threads is set for matmuls and restored after them. */
static struct {
    hc_mutex mutex;
    int usual;   /* its number at other times; another number is a limit that someone else (threadpoolctl) set */
    int outside; /* its number before the matmuls that run now */
    int set;     /* the number that the last of these matmuls set */
    int running;
} threads_of = {.mutex = HC_MUTEX_INIT};

/* Another thread may have held the lock when the process was forked. */
static void restart_in_child(void) {
    hc_mutex_init(&threads_of.mutex);
    threads_of.running = 0;
}

void hc_blas_use(const hc_blas *found) {
    int unknown = UNKNOWN;
    if (!atomic_compare_exchange_strong(&state, &unknown, SETTING))
        return;
    if (found) {
        blas = *found;
        threads_of.usual = blas.get_threads ? blas.get_threads() : 0;
        hc_after_fork(restart_in_child);
    }
    state = found ? OPEN : NONE;
}

bool hc_blas_looked(void) { return state >= NONE; }

/* Instruction sets: 2 with AVX-512, 1 with AVX2, 0 with neither. */
static int rank_of(uint32_t isa) { return isa & HC_ISA_AVX512 ? 2 : isa & HC_ISA_AVX2 ? 1 : 0; }

/* Instruction sets of the cores of OpenBLAS for x86-64 (its cpuid_x86.c and getarch.c). Any other core, and a library
 * that reports none, counts as having kernels for this machine. */
static const struct {
    const char *name;
    int rank;
} CORES[] = {{"Haswell", 1},    {"Zen", 1},        {"Excavator", 1},    {"Sandybridge", 0}, {"Nehalem", 0},
             {"Prescott", 0},   {"Penryn", 0},     {"Dunnington", 0},   {"Core2", 0},       {"Katmai", 0},
             {"Coppermine", 0}, {"Northwood", 0},  {"Banias", 0},       {"Atom", 0},        {"Nano", 0},
             {"Athlon", 0},     {"Opteron", 0},    {"Opteron_SSE3", 0}, {"Barcelona", 0},   {"Bobcat", 0},
             {"Bulldozer", 0},  {"Piledriver", 0}, {"Steamroller", 0}};

hc_blas_speed hc_blas_speed_of(uint32_t isa) {
    if (state != OPEN)
        return HC_BLAS_NONE;
    for (size_t i = 0; blas.core && i < sizeof CORES / sizeof *CORES; i++)
        if (strcmp(CORES[i].name, blas.core) == 0)
            return CORES[i].rank < rank_of(isa) ? HC_BLAS_SLOWER : HC_BLAS_EQUAL;
    return HC_BLAS_EQUAL;
}

/* The time of a BLAS over that of our kernels, by shapes: measured in one thread against OpenBLAS 0.3.34 on an AMD EPYC
 * (Zen 4), 2026-11, drawn layers, weights in rows and transposed. Our kernels transpose one or two rows' weights in
 * registers, which takes longer than to add along them. The first matching entry is used, otherwise USUAL_SHARE. Only
 * whether an entry is above 1 matters, and hc_explain shows its size. */
typedef struct {
    hc_blas_speed speed;
    int rank;        /* of our kernels; -1: any */
    bool transposed; /* for transposed weights alone */
    int64_t least_m, most_m;
    double share;
} hc_share;
#define USUAL_SHARE 0.9
static const hc_share SHARES[] = {
    {HC_BLAS_SLOWER, -1, true, 1, 2, 0.7}, {HC_BLAS_SLOWER, -1, false, 1, INT64_MAX, 1.5},
    {HC_BLAS_EQUAL, 2, true, 1, 2, 0.7},   {HC_BLAS_EQUAL, 2, false, 1, INT64_MAX, 1.2},
    {HC_BLAS_EQUAL, 1, false, 2, 95, 1.1},
};

double hc_blas_share(const hc_call *call) {
    const hc_view *a = call->a->dense, *b = call->b->dense;
    int64_t m = a->shape[a->ndim - 2];
    for (int i = 0; b->ndim == 2 && i < a->ndim - 2; i++)
        m *= a->shape[i];
    const bool transposed = b->strides[b->ndim - 2] == sizeof(float);
    const hc_blas_speed speed = hc_blas_speed_of(call->run->isa);
    const int rank = rank_of(call->run->isa);
    for (size_t i = 0; i < sizeof SHARES / sizeof *SHARES; i++) {
        const hc_share *s = &SHARES[i];
        if (s->speed == speed && (s->rank < 0 || s->rank == rank) && (transposed || !s->transposed) &&
            m >= s->least_m && m <= s->most_m)
            return s->share;
    }
    return USUAL_SHARE;
}

const char *hc_blas_refuses(const hc_call *call) {
    if (hc_elsewhere(call, HC_HOST))
        return hc_elsewhere(call, HC_HOST);
    if (call->a->packed || call->b->packed)
        return "an operand is packed: the bits must be the same everywhere";
    if (call->a->dense->dtype != HC_F32 || call->b->dense->dtype != HC_F32)
        return "takes float32 alone";
    if (call->run->path)
        return "a path is forced";
    if (call->run->one_order)
        return "it sums in other orders for other numbers of rows";
    if (state != OPEN)
        return "there is no BLAS";
    for (int i = 0; i < 2; i++)
        for (int axis = call->sides[i].ndim - 2; axis < call->sides[i].ndim; axis++)
            if (call->sides[i].shape[axis] > INT_MAX)
                return "a size is beyond its 32-bit integers";
    return hc_values(call->out) == 0 || call->sides[0].shape[call->sides[0].ndim - 1] == 0
               ? "there is nothing to multiply"
               : NULL;
}

static void begin_threads(int threads) {
    if (!blas.set_threads)
        return;
    hc_mutex_lock(&threads_of.mutex);
    const int now = blas.get_threads ? blas.get_threads() : 0;
    if (threads_of.running++ == 0 || now != threads_of.set)
        threads_of.outside = now;
    const bool is_limited = threads_of.outside != threads_of.usual;
    blas.set_threads(is_limited ? (int)hc_min(threads, threads_of.outside) : threads);
    threads_of.set = blas.get_threads ? blas.get_threads() : 0;
    if (!is_limited && threads_of.set > threads_of.usual)
        threads_of.usual = threads_of.outside = threads_of.set;
    hc_mutex_unlock(&threads_of.mutex);
}

static void end_threads(void) {
    if (!blas.set_threads)
        return;
    hc_mutex_lock(&threads_of.mutex);
    if (--threads_of.running == 0 && blas.get_threads && blas.get_threads() == threads_of.set)
        blas.set_threads(threads_of.outside);
    hc_mutex_unlock(&threads_of.mutex);
}

/* A matrix in the form of a BLAS. false if neither stride is that of an element, or the other stride exceeds int. */
typedef struct {
    const float *data;
    int trans, ld;
} hc_blas_matrix;

static bool matrix_of(const hc_view *view, hc_blas_matrix *matrix) {
    const int64_t rows = view->shape[0], columns = view->shape[1], size = sizeof(float);
    const int64_t row = rows > 1 ? view->strides[0] : columns * size;
    const int64_t column = columns > 1 ? view->strides[1] : size;
    const bool plain = column == size && row >= columns * size;
    const bool transposed =
        (rows > 1 ? view->strides[0] : size) == size && (columns > 1 ? view->strides[1] : rows * size) >= rows * size;
    if (!plain && !transposed)
        return false;
    const int64_t stride = plain ? row : columns > 1 ? view->strides[1] : rows * size;
    if (stride % size != 0 || stride / size > INT_MAX)
        return false;
    *matrix = (hc_blas_matrix){view->data, plain ? NO_TRANS : TRANS, (int)hc_max(stride / size, 1)};
    return true;
}

static bool is_vector(const hc_view *view, int axis) {
    return view->shape[axis] <= 1 || view->strides[axis] == sizeof(float);
}

/* Multiplies one matrix by another. Returns false, without doing anything, for strides that no BLAS accepts. */
static bool multiply(const hc_view *a, const hc_view *b, const hc_view *out) {
    hc_blas_matrix x, w, y;
    if (!matrix_of(a, &x) || !matrix_of(b, &w) || !matrix_of(out, &y) || y.trans != NO_TRANS)
        return false;
    const int m = (int)a->shape[0], n = (int)b->shape[1], k = (int)a->shape[1];
    const bool ta = x.trans == TRANS, tb = w.trans == TRANS;
    float *answer = out->data;
    if (m == 1 && is_vector(a, 1) && is_vector(out, 1)) /* one vector: sgemm would pack the whole matrix for it */
        blas.sgemv(ROW_MAJOR, tb ? NO_TRANS : TRANS, tb ? n : k, tb ? k : n, 1.0f, w.data, w.ld, x.data, 1, 0.0f,
                   answer, 1);
    else if (n == 1 && is_vector(b, 0) && is_vector(out, 0))
        blas.sgemv(ROW_MAJOR, x.trans, ta ? k : m, ta ? m : k, 1.0f, x.data, x.ld, w.data, 1, 0.0f, answer, 1);
    else
        blas.sgemm(ROW_MAJOR, x.trans, w.trans, m, n, k, 1.0f, x.data, x.ld, w.data, w.ld, 0.0f, answer, y.ld);
    return true;
}

static void copy(const hc_view *from, const hc_view *to) {
    for (int64_t i = 0; i < from->shape[0]; i++)
        for (int64_t j = 0; j < from->shape[1]; j++)
            memcpy((char *)to->data + i * to->strides[0] + j * to->strides[1],
                   (const char *)from->data + i * from->strides[0] + j * from->strides[1], sizeof(float));
}

static hc_view rows_side_by_side(const hc_view *view, float *data) {
    return (hc_view){.data = data,
                     .dtype = HC_F32,
                     .ndim = 2,
                     .shape = {view->shape[0], view->shape[1]},
                     .strides = {view->shape[1] * (int64_t)sizeof(float), sizeof(float)}};
}

/* The same with copies of all three, whose memory is kept for the next matrix. */
static hc_status multiply_copies(const hc_view *a, const hc_view *b, const hc_view *out, float *memory[3],
                                 hc_error *error) {
    const hc_view *views[3] = {a, b, out};
    hc_view copies[3];
    for (int i = 0; i < 3; i++) {
        const int64_t bytes = hc_values(views[i]) * (int64_t)sizeof(float);
        if (!memory[i] && !(memory[i] = hc_alloc_aligned(bytes)))
            return hc_fail(error, HC_MEMORY, "matmul: not enough memory for a copy of %lld bytes", (long long)bytes);
        copies[i] = rows_side_by_side(views[i], memory[i]);
    }
    copy(a, &copies[0]);
    copy(b, &copies[1]);
    multiply(&copies[0], &copies[1], &copies[2]);
    copy(&copies[2], out);
    return HC_OK;
}

/* Merges leading dimensions into the rows if their strides allow it, from the last on. */
static void merge_rows(hc_view *a, hc_view *out) {
    while (a->ndim > 2) {
        const int last = a->ndim - 2; /* the rows; dimensions before them may be merged into the rows */
        const int64_t count = a->shape[last];
        if (out->shape[last] != count) /* it is broadcast there */
            return;
        if (count == 1) { /* whose own stride says nothing */
            a->strides[last] = a->strides[last - 1];
            out->strides[last] = out->strides[last - 1];
        }
        if (a->shape[last - 1] != out->shape[last - 1] || a->shape[last - 1] * count > INT_MAX)
            return;
        if (a->shape[last - 1] > 1 &&
            (a->strides[last - 1] != count * a->strides[last] || out->strides[last - 1] != count * out->strides[last]))
            return;
        hc_view *both[] = {a, out};
        for (int i = 0; i < 2; i++) {
            hc_view *view = both[i];
            view->shape[last - 1] *= count;
            view->strides[last - 1] = view->strides[last];
            view->shape[last] = view->shape[last + 1];
            view->strides[last] = view->strides[last + 1];
            view->ndim--;
        }
    }
}

/* Matrix `batch` of `out`, or the matrix of a side for it: missing leading dimensions and those of length 1 are
 * broadcast. */
static hc_view matrix_at(const hc_view *view, const hc_view *out, int64_t batch) {
    const int i = view->ndim - 2;
    hc_view matrix = {.data = view->data,
                      .dtype = view->dtype,
                      .ndim = 2,
                      .shape = {view->shape[i], view->shape[i + 1]},
                      .strides = {view->strides[i], view->strides[i + 1]}};
    char *data = view->data;
    for (int axis = out->ndim - 3; axis >= 0; batch /= out->shape[axis--]) {
        const int own = axis - (out->ndim - view->ndim);
        if (own >= 0 && view->shape[own] > 1)
            data += batch % out->shape[axis] * view->strides[own];
    }
    matrix.data = data;
    return matrix;
}

hc_status hc_blas_run(const hc_call *call, hc_error *error) {
    hc_view a = *call->a->dense, out = *call->out;
    const hc_view *b = call->b->dense;
    if (b->ndim == 2 && a.ndim == out.ndim)
        merge_rows(&a, &out);
    int64_t batches = 1;
    for (int i = 0; i < out.ndim - 2; i++)
        batches *= out.shape[i];
    hc_status status = HC_OK;
    float *memory[3] = {NULL, NULL, NULL};
    begin_threads(call->run->n_threads);
    for (int64_t i = 0; status == HC_OK && i < batches; i++) {
        const hc_view x = matrix_at(&a, &out, i), w = matrix_at(b, &out, i), y = matrix_at(&out, &out, i);
        if (!multiply(&x, &w, &y))
            status = multiply_copies(&x, &w, &y, memory, error);
    }
    end_threads();
    for (int i = 0; i < 3; i++)
        hc_free_aligned(memory[i]);
    if (status == HC_OK && call->bias)
        hc_add_bias(call->bias, call->out);
    return status;
}
