/* Operations of one value each, one after the other on a tile of a row, so that values between them stay in the first
 * cache; hc.h states them. A task is a tile of columns of some rows.
 *
 * Memory: for each thread a tile for each value that a later operation reads.
 */
#include "base/threads.h"
#include "hc_layers.h"
#include "kernels/kernel.h"
#include "ops/check.h"

#include <string.h>

enum {
    TILE = 1024,
    GAP = 80,     /* floats between two tiles: tiles 4096 bytes apart would delay loads after stores */
    NOWHERE = -1, /* an input, or a value that nobody reads */
};

typedef struct {
    const hc_pointwise *call;
    hc_pointwise_f32_fn *kernel;
    int tiles[HC_POINTWISE_STEPS]; /* the tile of each step's result */
    int n_tiles;
    int64_t rows_of_task, across; /* rows of a task; tasks side by side */
    float *memory;
} pointwise_job;

/* The last step that reads each result: its tile is free from then on. */
static void plan_tiles(pointwise_job *job) {
    const hc_pointwise *call = job->call;
    int last[HC_POINTWISE_STEPS], free_tiles[HC_POINTWISE_STEPS], n_free = 0;
    for (int i = 0; i < call->n_steps; i++) {
        last[i] = NOWHERE;
        const int read[2] = {call->steps[i].a, call->steps[i].b};
        for (int k = 0; k < 2; k++)
            if (read[k] >= call->n_inputs)
                last[read[k] - call->n_inputs] = i;
    }
    for (int i = 0; i < call->n_steps; i++) {
        const hc_pointwise_step *step = &call->steps[i];
        const int read[2] = {step->a, step->b == step->a ? NOWHERE : step->b};
        for (int k = 0; k < 2; k++) {
            const int of = read[k] - call->n_inputs;
            if (read[k] >= call->n_inputs && last[of] == i && !call->steps[of].out)
                free_tiles[n_free++] = job->tiles[of];
        }
        if (step->out)
            job->tiles[i] = NOWHERE;
        else
            job->tiles[i] = n_free ? free_tiles[--n_free] : job->n_tiles++;
    }
}

static void pointwise_task(void *context, int64_t task, int thread) {
    const pointwise_job *job = context;
    const hc_pointwise *call = job->call;
    float *own = job->memory + (int64_t)thread * job->n_tiles * (TILE + GAP);
    const int64_t first = task / job->across * job->rows_of_task, column = task % job->across * TILE;
    const int64_t end = hc_min(first + job->rows_of_task, call->rows), n = hc_min(call->columns - column, TILE);
    const float *of[HC_POINTWISE_INPUTS + HC_POINTWISE_STEPS];
    int moves[HC_POINTWISE_INPUTS + HC_POINTWISE_STEPS];
    for (int64_t row = first; row < end; row++) {
        for (int i = 0; i < call->n_inputs; i++) {
            const hc_pointwise_input *input = &call->inputs[i];
            of[i] = input->values + row % input->rows * input->row_step + column * input->step;
            moves[i] = (int)input->step;
        }
        for (int i = 0; i < call->n_steps; i++) {
            const hc_pointwise_step *step = &call->steps[i];
            float *to = step->out ? step->out + row * call->columns + column : own + job->tiles[i] * (TILE + GAP);
            hc_pointwise_part part = {.operation = (hc_pointwise_operation)step->operation,
                                      .a = of[step->a],
                                      .a_step = moves[step->a],
                                      .b = step->b < 0 ? NULL : of[step->b],
                                      .b_step = step->b < 0 ? 0 : moves[step->b],
                                      .low = step->low,
                                      .high = step->high,
                                      .scale = step->scale,
                                      .shift = step->shift,
                                      .to = to};
            job->kernel(n, &part);
            of[call->n_inputs + i] = to;
            moves[call->n_inputs + i] = 1;
        }
    }
}

static bool is_known(const hc_pointwise *call) {
    if (call->n_inputs < 1 || call->n_inputs > HC_POINTWISE_INPUTS || call->n_steps < 1 ||
        call->n_steps > HC_POINTWISE_STEPS)
        return false;
    for (int i = 0; i < call->n_steps; i++) {
        const hc_pointwise_step *step = &call->steps[i];
        const bool has_two = step->operation <= HC_POINTWISE_DIV;
        if (step->operation < 0 || step->operation >= HC_N_POINTWISE || step->a < 0 || step->a >= call->n_inputs + i ||
            step->b >= call->n_inputs + i || (has_two ? step->b < 0 : step->b != NOWHERE))
            return false;
    }
    return true;
}

hc_status hc_pointwise_call(const hc_run *run, const hc_pointwise *call, hc_error *error) {
    if (!is_known(call))
        return hc_fail(error, HC_VALUE, "pointwise: expected up to %d inputs, and up to %d known steps",
                       HC_POINTWISE_INPUTS, HC_POINTWISE_STEPS);
    if (call->rows <= 0 || call->columns <= 0)
        return HC_OK;
    pointwise_job job = {.call = call, .kernel = HC_PICK(pointwise_f32, run)};
    plan_tiles(&job);
    job.across = hc_ceil_div(call->columns, TILE);
    job.rows_of_task = hc_max(1, TILE / call->columns);
    const int64_t n_tasks = hc_ceil_div(call->rows, job.rows_of_task) * job.across;
    const int n_threads = (int)hc_min(run->n_threads, n_tasks);
    job.memory = hc_alloc_aligned((int64_t)sizeof(float) * (TILE + GAP) * (job.n_tiles * n_threads + 1));
    if (!job.memory)
        return hc_fail(error, HC_MEMORY, "pointwise: not enough memory");
    hc_parallel(n_threads, n_tasks, pointwise_task, &job);
    hc_free_aligned(job.memory);
    return HC_OK;
}
