/* Counts of an array of multipliers like SCNN's for a convolution (Parashar et al., ISCA 2017, arXiv 1708.04485,
 * section 4), without computing it: heterocompute/reference/outer.py is the definition.
 *
 * Each cell of a grid has a tile of the image. A group is as many filters as have room in a cell's accumulators. For
 * each group and channel a cell multiplies `activations` nonzero activations by `weights` nonzero weights in a step,
 * all pairs. A bank accepts one product per cycle. The cells wait for each other after a group. Memory of each thread:
 * the nonzero weights of a group and channel, and a few tables of the size of R + S and of the cells.
 */
#include "ops/check.h"
#include "ops/product/operand.h"

#include "base/threads.h"

#include <string.h>

enum { PIECE = 64, MOST_SIDE = 64, MOST_CELLS = 256, MOST_BANKS = 4096 };

typedef struct {
    int32_t filter, r, s; /* filter of the group */
} hc_outer_weight;

/* One thread's memory and sums. */
typedef struct {
    hc_outer_weight *weights;
    int64_t n_weights;
    /* (activations, R), (activations, S): contribution to the index of the bank, or -1 outside the result */
    int32_t *p, *q;
    uint32_t *load;  /* (banks): products of the current step */
    int64_t *cycles; /* (cells) */
    hc_outer_counts counts;
} hc_outer_counter;

typedef struct {
    const hc_conv_shape *shape;
    const hc_window *window;
    const hc_view *x, *w;
    const hc_outer_machine *machine;
    int64_t tile[2], reach; /* of a cell: rows and columns of x; columns of the result that they touch */
    int64_t group;          /* filters */
    hc_outer_counter *counters;
} hc_outer_job;

/* Number of outputs that `size` pixels of x touch, along one dimension. */
static int64_t reach_of(int64_t size, int64_t taps, int64_t stride) {
    return hc_min((hc_max(size, 1) + hc_max(taps, 1) - 2) / stride + 1, 1 << 30);
}

/* Weights of a channel and group, taps ascending and filters ascending in a tap. */
static void list_weights(const hc_outer_job *job, hc_outer_counter *counter, int64_t channel, int64_t first,
                         int64_t filters) {
    const int64_t *strides = job->w->strides;
    counter->n_weights = 0;
    for (int64_t tap = 0; tap < job->shape->r * job->shape->s; tap++) {
        const int64_t r = tap / job->shape->s, s = tap % job->shape->s;
        const char *data =
            (const char *)job->w->data + first * strides[0] + channel * strides[1] + r * strides[2] + s * strides[3];
        float values[PIECE];
        for (int64_t k = 0; k < filters; k++) {
            if (k % PIECE == 0)
                hc_read_floats(data + k * strides[0], job->w->dtype, strides[0], hc_min(PIECE, filters - k), values);
            if (values[k % PIECE] != 0.0f)
                counter->weights[counter->n_weights++] = (hc_outer_weight){(int32_t)k, (int32_t)r, (int32_t)s};
        }
    }
}

/* Contribution of tap `tap` of the pixel at `place` to the index of a bank; -1: it has no output. */
static int32_t place_of(const hc_outer_job *job, int dim, int64_t place, int64_t tap, int64_t size, int64_t share) {
    const int64_t at = place + job->window->pad_before[dim] - tap, stride = job->window->stride[dim];
    if (at < 0 || at % stride != 0 || at / stride >= size)
        return -1;
    return (int32_t)(at / stride % job->machine->banks * share % job->machine->banks);
}

static void note_activation(const hc_outer_job *job, hc_outer_counter *counter, int64_t i, int64_t y, int64_t x) {
    const hc_conv_shape *s = job->shape;
    const int64_t share = job->machine->weights % job->machine->banks;
    const int64_t row_share = share * (job->reach % job->machine->banks) % job->machine->banks;
    for (int64_t r = 0; r < s->r; r++)
        counter->p[i * s->r + r] = place_of(job, 0, y, r, s->out_height, row_share);
    for (int64_t t = 0; t < s->s; t++)
        counter->q[i * s->s + t] = place_of(job, 1, x, t, s->out_width, share);
}

/* Multiplies all weights of the channel and group by `n` activations; returns the cycles. */
static int64_t meet_all(const hc_outer_job *job, hc_outer_counter *counter, int64_t n) {
    const hc_outer_machine *machine = job->machine;
    const uint32_t banks = (uint32_t)machine->banks;
    int64_t cycles = 0;
    for (int64_t first = 0; first < counter->n_weights; first += machine->weights) {
        const int64_t end = hc_min(first + machine->weights, counter->n_weights);
        uint32_t most = 1;
        memset(counter->load, 0, banks * sizeof *counter->load);
        for (int64_t i = 0; i < n; i++)
            for (int64_t f = first; f < end; f++) {
                const hc_outer_weight *weight = &counter->weights[f];
                const int32_t p = counter->p[i * job->shape->r + weight->r];
                const int32_t q = counter->q[i * job->shape->s + weight->s];
                if (p < 0 || q < 0)
                    continue;
                const uint32_t taken = counter->load[((uint32_t)weight->filter + (uint32_t)p + (uint32_t)q) % banks]++;
                counter->counts.useful++;
                counter->counts.conflicts += taken > 0;
                most = taken + 1 > most ? taken + 1 : most;
            }
        counter->counts.steps++;
        counter->counts.products += n * (end - first);
        cycles += most;
    }
    return cycles;
}

/* One cell's activations of a channel, row by row. */
static int64_t walk_cell(const hc_outer_job *job, hc_outer_counter *counter, int64_t image, int64_t channel,
                         int64_t cell) {
    const hc_view *x = job->x;
    const int64_t top = cell / job->machine->columns * job->tile[0], left = cell % job->machine->columns * job->tile[1];
    const int64_t bottom = hc_min(top + job->tile[0], job->shape->height);
    const int64_t right = hc_min(left + job->tile[1], job->shape->width);
    int64_t n = 0, cycles = 0;
    for (int64_t y = top; y < bottom; y++)
        for (int64_t begin = left; begin < right; begin += PIECE) {
            float values[PIECE];
            const int64_t count = hc_min(PIECE, right - begin);
            hc_read_floats((const char *)x->data + image * x->strides[0] + channel * x->strides[1] + y * x->strides[2] +
                               begin * x->strides[3],
                           x->dtype, x->strides[3], count, values);
            for (int64_t i = 0; i < count; i++) {
                if (values[i] == 0.0f)
                    continue;
                note_activation(job, counter, n++, y, begin + i);
                if (n == job->machine->activations) {
                    cycles += meet_all(job, counter, n);
                    n = 0;
                }
            }
        }
    return n > 0 ? cycles + meet_all(job, counter, n) : cycles;
}

/* Task: one image and group of filters. */
static void count_task(void *context, int64_t task, int thread) {
    const hc_outer_job *job = context;
    hc_outer_counter *counter = &job->counters[thread];
    const int64_t groups = hc_ceil_div(job->shape->filters, job->group),
                  cells = job->machine->rows * job->machine->columns;
    const int64_t first = task % groups * job->group, filters = hc_min(job->group, job->shape->filters - first);
    memset(counter->cycles, 0, (size_t)cells * sizeof *counter->cycles);
    for (int64_t channel = 0; channel < job->shape->channels; channel++) {
        list_weights(job, counter, channel, first, filters);
        for (int64_t cell = 0; counter->n_weights > 0 && cell < cells; cell++)
            counter->cycles[cell] += walk_cell(job, counter, task / groups, channel, cell);
    }
    int64_t slowest = 0;
    for (int64_t cell = 0; cell < cells; cell++)
        slowest = hc_max(slowest, counter->cycles[cell]);
    counter->counts.cycles += slowest;
}

static hc_status check_machine(const hc_outer_machine *m, hc_error *error) {
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {{"cells (rows)", m->rows, MOST_CELLS},
                 {"cells (columns)", m->columns, MOST_CELLS},
                 {"multipliers (weights)", m->weights, MOST_SIDE},
                 {"multipliers (activations)", m->activations, MOST_SIDE},
                 {"banks", m->banks, MOST_BANKS},
                 {"accumulators", m->accumulators, 1 << 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            return hc_fail(error, HC_VALUE, "conv2d_outer: %s is %lld, expected 1 to %lld", sizes[i].name,
                           (long long)sizes[i].value, (long long)sizes[i].most);
    return HC_OK;
}

static hc_status count_all(const hc_run *run, hc_outer_job *job, hc_outer_counts *counts, hc_error *error) {
    const hc_conv_shape *s = job->shape;
    const hc_outer_machine *machine = job->machine;
    const int64_t n_tasks = s->n * hc_ceil_div(s->filters, job->group);
    const int n_threads = (int)hc_min(hc_min(run->n_threads, HC_MAX_THREADS), n_tasks);
    job->counters = hc_alloc_aligned(n_threads * (int64_t)sizeof *job->counters);
    bool enough = job->counters != NULL;
    if (enough)
        memset(job->counters, 0, (size_t)n_threads * sizeof *job->counters);
    for (int i = 0; enough && i < n_threads; i++) {
        hc_outer_counter *counter = &job->counters[i];
        counter->weights = hc_alloc_aligned(job->group * s->r * s->s * (int64_t)sizeof *counter->weights);
        counter->p = hc_alloc_aligned(machine->activations * s->r * (int64_t)sizeof *counter->p);
        counter->q = hc_alloc_aligned(machine->activations * s->s * (int64_t)sizeof *counter->q);
        counter->load = hc_alloc_aligned(machine->banks * (int64_t)sizeof *counter->load);
        counter->cycles = hc_alloc_aligned(machine->rows * machine->columns * (int64_t)sizeof *counter->cycles);
        enough = counter->weights && counter->p && counter->q && counter->load && counter->cycles;
    }
    if (enough)
        hc_parallel(n_threads, n_tasks, count_task, job);
    for (int i = 0; job->counters && i < n_threads; i++) {
        hc_outer_counter *counter = &job->counters[i];
        counts->products += counter->counts.products;
        counts->useful += counter->counts.useful;
        counts->conflicts += counter->counts.conflicts;
        counts->steps += counter->counts.steps;
        counts->cycles += counter->counts.cycles;
        hc_free_aligned(counter->weights);
        hc_free_aligned(counter->p);
        hc_free_aligned(counter->q);
        hc_free_aligned(counter->load);
        hc_free_aligned(counter->cycles);
    }
    hc_free_aligned(job->counters);
    return enough ? HC_OK : hc_fail(error, HC_MEMORY, "conv2d_outer: not enough memory for the weights of a channel");
}

hc_status hc_count_outer(const hc_run *run, const hc_view *x, const hc_view *w, const hc_window *window,
                         const int64_t out_size[2], const hc_outer_machine *machine, hc_outer_counts *counts,
                         hc_error *error) {
    hc_conv_shape shape = {0};
    const hc_operand filters = {.dense = w};
    const hc_view out = {.dtype = HC_F32,
                         .ndim = 4,
                         .shape = {x->ndim == 4 ? x->shape[0] : 0, w->ndim == 4 ? w->shape[0] : 0, out_size[0],
                                   out_size[1]}}; /* for its shape */
    hc_status status = hc_check_conv2d(x, &filters, NULL, window, NULL, &out, &shape, error);
    if (status == HC_OK)
        status = check_machine(machine, error);
    *counts = (hc_outer_counts){0};
    if (status != HC_OK || shape.n * shape.filters == 0)
        return status;
    hc_outer_job job = {.shape = &shape, .window = window, .x = x, .w = w, .machine = machine};
    job.tile[0] = hc_ceil_div(shape.height, machine->rows);
    job.tile[1] = hc_ceil_div(shape.width, machine->columns);
    job.reach = reach_of(job.tile[1], shape.s, window->stride[1]);
    const int64_t pixels = reach_of(job.tile[0], shape.r, window->stride[0]) * job.reach;
    job.group = hc_min(hc_max(machine->accumulators / pixels, 1), shape.filters);
    return count_all(run, &job, counts, error);
}
