/* Experts: the tokens of each expert are gathered, and multiplied by its matrices.
 *
 * Memory: some rows of each intermediate result, during the call.
 * Shazeer et al., "Outrageously Large Neural Networks", 2017 (arXiv 1701.06538), equation 1.
 */
#include "ops/layers/steps.h"

#include <string.h>

typedef struct {
    const hc_run *run;
    const hc_experts *given;
    float *x, *gate, *up, *both, *y;
    int64_t *token; /* rows of x of the current expert */
    float *share;
} experts_job;

static bool is_there(const hc_stack *stack) { return stack->packed || stack->data; }

/* to (n, rows) = from (n, columns) @ the matrix of one expert + its bias */
static hc_status product(const experts_job *job, const hc_stack *stack, int64_t expert, int64_t n, const float *from,
                         float *to, hc_error *error) {
    const int64_t rows = stack->rows, columns = stack->columns, first = expert * rows;
    hc_view dense = {NULL, HC_F32, 2, {columns, rows}, {4, 4 * columns}, HC_HOST};
    hc_packed packed;
    if (stack->packed) {
        packed = *stack->packed;
        packed.ndim = 2;
        packed.shape[0] = columns;
        packed.shape[1] = rows;
        packed.axes[0] = 0;
        packed.prepacked = NULL;
        packed.components.first_row += first;
        for (int i = 0; i < HC_N_COMPONENTS; i++)
            if (packed.components.part[i].data)
                packed.components.part[i].data += first * packed.components.part[i].row_stride;
    } else {
        dense.data = (void *)(stack->data + first * columns);
    }
    const hc_operand weight = {stack->packed ? NULL : &dense, stack->packed ? &packed : NULL};
    return hc_step_product(job->run, n, &weight, stack->bias ? stack->bias + first : NULL, job->given->activations,
                           columns, rows, from, to, error);
}

static void run_layer(const experts_job *job, hc_layer_kind kind, int64_t rows, int64_t n, const float *x,
                      const float *weight, float *y) {
    const hc_run run = hc_step_run(job->run, (double)rows * (double)n);
    hc_run_layer(&run, &(hc_layer){.kind = kind, .rows = rows, .n = n, .x = x, .weight = weight, .y = y});
}

/* gate = act(gate, up). `both` has room for two values of each. */
static void activate(const experts_job *job, int64_t n) {
    const hc_experts *given = job->given;
    const int64_t values = n * given->hidden;
    const float alpha = given->alpha, limit = given->limit;
    float *gate = job->gate, *up = job->up, *pair = job->both;
    if (limit == 0) {
        run_layer(job, given->kind, n, given->hidden, gate, up, gate);
        return;
    }
    for (int64_t i = 0; i < values; i++) {
        gate[i] = gate[i] > limit ? limit : gate[i];
        up[i] = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        pair[2 * i] = alpha * gate[i];
        pair[2 * i + 1] = 0;
    }
    run_layer(job, HC_LAYER_SOFTMAX, values, 2, pair, NULL, pair); /* sigmoid(x) is the first of softmax(x, 0) */
    for (int64_t i = 0; i < values; i++)
        gate[i] = (up[i] + 1) * (gate[i] * pair[2 * i]);
}

/* both (n, 2 hidden) -> gate, up */
static void split(const experts_job *job, int64_t n) {
    const int64_t hidden = job->given->hidden;
    for (int64_t r = 0; r < n; r++) {
        const float *row = job->both + 2 * r * hidden;
        float *gate = job->gate + r * hidden, *up = job->up + r * hidden;
        if (job->given->interleaved) {
            for (int64_t i = 0; i < hidden; i++) {
                gate[i] = row[2 * i];
                up[i] = row[2 * i + 1];
            }
        } else {
            memcpy(gate, row, (size_t)hidden * sizeof *row);
            memcpy(up, row + hidden, (size_t)hidden * sizeof *row);
        }
    }
}

/* The tokens of an expert and their shares. Returns their number. */
static int64_t gather(const experts_job *job, int64_t expert) {
    const hc_experts *given = job->given;
    int64_t n = 0;
    for (int64_t t = 0; t < given->tokens; t++)
        for (int64_t j = 0; j < given->used; j++)
            if (given->picked[t * given->used + j] == expert) {
                memcpy(job->x + n * given->width, given->x + t * given->width, (size_t)given->width * sizeof *job->x);
                job->share[n] = given->shares[t * given->used + j];
                job->token[n++] = t;
                break;
            }
    return n;
}

static hc_status run_expert(const experts_job *job, int64_t expert, hc_error *error) {
    const hc_experts *given = job->given;
    const int64_t n = gather(job, expert), width = given->width;
    if (n == 0)
        return HC_OK;
    hc_status status;
    if (is_there(&given->gate_up)) {
        status = product(job, &given->gate_up, expert, n, job->x, job->both, error);
        split(job, n);
    } else {
        status = product(job, &given->gate, expert, n, job->x, job->gate, error);
        if (status == HC_OK)
            status = product(job, &given->up, expert, n, job->x, job->up, error);
    }
    if (status != HC_OK)
        return status;
    activate(job, n);
    status = product(job, &given->down, expert, n, job->gate, job->y, error);
    for (int64_t r = 0; status == HC_OK && r < n; r++) {
        float *out = given->out + job->token[r] * width;
        for (int64_t i = 0; i < width; i++) {
            const float part = job->y[r * width + i] * job->share[r];
            out[i] += part;
        }
    }
    return status;
}

/* True if a token has the expert. */
static bool is_used(const hc_experts *given, int64_t expert) {
    for (int64_t i = 0; i < given->tokens * given->used; i++)
        if (given->picked[i] == expert)
            return true;
    return false;
}

hc_status hc_run_experts(const hc_run *run, const hc_experts *given, hc_error *error) {
    enum { PARTS = 6, LINE = 16 };
    const int64_t n = given->tokens, hidden = given->hidden, width = given->width;
    experts_job job = {.run = run, .given = given};
    memset(given->out, 0, (size_t)(n * width) * sizeof *given->out);
    float **const part[PARTS] = {&job.x, &job.gate, &job.up, &job.both, &job.y, &job.share};
    const int64_t size[PARTS] = {n * width, n * hidden, n * hidden, 2 * n * hidden, n * width, n};
    int64_t total = 2 * n; /* of the int64 numbers of tokens */
    for (int i = 0; i < PARTS; i++)
        total += hc_round_up(size[i], LINE);
    float *memory = hc_alloc_aligned(total * (int64_t)sizeof *memory);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "llm_experts: not enough memory");
    float *next = memory;
    for (int i = 0; i < PARTS; i++) {
        *part[i] = next;
        next += hc_round_up(size[i], LINE);
    }
    job.token = (int64_t *)(void *)next;
    hc_status status = HC_OK;
    for (int64_t expert = 0; status == HC_OK && expert < given->experts; expert++)
        if (is_used(given, expert))
            status = run_expert(&job, expert, error);
    hc_free_aligned(memory);
    return status;
}
